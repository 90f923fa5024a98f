"""The HWM that a run starts from: that of state or, if a run died before it wrote state, that of the target's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm
from odi_assets.nodes.node import Node, app_id
from odi_assets.sources.marks import Mark
from odi_assets.state.records import HwmEntry


@dataclass(frozen=True)
class Start:
    """The HWM that a plan starts from.

    Attributes:
        hwm: as state stores it; None if there is none.
        entry: the HWM entry as read from state, even one that marks a deletion.
        current: the entry, unless it marks a deletion.
        repaired: the target's log was ahead of state, so the HWM was taken from the log.
    """

    hwm: Any
    entry: HwmEntry | None
    current: HwmEntry | None
    repaired: bool

    @property
    def is_typed(self) -> bool:
        """Whether the HWM was stored with its type. Other tools store none."""
        return self.repaired or self.entry is None or self.entry.value_type is not None


def start_of(node: Node, entry: HwmEntry | None, target: TableHandle) -> Start:
    """Where the next run of ``node`` starts."""
    stamp = unrecorded_stamp(node, entry, target)
    current = entry if entry is not None and not entry.deleted else None
    hwm = committed_hwm(stamp) if stamp else (current.value if current else None)
    return Start(hwm, entry, current, repaired=stamp is not None)


def unrecorded_stamp(node: Node, entry: HwmEntry | None, target: TableHandle) -> CommittedStamp | None:
    """The stamp of the last commit, if its HWM was never written to state; None if state has it."""
    stamp = target.last_stamp(app_id(node.key), carrying="hwm")
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
    """The HWM of the rows in ``target``, at the version it was opened at. State may be ahead of it or behind."""
    stamp = target.last_stamp(app_id(node.key), carrying="hwm")
    by_hand = start.entry is not None and start.entry.target_commit is None
    if stamp is None or (by_hand and not _is_newer(CommitFacts.of(stamp), start.entry)):
        return start.hwm
    return committed_hwm(stamp)


def marks_of(node: Node, start: Start, target: TableHandle) -> dict[str, Mark]:
    """The marks of the node's sources, with what the commit that set them says of them."""
    if start.hwm is None:
        return {}
    committed = _committed(node, start.hwm, target)
    if committed is None:
        return node.marks(start.hwm, typed=start.is_typed)
    return node.marks(start.hwm, committed.remembered, committed.measures, typed=start.is_typed)


def _committed(node: Node, hwm: Any, target: TableHandle) -> CommittedHwm | None:
    """``hwm`` as the commit that set it carries it; None if the node's last commit did not set it."""
    for stamp in target.stamps():
        facts = CommitFacts.of(stamp) if stamp.app_id == app_id(node.key) else None
        # Backfills of early versions repeat the HWM, and store nothing beside it.
        if facts is not None and facts.hwm is not None and facts.bounds is None:
            return facts.hwm if facts.hwm.is_value(hwm) else None
    return None


def _is_newer(facts: CommitFacts, entry: HwmEntry | None) -> bool:
    # The commit notes the state entry that its plan saw, and state is written after the commit. If that entry was not
    # replaced since, the run died in between. If it was, by the run itself or by somebody's explicit change (a deletion
    # too), state counts. Revisions alone do not decide: after state is lost, they start at one again.
    if entry is None:
        return True
    seen = facts.state_updated_at
    # An HWM that another tool set in the JSON file has only the file's time, which any write changes.
    ours = entry.deleted or entry.value_type is not None
    since = ours and seen is not None and entry.updated_at > seen
    return entry.revision <= facts.state_revision and not since
