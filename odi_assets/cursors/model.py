"""A cursor document in types: its streams, and how far each was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from odi_assets.cursors.positions import LogPosition
from odi_assets.cursors.values import Scalar


class StateType(StrEnum):
    """Where OLake keeps positions: with each stream, in one place for all, or both."""

    STREAM = "STREAM"
    GLOBAL = "GLOBAL"
    MIXED = "MIXED"


class SnapshotStatus(StrEnum):
    """How far the first full read of a stream has come."""

    ABSENT = "absent"
    PENDING = "pending"
    FINISHED = "finished"


@dataclass(frozen=True, order=True)
class Chunk:
    """A range of a snapshot still to be read, ``min <= key < max``; each bound as canonical JSON, ``null`` is open."""

    min: str
    max: str


@dataclass(frozen=True)
class Snapshot:
    """The first full read of a stream.

    ABSENT: not begun, or its plan is lost; OLake would begin anew. PENDING: ``chunks`` are still to be read.
    FINISHED: all is read.
    """

    status: SnapshotStatus
    chunks: frozenset[Chunk] = frozenset()


@dataclass(frozen=True)
class CursorStream:
    """One table or collection: how far it was read, in each way that the document has."""

    id: str
    """``namespace.name``, or the name alone: OLake's name of the stream wherever it is one word."""
    namespace: str
    name: str
    sync_mode: str
    snapshot: Snapshot
    position: LogPosition | None = None
    """The stream's own log position, or the shared one if that is valid for it; None if it reads no log yet."""
    cursors: Mapping[str, Scalar] = field(default_factory=dict)
    """Value of each cursor column of an incremental stream."""


@dataclass(frozen=True)
class SharedPosition:
    """A log position that many streams share. ``streams`` names them; None is every stream without one of its own."""

    position: LogPosition | None
    streams: frozenset[str] | None


@dataclass(frozen=True)
class CursorDocument:
    """A document of another tool that says how far each of its streams was read.

    ``content`` is the whole document as JSON, with every field, known or not; it must not be changed.
    """

    tool: str
    type: StateType
    version: int
    streams: tuple[CursorStream, ...]
    """Sorted by id; a stream that only the shared position names is among them."""
    shared: SharedPosition | None
    content: Mapping[str, Any] = field(repr=False)
    path: str | None = field(default=None, compare=False)

    def stream(self, stream_id: str) -> CursorStream | None:
        """The stream of that id, or None."""
        return next((stream for stream in self.streams if stream.id == stream_id), None)
