"""A cursor document in types: its streams, and how far each was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from odi_assets.documents.findings import DocumentFinding
from odi_assets.documents.positions import LogPosition
from odi_assets.documents.values import Scalar

NO_CURSORS: Mapping[str, Any] = MappingProxyType({})


class Tool(StrEnum):
    """The tools whose documents are known."""

    OLAKE = "OLake"
    AIRBYTE = "Airbyte"
    SINGER = "Singer"
    DLT = "dlt"


class StateType(StrEnum):
    """Where a document keeps positions: with each stream, in one place for all, both, or in a form of its source."""

    STREAM = "STREAM"
    GLOBAL = "GLOBAL"
    MIXED = "MIXED"
    LEGACY = "LEGACY"


class SnapshotStatus(StrEnum):
    """How far the first full read of a stream has come."""

    ABSENT = "absent"
    PENDING = "pending"
    FINISHED = "finished"


class CursorChunk(NamedTuple):
    """A range of a snapshot still to be read, ``min <= key < max``; each bound as canonical JSON, ``null`` is open."""

    min: str
    max: str


@dataclass(frozen=True, slots=True)
class CursorSnapshot:
    """The first full read of a stream.

    ABSENT: not begun, or its plan is lost; the tool would start over. PENDING: ``chunks`` are still to be read, or the
    snapshot has come as far as ``reached`` says. FINISHED: all is read.
    """

    status: SnapshotStatus
    chunks: frozenset[CursorChunk] = frozenset()
    reached: str = ""
    """Where a snapshot that is read in order of a key stands, as canonical JSON; empty for one in chunks."""


ABSENT, FINISHED = CursorSnapshot(SnapshotStatus.ABSENT), CursorSnapshot(SnapshotStatus.FINISHED)


class CursorStream(NamedTuple):
    """One table or collection: how far it was read, in each way that the document has.

    Attributes:
        id: ``namespace.name``, or the name alone: the tool's name of the stream wherever it is one word.
        position: the stream's own log position, or the shared one if that is valid for it; None if it reads no log yet.
        cursors: the value of each cursor column of an incremental stream.
        other: what else its state holds and no order is known of, as canonical JSON by key.
    """

    id: str
    namespace: str
    name: str
    sync_mode: str
    snapshot: CursorSnapshot
    position: LogPosition | None = None
    cursors: Mapping[str, Scalar] = NO_CURSORS
    other: Mapping[str, str] = NO_CURSORS


@dataclass(frozen=True)
class SharedPosition:
    """A log position that many streams share. ``streams`` names them; None is every stream without one of its own."""

    position: LogPosition | None
    streams: frozenset[str] | None


@dataclass(frozen=True)
class CursorDocument:
    """A document of a tool that says how far each of its streams was read.

    Attributes:
        form: how the tool wrapped it: ``state``, ``message``, ``messages``, ``export`` …; see the tool's folder.
        version: of the document's shape, 0 if it says none.
        streams: sorted by id; a stream that only the shared position names is among them.
        content: the whole document as JSON, with every field, known or not; it must not be changed.
        text: the document as it was read, or written.
        many: whether the text holds several values, one after another, as JSON Lines do; ``content`` is their list.
        warnings: what somebody should look at.
        path: where it came from.
    """

    tool: str
    type: StateType
    version: int
    streams: tuple[CursorStream, ...]
    shared: SharedPosition | None
    content: Any = field(repr=False)
    form: str = "state"
    text: str = field(default="", repr=False, compare=False)
    many: bool = field(default=False, compare=False)
    warnings: tuple[DocumentFinding, ...] = field(default=(), repr=False, compare=False)
    path: str | None = field(default=None, compare=False)

    @cached_property
    def by_id(self) -> Mapping[str, CursorStream]:
        """The streams by their ids."""
        return {stream.id: stream for stream in self.streams}

    def stream(self, stream_id: str) -> CursorStream | None:
        """The stream of that id, or None."""
        return self.by_id.get(stream_id)
