"""State and the target's log, where they do not agree: which HWM a plan starts from, and when it must not start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError, TargetBehindStateError
from odi_assets.nodes.display import hwm_text
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import decode, encode
from odi_assets.tables.handle import CommittedStamp, TableHandle


def trusted_hwm(entry: HwmEntry | None, target: TableHandle, app_id: str) -> tuple[Any, bool]:
    """The HWM to start from, and whether it came from the target's log because state had not got it yet."""
    known = entry.value if entry and not entry.deleted else None
    stamp = target.last_stamp(app_id) if target.exists else None
    if stamp is None or "hwm" not in stamp.facts or not _is_newer(stamp, entry):
        return known, False
    committed = stamp.facts["hwm"]
    if entry is not None and not entry.deleted and tuple(encode(known)) == (committed["value"], committed["type"]):
        return known, False
    return decode(committed["value"], committed["type"]), True


def require_memory(key: NodeKey, state_name: str, entry: HwmEntry | None, target: TableHandle, app_id: str) -> None:
    """Refuse to append everything again to a table that holds it, because nothing tells any more up to where.

    Raises:
        StateError: state is lost, and the target's log no longer reaches back to the node's last commit.
    """
    if entry is None and target.transaction_number(app_id) and target.last_stamp(app_id) is None:
        raise StateError(
            f"{key}: state has no HWM, and the log of the table at {target.location.uri} no longer holds the commit "
            "that would tell it; loading everything again would repeat the rows that are there",
            fix=f"say up to where it was loaded (odi state set {state_name} VALUE), or rebuild it from its sources "
            f"(odi run {key.pipeline} --node {key.node} --full-refresh)",
            node=str(key),
            target=target.location.uri,
        )


def require_agreement(key: NodeKey, state_name: str, hwm: Any, entry: HwmEntry | None, target: TableHandle) -> None:
    """Refuse an increment on top of rows that are not there.

    Raises:
        TargetBehindStateError: state knows an HWM, and the target that should hold its rows is gone or older.
    """
    if hwm is None or entry is None:
        return
    behind = not target.exists or (
        entry.target_commit is not None and target.version is not None and target.version < entry.target_commit
    )
    if behind:
        found = f"stands at version {target.version}" if target.exists else "does not exist"
        expected = "" if entry.target_commit is None else f", which version {entry.target_commit} of the table held"
        raise TargetBehindStateError(
            f"{key}: state says it was loaded up to {hwm_text(hwm)}{expected}; "
            f"the table at {target.location.uri} {found}",
            fix=f"rebuild it from its sources (odi run {key.pipeline} --node {key.node} --full-refresh), "
            f"put the table back, or accept the table as it is (odi state set {state_name} VALUE)",
            node=str(key),
            hwm=hwm,
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
