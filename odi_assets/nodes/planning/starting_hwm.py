"""State and the target's log, where they do not agree: which HWM a plan starts from, and when it must not start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import decode, encode


def trusted_hwm(entry: HwmEntry | None, target: TableHandle, app_id: str) -> tuple[Any, bool]:
    """The HWM to start from, and whether it came from the target's log because state had not got it yet."""
    stamp = unrecorded_stamp(entry, target, app_id)
    if stamp is None:
        return (entry.value if entry and not entry.deleted else None), False
    return committed_hwm(stamp), True


def unrecorded_stamp(entry: HwmEntry | None, target: TableHandle, app_id: str) -> CommittedStamp | None:
    """The stamp whose HWM was committed and did not come to state any more; None if state has it."""
    stamp = target.last_stamp(app_id, carrying="hwm") if target.exists else None
    if stamp is None or not _is_newer(stamp, entry):
        return None
    committed = stamp.facts["hwm"]
    known = entry.value if entry and not entry.deleted else None
    return None if tuple(encode(known)) == (committed["value"], committed["type"]) else stamp


def committed_hwm(stamp: CommittedStamp) -> Any:
    """The HWM that a commit carries."""
    return decode(stamp.facts["hwm"]["value"], stamp.facts["hwm"]["type"])


def hwm_in_target(entry: HwmEntry | None, target: TableHandle, app_id: str, trusted: Any) -> Any:
    """The HWM whose rows are in the target as it was opened. State may have moved on since, or have stayed behind."""
    stamp = target.last_stamp(app_id, carrying="hwm") if target.exists else None
    by_hand = entry is not None and entry.target_commit is None
    return trusted if stamp is None or (by_hand and not _is_newer(stamp, entry)) else committed_hwm(stamp)


def require_memory(key: NodeKey, state_name: str, entry: HwmEntry | None, target: TableHandle, app_id: str) -> None:
    """Refuse to append everything again to a table that holds it, because nothing tells any more up to where.

    Raises:
        StateError: state is lost, and the target's log no longer reaches back to the node's last commit.
    """
    if entry is None and target.transaction_number(app_id) and target.last_stamp(app_id, carrying="hwm") is None:
        raise StateError(
            f"{key}: state has no HWM, and the log of the table at {target.location.uri} no longer holds the commit "
            "that would tell it; loading everything again would repeat the rows that are there",
            fix=f"say up to where it was loaded (odi state set {state_name} VALUE), or rebuild it from its sources "
            f"(odi run {key.pipeline} --node {key.node} --full-refresh)",
            node=str(key),
            target=target.location.uri,
        )


def _is_newer(stamp: CommittedStamp, entry: HwmEntry | None) -> bool:
    # The commit notes the state entry its plan saw. State is written after the commit, so an entry that was not
    # replaced since means the run died in between; a later one is either that advance or somebody's explicit change,
    # a deletion too. Revisions alone would not tell: they count from one again where state was lost.
    if entry is None:
        return True
    seen = stamp.facts.get("state_updated_at")
    # Of what another tool set in the JSON file, nothing but the file's own time is known: any write moves it.
    ours = entry.deleted or entry.value_type is not None
    since = ours and seen is not None and entry.updated_at > datetime.fromisoformat(seen)
    return entry.revision <= int(stamp.facts.get("state_revision") or 0) and not since
