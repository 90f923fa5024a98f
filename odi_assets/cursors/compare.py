"""Compares two cursor documents stream by stream: which moved forward or back, which are new or gone."""

from __future__ import annotations

from dataclasses import dataclass

from odi_assets.cursors.model import CursorDocument, CursorStream, Snapshot, SnapshotStatus
from odi_assets.cursors.moves import UNMOVED, Move, Verdict, joined, ordered
from odi_assets.cursors.positions import compare_positions
from odi_assets.cursors.values import compare_values

_STAGES = (SnapshotStatus.ABSENT, SnapshotStatus.PENDING, SnapshotStatus.FINISHED)


@dataclass(frozen=True)
class StreamMove:
    """How one stream moved between two documents, and the reason. ``old`` or ``new`` is None if it is not there."""

    stream: str
    move: Move
    reason: str
    old: CursorStream | None
    new: CursorStream | None

    def __str__(self) -> str:
        return f"{self.stream}: {self.move}, {self.reason}"


def compare(old: CursorDocument, new: CursorDocument) -> tuple[StreamMove, ...]:
    """How each stream of either document moved, sorted by stream id.

    A stream moved forward if some part of it did (its snapshot, its log position, its cursor columns) and none moved
    back; it is incomparable if parts moved in opposite ways or have no order.
    """
    before = {stream.id: stream for stream in old.streams}
    after = {stream.id: stream for stream in new.streams}
    return tuple(_move(name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys()))


def _move(name: str, old: CursorStream | None, new: CursorStream | None) -> StreamMove:
    if old is None:
        return StreamMove(name, Move.NEW, "it was not in the old document", None, new)
    if new is None:
        return StreamMove(name, Move.GONE, "it is not in the new document", old, None)
    verdict = joined(
        (
            _compare_snapshots(old.snapshot, new.snapshot),
            compare_positions(old.position, new.position),
            _compare_cursors(old, new),
        )
    )
    return StreamMove(name, verdict.move, verdict.reason, old, new)


def _compare_snapshots(old: Snapshot, new: Snapshot) -> Verdict:
    if old == new:
        return UNMOVED
    if old.status is not new.status:
        return ordered(_STAGES.index(old.status), _STAGES.index(new.status), f"snapshot {old.status} → {new.status}")
    what = f"snapshot with {len(old.chunks)} → {len(new.chunks)} chunks to read"
    if new.chunks < old.chunks:
        return Verdict(Move.FORWARD, what)
    if new.chunks > old.chunks:
        return Verdict(Move.BACK, what)
    return Verdict(Move.INCOMPARABLE, f"{what}: it was cut into other chunks")


def _compare_cursors(old: CursorStream, new: CursorStream) -> Verdict:
    before, after = old.cursors, new.cursors
    if before.keys() == after.keys():
        return joined(compare_values(name, before[name], after[name]) for name in sorted(before))
    what = f"cursor columns {', '.join(sorted(before)) or 'none'} → {', '.join(sorted(after)) or 'none'}"
    if before and after:
        return Verdict(Move.INCOMPARABLE, f"{what}: other columns have no order")
    return ordered(bool(before), bool(after), what)
