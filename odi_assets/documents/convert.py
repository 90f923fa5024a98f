"""From one tool's document to another's, where the meaning carries over, and stream by stream why it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from odi_assets.documents.compare import compare_streams
from odi_assets.documents.editing import writer_of
from odi_assets.documents.model import (
    FINISHED,
    NO_CURSORS,
    CursorDocument,
    CursorStream,
    SharedPosition,
    SnapshotStatus,
    Tool,
)
from odi_assets.documents.moves import Move
from odi_assets.documents.positions import BinlogPosition, LogPosition, PostgresLsn
from odi_assets.documents.reading import parse
from odi_assets.documents.tools import spec_of
from odi_assets.errors import CursorDocumentError
from odi_assets.util.words import counted


@dataclass(frozen=True)
class Outcome:
    """What became of one stream.

    Attributes:
        stream: its id in the old document.
        carried: whether it is in the new document.
        what: what carried over, or why nothing did.
        notes: what somebody should know who goes on with the new document.
    """

    stream: str
    carried: bool
    what: str
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON-ready values."""
        return {**vars(self), "notes": list(self.notes)}


@dataclass(frozen=True)
class Conversion:
    """A new document, and what became of each stream of the old one."""

    document: CursorDocument
    outcomes: tuple[Outcome, ...]


class _NotCarried(Exception):
    """A stream has no place in the new document."""


def convert(document: CursorDocument, to: str, *, namespace: str | None = None) -> Conversion:
    """The document of another tool with all positions that it has a place for, of the same meaning.

    Args:
        to: the tool.
        namespace: the namespace of all streams there; by default, each stream keeps its own.

    Raises:
        CursorDocumentError: the document is of that tool already.
    """
    if to == document.tool:
        raise CursorDocumentError(f"{document.path or 'the document'} is one of {to} already", path=document.path)
    streams, shared, outcomes = _converted(document, to, namespace)
    converted = parse(writer_of(to).text_of(streams.values(), shared) + "\n", tool=to)
    back, _, fates = _converted(converted, document.tool, None)
    for name, stream in streams.items():
        there = spec_of(to).id_of(stream)
        notes = _lost_on_the_way_back(document.by_id[name], back.get(there), fates[there])
        outcomes[name] = replace(outcomes[name], notes=(*outcomes[name].notes, *notes))
    return Conversion(converted, tuple(outcomes.values()))


def _converted(
    document: CursorDocument, to: str, namespace: str | None
) -> tuple[dict[str, CursorStream], SharedPosition | None, dict[str, Outcome]]:
    """The streams that another tool's document has a place for, by their ids in this one; the position that they share;
    and what became of each stream."""
    outcomes: dict[str, Outcome] = {}
    streams: dict[str, CursorStream] = {}
    taken: dict[str, str] = {}
    for stream in document.streams:
        try:
            carried, notes = _carried(stream, document.tool, to)
            named = _named(carried, document.tool, namespace)
            holder = taken.setdefault(spec_of(to).id_of(named), stream.id)
            if holder != stream.id:
                raise _NotCarried(f"{to} would call it {spec_of(to).id_of(named)}, as it calls {holder}")
        except _NotCarried as why:
            outcomes[stream.id] = Outcome(stream.id, False, f"{why}: {to} reads it from its start")
            continue
        streams[stream.id] = named
        what = str(carried.position or ", ".join(f"{name} = {value}" for name, value in carried.cursors.items()))
        outcomes[stream.id] = Outcome(stream.id, True, what, tuple(notes))
    shared = _shared(list(streams.values())) if to == Tool.OLAKE else None
    for name, stream in list(streams.items()):
        if shared is not None and _is_shared(stream.position) and stream.position != shared.position:
            del streams[name]
            outcomes[name] = _left_behind(outcomes[name], shared)
    return streams, shared, outcomes


def _lost_on_the_way_back(before: CursorStream, back: CursorStream | None, fate: Outcome) -> Iterator[str]:
    """What of a stream would be missing or other if the new document were converted back."""
    if back is None:
        server = getattr(before.position, "server_id", None)
        yield f"the way back: left out, {fate.what}" + (f" (server_id is {server} here)" if server else "")
        return
    if back.id != before.id:
        yield f"the way back: it is called {back.id} then; `--namespace {before.namespace}` gives the name back"
    columns = {name: value for name, value in before.cursors.items() if value is not None}
    then = back._replace(id=before.id, namespace=before.namespace, name=before.name)
    if columns and not back.position:
        move = compare_streams(before.id, before._replace(position=None, cursors=columns, other=NO_CURSORS), then)
        if move.move is not Move.SAME:
            yield f"the way back: {move.reason}"


def _carried(stream: CursorStream, tool: str, to: str) -> tuple[CursorStream, list[str]]:
    """What of a stream carries over, and notes.

    Raises:
        _NotCarried: nothing does.
    """
    if stream.snapshot.status is SnapshotStatus.ABSENT and not stream.position and not any(stream.cursors.values()):
        raise _NotCarried("nothing of it was read yet")
    if stream.snapshot.status is not SnapshotStatus.FINISHED:
        left = len(stream.snapshot.chunks)
        more = f": {counted(left, 'chunk')} left" if left else ""
        raise _NotCarried(
            f"its snapshot is {stream.snapshot.status}{more}, and what is left of it has no place elsewhere"
        )
    notes = [f"left out: {', '.join(sorted(stream.other))}"] if stream.other else []
    if isinstance(stream.position, spec_of(to).positions):
        if to == Tool.OLAKE and isinstance(stream.position, BinlogPosition) and not stream.position.server_id:
            raise _NotCarried("OLake stops without the server_id under which the log is read, and it is not known")
        if isinstance(stream.position, PostgresLsn):
            notes.append(f"the replication slot that {to} reads must stand there, and not further")
        return stream._replace(snapshot=FINISHED, cursors=NO_CURSORS, other=NO_CURSORS), notes
    columns = {name: value for name, value in stream.cursors.items() if value is not None}
    if not columns:
        if stream.position is not None:
            raise _NotCarried(f"{to}'s documents have no place for {stream.position}")
        raise _NotCarried("it has no position")
    if any("[{" in name for name in columns):
        raise _NotCarried("each partition of it has a cursor of its own")
    most = spec_of(to).most_columns
    if len(columns) > most:
        raise _NotCarried(f"it has {len(columns)} cursors, {', '.join(columns)}, and {to} follows {most}")
    if any("." in name for name in columns) and not spec_of(to).takes_paths:
        raise _NotCarried(f"{', '.join(columns)} is no column, but a path into nested values")
    above, new_above = spec_of(tool).reads_above, spec_of(to).reads_above
    if above and not new_above:
        notes.append(f"{to} reads the rows at this value once more")
    if new_above and not above:
        notes.append(f"{to} reads above this value: rows at it that came after they were read are left out")
    if stream.position is not None:
        notes.append(f"left out: the log position {stream.position}")
    return stream._replace(snapshot=FINISHED, position=None, cursors=columns, other=NO_CURSORS), notes


def _named(stream: CursorStream, tool: str, namespace: str | None) -> CursorStream:
    """The stream under the names that the new tool knows it by, as far as these are known."""
    space, name = spec_of(tool).names_of(stream)
    space = space if namespace is None else namespace
    return stream._replace(id=f"{space}.{name}" if space else name, namespace=space, name=name, sync_mode="")


def _is_shared(position: LogPosition | None) -> bool:
    return isinstance(position, PostgresLsn | BinlogPosition)


def _shared(streams: list[CursorStream]) -> SharedPosition | None:
    """OLake's position for all streams: the earliest of theirs, so that no change is left out."""
    lsns = [stream.position for stream in streams if isinstance(stream.position, PostgresLsn)]
    logs = [stream.position for stream in streams if isinstance(stream.position, BinlogPosition)]
    position: LogPosition | None = None
    if lsns:
        position = min(lsns, key=lambda lsn: lsn.value)
    elif logs:
        position = min(logs, key=lambda binlog: (binlog.prefix, binlog.number, binlog.offset))
    if position is None:
        return None
    return SharedPosition(position, frozenset(stream.id for stream in streams if stream.position == position))


def _left_behind(outcome: Outcome, shared: SharedPosition) -> Outcome:
    text = f"OLake has one position for all streams, {shared.position}, and this one is at {outcome.what}"
    return Outcome(outcome.stream, False, f"{text}: {Tool.OLAKE} reads it from its start")
