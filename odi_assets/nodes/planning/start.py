"""The HWM that a run starts from: the one in state, or the one in the target's log if state is behind the log."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm, HwmOrigin
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.identity import matched, same_sources
from odi_assets.sources.marks import CursorMark, LoadedRange, Mark

if TYPE_CHECKING:
    from typing import Protocol

    from odi_assets.state.records import HwmEntry

    class Hwms(Protocol):
        """What planning needs of state: a state backend, or its entries as they were at one moment."""

        def get_entry(self, key: str, *, deleted: bool = False) -> HwmEntry | None:
            """As of ``StateBackend``."""
            ...


def marks_in_state(node: Node, entry: HwmEntry) -> dict[str, Mark]:
    """The marks of a node's sources by an HWM entry of state, each under the name that its source has now.

    Raises:
        IncrementError: the HWM does not fit the node.
        StateError: what the HWM is of cannot be read.
    """
    origin = HwmOrigin.from_json(entry.origin)
    names, measures = same_sources(node, origin), origin.measures if origin is not None else None
    return node.marks(NodeMark.in_state(entry), measures=measures, names=names, typed=entry.value_type is not None)


@dataclass(frozen=True)
class Start:
    """The HWM that a plan starts from.

    Attributes:
        hwm: None if there is none.
        entry: the HWM entry as read from state, even one that marks a deletion.
        current: the entry, unless it marks a deletion.
        log_version: the version of the target whose commit the HWM was taken from, because state was behind it; None
            if the HWM comes from state.
        origin: what the HWM is of; None if that is not known.
        seen_at: the plan knows what was set by hand until then: when the entry was written; now, if there is none.
    """

    hwm: NodeMark | None
    entry: HwmEntry | None
    current: HwmEntry | None
    log_version: int | None
    origin: HwmOrigin | None
    seen_at: datetime

    @property
    def repaired(self) -> bool:
        """Whether the HWM was taken from the target's log, because state was behind it."""
        return self.log_version is not None

    @property
    def is_by_hand(self) -> bool:
        """Whether somebody set the HWM since the last commit, even to the value that it had."""
        return not self.repaired and self.entry is not None and not self.entry.is_index

    @property
    def is_typed(self) -> bool:
        """Whether the HWM was stored with its type. Other tools store none."""
        return self.repaired or self.entry is None or self.entry.value_type is not None


def table_and_start(node: Node, state: Hwms) -> tuple[TableHandle, Start]:
    """The table of a node, and where its next run starts.

    State is read first: the table has each commit that state knows then. In the other order, a run that commits in
    between makes the table look as if it had been put back.
    """
    entry = state.get_entry(node.state_key, deleted=True)
    target = TableHandle.open(node.target.location)
    return target, start_of(node, entry, target)


def start_of(node: Node, entry: HwmEntry | None, target: TableHandle, fence: str | None = None) -> Start:
    """Where the next run of ``node`` starts.

    Args:
        fence: the app id of the commits that carry the HWM; by default, the node's own.
    """
    current = entry if entry is not None and not entry.deleted else None
    seen_at = entry.updated_at if entry is not None else datetime.now(UTC)
    stamp = target.last_stamp(fence or app_id(node.key), carrying="hwm")
    if stamp is not None and is_newer(stamp, entry, target):
        # The plan has seen all that was set by hand until then, whatever copy of state it found.
        seen_at = max(seen_at, stamp.committed_at)
        # State may have the same value, and be the index of another commit all the same.
        version = stamp.version if current is not None or is_unrecorded(stamp, entry) else None
        origin = CommitFacts.of(stamp).origin(target.table_id)
        return Start(committed_hwm(stamp), entry, current, version, origin, seen_at)
    if current is None:
        return Start(None, entry, None, None, None, seen_at)
    return Start(NodeMark.in_state(current), entry, current, None, _origin_of(current, stamp), seen_at)


def _origin_of(entry: HwmEntry, stamp: CommittedStamp | None) -> HwmOrigin | None:
    """What the HWM of ``entry`` belongs to. Early versions wrote it to the commit only."""
    if entry.origin is not None or not entry.is_index or stamp is None:
        return HwmOrigin.from_json(entry.origin)
    return CommitFacts.of(stamp).origin(None)


def unrecorded_stamp(fence: str, entry: HwmEntry | None, target: TableHandle) -> CommittedStamp | None:
    """The stamp of the last commit fenced by ``fence``, if its HWM is newer than state; None if state has it."""
    stamp = target.last_stamp(fence, carrying="hwm")
    return stamp if stamp and is_newer(stamp, entry, target) and is_unrecorded(stamp, entry) else None


def is_unrecorded(stamp: CommittedStamp, entry: HwmEntry | None) -> bool:
    """Whether state has another HWM than this commit."""
    committed = CommitFacts.of(stamp).hwm
    return committed is not None and not committed.carries(NodeMark.in_state(entry))


def committed_hwm(stamp: CommittedStamp) -> NodeMark | None:
    """The HWM that a commit carries."""
    committed = CommitFacts.of(stamp).hwm
    return committed.mark if committed else None


def hwm_in_target(node: Node, start: Start, target: TableHandle) -> NodeMark | None:
    """The HWM of the rows in ``target``, at the version it was opened at. State may be ahead of it or behind. What
    somebody set counts, and what they accepted: no run will load what lies below."""
    stamp = target.last_stamp(app_id(node.key), carrying="hwm")
    by_hand = start.entry is not None and start.entry.run_id is None
    if stamp is None or (by_hand and not is_newer(stamp, start.entry, target)):
        return start.hwm
    return committed_hwm(stamp)


def marks_of(node: Node, start: Start, target: TableHandle) -> dict[str, Mark]:
    """The marks of the node's sources, with what the commit that set them says of them; none if there is no HWM.

    Raises:
        IdentityMismatchError: the marks measure something else than the node's sources.
        IncrementError: the HWM does not fit the node's sources.
    """
    if start.hwm is None:
        return {}
    names = matched(node, start.origin)
    committed = committed_as(app_id(node.key), start.hwm, target)
    measures = start.origin.measures if start.origin is not None else None
    remembered = None if committed is None else committed.remembered
    if remembered and start.is_by_hand:
        # Whoever sets a value means it as the source is now.
        remembered = {name: {**facts, "digits": None, "known_by": None} for name, facts in remembered.items()}
    marks = node.marks(start.hwm, remembered, measures, names=names, typed=committed is not None or start.is_typed)
    ranges = _ranges_since(target) if committed is not None else {}
    return {
        name: replace(mark, ranges=tuple(ranges[name])) if isinstance(mark, CursorMark) and name in ranges else mark
        for name, mark in marks.items()
    }


def _ranges_since(target: TableHandle) -> dict[str, list[LoadedRange]]:
    """By source, the ranges of its cursor that were loaded since the last commit that carries an HWM."""
    ranges: dict[str, list[LoadedRange]] = defaultdict(list)
    for facts in map(CommitFacts.of, target.stamps()):
        if facts.hwm is not None and facts.bounds is None:
            break
        if facts.bounds is not None:
            start, end = map(datetime.fromisoformat, facts.bounds)
            for name, held in (facts.ranges or {}).items():
                ranges[name].append(LoadedRange(start, end, held))
    return ranges


def committed_as(fence: str, hwm: NodeMark | None, target: TableHandle) -> CommittedHwm | None:
    """``hwm`` as the commit that set it carries it; None if the last commit fenced by ``fence`` did not set it."""
    facts = facts_of(fence, hwm, target)
    return None if facts is None else facts.hwm


def facts_of(fence: str, hwm: NodeMark | None, target: TableHandle) -> CommitFacts | None:
    """What the commit that set ``hwm`` says; None if the last commit fenced by ``fence`` did not set it."""
    for stamp in target.stamps():
        facts = CommitFacts.of(stamp) if stamp.app_id == fence else None
        # Backfills of early versions repeat the HWM, and store nothing beside it.
        if facts is not None and facts.hwm is not None and facts.bounds is None:
            return facts if facts.hwm.carries(hwm) else None
    return None


def is_newer(stamp: CommittedStamp, entry: HwmEntry | None, target: TableHandle) -> bool:
    """Whether the HWM of a commit is newer than the HWM in state. State may be an old copy."""
    if entry is None:
        return True
    facts, origin = CommitFacts.of(stamp), HwmOrigin.from_json(entry.origin)
    if entry.is_index or (origin is not None and origin.accepted):
        # An index of another table, or of an earlier commit, says less than the log. One of this very commit may have
        # moved on since: files were renamed, commits upstream changed no row.
        of_other = origin is not None and origin.table_id not in (None, target.table_id)
        return of_other or (entry.target_commit or 0) < stamp.version
    if not (entry.deleted or entry.value_type is not None):
        # What another tool set in the JSON file has only the file's time, which any write changes.
        return entry.revision <= facts.state_revision
    # Set by hand, a deletion too: it counts if the plan of the commit did not see it. Revisions do not decide: after
    # state is lost, they start at one again.
    return entry.updated_at <= (facts.state_updated_at or stamp.committed_at)
