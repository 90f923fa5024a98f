"""Compares two cursor documents stream by stream: which moved forward or back, by how much, which are new or gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from odi_assets.documents.model import CursorDocument, CursorSnapshot, CursorStream, SnapshotStatus
from odi_assets.documents.moves import UNMOVED, Move, MoveWithReason, joined, ordered
from odi_assets.documents.positions import LogPosition, compare_positions, log_distance
from odi_assets.documents.values import Scalar, compare_values, distance, is_same
from odi_assets.util.collector import collector_paused
from odi_assets.util.words import counted

_STAGES = (SnapshotStatus.ABSENT, SnapshotStatus.PENDING, SnapshotStatus.FINISHED)
_NUMBER = re.compile(r"\d{1,400}")
_NEW = MoveWithReason(Move.NEW, "it was not in the old document")
_GONE = MoveWithReason(Move.GONE, "it is not in the new document")


@dataclass(frozen=True)
class PartMove:
    """How one part of a stream moved: its snapshot, its log position or a cursor column.

    Attributes:
        by: how far, in words (`7,340 bytes`, `1 day, 0:00:00`, `3 chunks`); None where that is not known.
    """

    name: str
    move: Move
    old: str | None
    new: str | None
    by: str | None = None


class StreamMove(NamedTuple):
    """How one stream moved between two documents. ``old`` or ``new`` is None if it is not there."""

    stream: str
    verdict: MoveWithReason
    old: CursorStream | None
    new: CursorStream | None

    def __str__(self) -> str:
        return f"{self.stream}: {self.move}, {self.reason}"

    @property
    def move(self) -> Move:
        """How it moved."""
        return self.verdict.move

    @property
    def reason(self) -> str:
        """Why, in words: what each part was and is."""
        return self.verdict.reason

    @property
    def parts(self) -> tuple[PartMove, ...]:
        """The parts that moved."""
        if self.old is None or self.new is None:
            return ()
        return tuple(part for part in _parts(self.old, self.new) if part.move is not Move.SAME)

    @property
    def chunks_done(self) -> int:
        """How many chunks of the snapshot were read between the two documents."""
        if self.old is None or self.new is None or self.new.snapshot.status is SnapshotStatus.ABSENT:
            return 0
        return len(self.old.snapshot.chunks - self.new.snapshot.chunks)

    @property
    def chunks_left(self) -> int:
        """How many chunks of the snapshot are still to be read."""
        return len(self.new.snapshot.chunks) if self.new else 0

    def to_json(self) -> dict[str, Any]:
        """The move as JSON-ready values."""
        return {
            "stream": self.stream,
            "move": self.move.value,
            "reason": self.reason,
            "chunks_done": self.chunks_done,
            "chunks_left": self.chunks_left,
            "parts": [vars(part) | {"move": part.move.value} for part in self.parts],
        }


def compare(old: CursorDocument, new: CursorDocument) -> tuple[StreamMove, ...]:
    """How each stream of either document moved, sorted by stream id.

    A stream moved forward if some part of it did (its snapshot, its log position, its cursor columns) and none moved
    back; it is incomparable if parts moved in opposite ways or have no order.
    """
    with collector_paused():
        names = [stream.id for stream in old.streams]
        if names == [stream.id for stream in new.streams]:
            return tuple(map(compare_streams, names, old.streams, new.streams))
        before, after = old.by_id, new.by_id
        every = sorted(before.keys() | after.keys())
        return tuple([compare_streams(name, before.get(name), after.get(name)) for name in every])


def compare_streams(name: str, old: CursorStream | None, new: CursorStream | None) -> StreamMove:
    """How one stream moved; None is a stream that is not there."""
    if old is None:
        return StreamMove(name, _NEW, None, new)
    if new is None:
        return StreamMove(name, _GONE, old, None)
    if old == new and not any(type(value) is bool for value in (*old.cursors.values(), *new.cursors.values())):
        # Of values of a boolean equality is not enough, see `is_same`.
        return StreamMove(name, UNMOVED, old, new)
    verdicts = [_compare_cursors(old, new)]
    if old.position is not new.position:
        verdicts.insert(0, compare_positions(old.position, new.position))
    if old.snapshot is not new.snapshot:
        verdicts.insert(0, _compare_snapshots(old.snapshot, new.snapshot))
    verdict = joined(verdicts)
    if verdict is UNMOVED and old.other != new.other:
        changed = sorted(
            name for name in old.other.keys() | new.other.keys() if old.other.get(name) != new.other.get(name)
        )
        verdict = MoveWithReason(Move.INCOMPARABLE, f"{', '.join(changed)} changed: no order of it is known")
    return StreamMove(name, verdict, old, new)


def _parts(old: CursorStream, new: CursorStream) -> Iterator[PartMove]:
    before, after = old.snapshot, new.snapshot
    done = len(before.chunks - after.chunks)
    yield PartMove(
        "snapshot",
        _compare_snapshots(before, after).move,
        _snapshot_text(before),
        _snapshot_text(after),
        counted(done, "chunk") if done and after.status is not SnapshotStatus.ABSENT else None,
    )
    yield PartMove(
        "log position",
        compare_positions(old.position, new.position).move,
        _text(old.position),
        _text(new.position),
        log_distance(old.position, new.position),
    )
    for name in sorted(old.cursors.keys() | new.cursors.keys()):
        values = old.cursors.get(name), new.cursors.get(name)
        move = compare_values(name, *values).move
        yield PartMove(name, move, _text(values[0]), _text(values[1]), distance(*values))


def _snapshot_text(snapshot: CursorSnapshot) -> str:
    left = f", {counted(len(snapshot.chunks), 'chunk')} left" if snapshot.chunks else ""
    return f"{snapshot.status}{left}" + (f", at {snapshot.reached}" if snapshot.reached else "")


def _text(value: LogPosition | Scalar) -> str | None:
    return None if value is None else str(value)


def _compare_snapshots(old: CursorSnapshot, new: CursorSnapshot) -> MoveWithReason:
    if old is new or old == new:
        return UNMOVED
    if old.status is not new.status:
        return ordered(_STAGES.index(old.status), _STAGES.index(new.status), f"snapshot {old.status} → {new.status}")
    if old.reached or new.reached:
        return _compare_reached(old.reached, new.reached)
    what = f"snapshot with {len(old.chunks)} → {len(new.chunks)} chunks to read"
    if new.chunks < old.chunks:
        return MoveWithReason(Move.FORWARD, what)
    if new.chunks > old.chunks:
        return MoveWithReason(Move.BACK, what)
    return MoveWithReason(Move.INCOMPARABLE, f"{what}: it was cut into other chunks")


def _compare_reached(old: str, new: str) -> MoveWithReason:
    """Places that differ only in numbers, such as the row ids and keys of snapshots, have the order of these."""
    what = f"snapshot at {old or 'its start'} → {new or 'its start'}"
    if not old or not new:
        return ordered(bool(old), bool(new), what)
    if _NUMBER.sub("0", old) != _NUMBER.sub("0", new):
        return MoveWithReason(Move.INCOMPARABLE, f"{what}: these have no order")
    return ordered([int(n) for n in _NUMBER.findall(old)], [int(n) for n in _NUMBER.findall(new)], what)


def _compare_cursors(old: CursorStream, new: CursorStream) -> MoveWithReason:
    before, after = old.cursors, new.cursors
    if before.keys() == after.keys():
        moved = [name for name, value in before.items() if not is_same(value, after[name])]
        if len(moved) > 1:
            moved.sort()
        return joined([compare_values(name, before[name], after[name]) for name in moved])
    if _partitioned(old) or _partitioned(new):
        return _compare_partitions(old, new)
    what = f"cursor columns {', '.join(sorted(before)) or 'none'} → {', '.join(sorted(after)) or 'none'}"
    if before and after:
        return MoveWithReason(Move.INCOMPARABLE, f"{what}: other columns have no order")
    return ordered(bool(before), bool(after), what)


def _partitioned(stream: CursorStream) -> bool:
    return any("[{" in name for name in stream.cursors)


def _compare_partitions(old: CursorStream, new: CursorStream) -> MoveWithReason:
    """Partitions come as rows do, and one that is gone is read from its start if it comes back."""
    verdicts = [
        compare_values(name, old.cursors[name], new.cursors[name]) for name in old.cursors.keys() & new.cursors.keys()
    ]
    if new.cursors.keys() - old.cursors.keys():
        verdicts.append(MoveWithReason(Move.FORWARD, "there are new partitions"))
    if old.cursors.keys() - new.cursors.keys():
        verdicts.append(MoveWithReason(Move.BACK, "partitions are gone"))
    return joined(verdicts)
