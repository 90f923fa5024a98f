"""Where a run starts: the HWM of state or, where state did not get it any more, of the target's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.sources.marks import Mark
from odi_assets.state.records import HwmEntry


@dataclass(frozen=True)
class Start:
    """The HWM that a plan starts from.

    Attributes:
        hwm: as state stores it; None if there is none.
        entry: the HWM entry as read from state; a tombstone too.
        repaired: the target's log was ahead of state, and the HWM was taken from there.
    """

    hwm: Any
    entry: HwmEntry | None
    repaired: bool = False

    @property
    def standing(self) -> HwmEntry | None:
        """The entry, unless it was deleted."""
        return self.entry if self.entry is not None and not self.entry.deleted else None

    @property
    def is_typed(self) -> bool:
        """Whether the HWM has its own type; one that another tool stored has not."""
        return self.repaired or self.entry is None or self.entry.value_type is not None


def start_of(node: Node, entry: HwmEntry | None, target: TableHandle) -> Start:
    """Where the next run of ``node`` starts."""
    stamp = unrecorded_stamp(node, entry, target)
    hwm = committed_hwm(stamp) if stamp else (entry.value if entry and not entry.deleted else None)
    return Start(hwm, entry, repaired=stamp is not None)


def unrecorded_stamp(node: Node, entry: HwmEntry | None, target: TableHandle) -> CommittedStamp | None:
    """The stamp whose HWM was committed and did not come to state any more; None if state has it."""
    stamp = _last_stamp(node, target)
    if stamp is None or not _is_newer(CommitFacts.of(stamp), entry):
        return None
    committed = CommitFacts.of(stamp).hwm
    known = entry.value if entry and not entry.deleted else None
    return None if committed is None or committed.is_value(known) else stamp


def committed_hwm(stamp: CommittedStamp) -> Any:
    """The HWM that a commit carries."""
    committed = CommitFacts.of(stamp).hwm
    return committed.value if committed else None


def hwm_in_target(node: Node, start: Start, target: TableHandle) -> Any:
    """The HWM whose rows are in the target as it was opened. State may have moved on since, or have stayed behind."""
    stamp = _last_stamp(node, target)
    by_hand = start.entry is not None and start.entry.target_commit is None
    if stamp is None or (by_hand and not _is_newer(CommitFacts.of(stamp), start.entry)):
        return start.hwm
    return committed_hwm(stamp)


def marks_of(node: Node, start: Start, target: TableHandle) -> dict[str, Mark]:
    """The marks of the node's sources, with what the commit that set them remembers beside them."""
    if start.hwm is None:
        return {}
    return node.marks(start.hwm, _remembered(node, start.hwm, target), typed=start.is_typed)


def require_memory(node: Node, start: Start, target: TableHandle) -> None:
    """Refuse to append everything again to a table that holds it, because nothing tells any more up to where.

    Raises:
        StateError: state is lost, and the target's log no longer reaches back to the node's last commit.
    """
    if start.entry is None and target.transaction_number(app_id(node.key)) and _last_stamp(node, target) is None:
        raise StateError(
            f"{node}: state has no HWM, and the log of the table at {target.location.uri} no longer holds the commit "
            "that would tell it; loading everything again would repeat the rows that are there",
            fix=f"say up to where it was loaded (odi state set {node.state_key} VALUE), or rebuild it from its sources "
            f"(odi run {node.command} --full-refresh)",
            node=str(node),
            target=target.location.uri,
        )


def _last_stamp(node: Node, target: TableHandle) -> CommittedStamp | None:
    return target.last_stamp(app_id(node.key), carrying="hwm") if target.exists else None


def _remembered(node: Node, hwm: Any, target: TableHandle) -> Mapping[str, Any]:
    """What the commit that set ``hwm`` remembers beside it; nothing if the HWM was not set by the last commit."""
    if not any(source.follows and source.cursor for source in node.sources):
        return {}
    for stamp in target.stamps():
        facts = CommitFacts.of(stamp) if stamp.app_id == app_id(node.key) else None
        # Backfills of early versions repeat the HWM, and remember nothing.
        if facts is not None and facts.hwm is not None and facts.bounds is None:
            return facts.hwm.remembered if facts.hwm.is_value(hwm) else {}
    return {}


def _is_newer(facts: CommitFacts, entry: HwmEntry | None) -> bool:
    # The commit notes the state entry its plan saw. State is written after the commit, so an entry that was not
    # replaced since means the run died in between; a later one is either that advance or somebody's explicit change,
    # a deletion too. Revisions alone would not tell: they count from one again where state was lost.
    if entry is None:
        return True
    seen = facts.state_updated_at
    # Of what another tool set in the JSON file, nothing but the file's own time is known: any write moves it.
    ours = entry.deleted or entry.value_type is not None
    since = ours and seen is not None and entry.updated_at > seen
    return entry.revision <= facts.state_revision and not since
