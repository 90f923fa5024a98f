"""Looks into the cursor document that drives a node: how far its stream is, and whether that is a reason to run.

The document is another tool's, written in place while we look. A file that looks half written is read again; the last
good one that a commit was made under is kept beside the target.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import DrivingCursor
from odi_assets.connections.location import Location
from odi_assets.documents import CursorStream, Move, SnapshotStatus, Tool, compare_streams, inspect_bytes
from odi_assets.documents.codec import text_of
from odi_assets.documents.reading import ATTEMPTS, WAIT_SECONDS
from odi_assets.documents.values import compare_values
from odi_assets.errors import CursorDocumentError
from odi_assets.util.durable import write_file
from odi_assets.util.json_scan import read_strict
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.documents import Inspection

KEPT_FOLDER = "_odi_cursors"
"""Folder of the documents that commits were made under, in the table's own. Delta's vacuum leaves it alone."""
STRICT_CDC, FULL_REFRESH = "strict_cdc", "full_refresh"
_NUMBER = re.compile(r"-?\d+(\.\d+)?", flags=re.ASCII)
_MOST_DIGITS = 1000


@dataclass(frozen=True)
class DocumentLook:
    """What the document says of the stream now.

    Attributes:
        stream: None if the document does not have it.
        text: the document.
        has_snapshot: whether a first snapshot of the stream has to be finished.
        known: the streams that the document has; None if there is no document.
    """

    stream: CursorStream | None
    text: str
    has_snapshot: bool
    known: tuple[str, ...] | None


@dataclass(frozen=True)
class ReadDecision:
    """Whether a position is a reason to read, and why. A warning is for somebody to look at.

    Attributes:
        unordered: cursor columns of which nothing says whether they moved forward: the node would wait for ever.
    """

    starts: bool
    text: str
    warns: bool = False
    unordered: tuple[str, ...] = ()


def look(cursor: DrivingCursor, document: Location, catalog: Location | None, table: Location) -> DocumentLook:
    """The stream as the document has it now.

    Raises:
        CursorDocumentError: the document, or the catalog, cannot be read, or is wrong, also when read again.
    """
    inspection = _inspected(document)
    if inspection is None:
        return DocumentLook(None, "", cursor.snapshot != "none", None)
    if inspection.torn:
        raise _lost(inspection, table)
    read = inspection.require()
    stream = read.stream(cursor.stream)
    mode, types = (None, {}) if catalog is None else _catalog_entry(catalog, cursor.stream)
    if stream is not None:
        # A whole number that was written as text is one.
        numbers = [name for name, kinds in types.items() if any(kind.startswith("integer") for kind in kinds)]
        stream = with_numbers(stream, numbers)
    has_snapshot = cursor.snapshot != "none" and STRICT_CDC not in (mode, stream.sync_mode if stream else None)
    return DocumentLook(stream, read.text, has_snapshot, tuple(sorted(read.by_id)))


def judge(cursor: DrivingCursor, before: CursorStream | None, now: DocumentLook, document: str) -> ReadDecision:
    """Whether the stream moved forward from ``before`` and is complete there; None is a stream of which nothing was
    read yet."""
    name, stream = cursor.stream, now.stream
    if now.known is None:
        return ReadDecision(
            False, f"{document} is " + ("gone" if before else "not there yet"), warns=before is not None
        )
    if stream is None and not now.known:
        what = (
            f"{name} is gone from {document}, as is every other stream" if before else f"{document} has no stream yet"
        )
        return ReadDecision(False, what, warns=before is not None)
    if stream is None:
        close = get_close_matches(name, now.known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        gone = "is gone from" if before is not None else "is not in"
        return ReadDecision(False, f"{name} {gone} {document}{hint}", warns=True)
    move = compare_streams(name, before, stream)
    if before is not None and move.move is Move.SAME:
        return ReadDecision(False, f"{name} is at {text_of(stream)}, as before")
    if before is not None and move.move is not Move.FORWARD:
        verb = "went back" if move.move is Move.BACK else "cannot be compared with before"
        unordered = () if move.move is Move.BACK else tuple(_unordered(before, stream))
        return ReadDecision(False, f"{name} {verb}: {move.reason}", warns=True, unordered=unordered)
    snapshot = stream.snapshot
    if now.has_snapshot and snapshot.status is SnapshotStatus.ABSENT:
        text = f"{name}: its snapshot has not begun"
        if stream.position is not None:
            text += ", or it has none, which `catalog` or `snapshot: none` would tell"
        return ReadDecision(False, text)
    if now.has_snapshot and snapshot.status is SnapshotStatus.PENDING and not _chunk_done(cursor, before, stream):
        left = counted(len(snapshot.chunks), "chunk") if snapshot.chunks else "a part"
        return ReadDecision(False, f"{name}: its snapshot is not finished, {left} left")
    return ReadDecision(True, f"{name} is at {text_of(stream)}")


def _unordered(before: CursorStream, stream: CursorStream) -> Iterator[str]:
    """The cursor columns whose two values have no order."""
    for name in before.cursors.keys() & stream.cursors.keys():
        if compare_values(name, before.cursors[name], stream.cursors[name]).move is Move.INCOMPARABLE:
            yield name


def with_numbers(stream: CursorStream, numbers: Collection[str]) -> CursorStream:
    """The stream with numbers in the cursor columns ``numbers``, where it has them as texts; case does not count."""
    lowered = {name.lower() for name in numbers}
    cursors = {
        name: _number(value) if isinstance(value, str) and name.lower() in lowered else value
        for name, value in stream.cursors.items()
    }
    return stream if cursors == dict(stream.cursors) else stream._replace(cursors=cursors)


def _number(text: str) -> Any:
    if _NUMBER.fullmatch(text) is None or len(text) >= _MOST_DIGITS:
        return text
    return Decimal(text) if "." in text else int(text)


def _chunk_done(cursor: DrivingCursor, before: CursorStream | None, stream: CursorStream) -> bool:
    if cursor.snapshot != "chunks" or before is None:
        # At first it is not known which chunks are done: what there is may be read.
        return cursor.snapshot == "chunks"
    return bool(before.snapshot.chunks - stream.snapshot.chunks)


def keep(table: Location, cursor: DrivingCursor, text: str) -> None:
    """Keep a document beside a table, in the place of the one before it.

    Raises:
        OSError: the storage cannot be written.
    """
    location = _kept_place(table, cursor)
    if location.is_local:
        location.local_path.parent.mkdir(parents=True, exist_ok=True)
        write_file(location.local_path, text)
        return
    with location.open("wb") as stream:
        stream.write(text.encode("utf-8", errors="surrogatepass"))


def _kept_place(table: Location, cursor: DrivingCursor) -> Location:
    safe = "".join(
        character if character.isalnum() or character in "._-" else "_"
        for character in cursor.document.rpartition("/")[2]
    )
    return table.child(f"{KEPT_FOLDER}/{safe or 'state.json'}")


def _inspected(document: Location) -> Inspection | None:
    """What the document holds; None if there is none. One that looks half written is read again."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            raw = _bytes(document, "cursor document")
        except CursorDocumentError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        inspection = _inspect(raw, document.uri)
        if not inspection.torn or attempt == ATTEMPTS:
            break
        time.sleep(WAIT_SECONDS)
    return inspection


@lru_cache(maxsize=1)
def _inspect(raw: bytes, path: str) -> Inspection:
    # Cached, because a document drives many nodes, which a sensor looks at one after the other.
    # An empty object is a document of every tool: nothing was read yet.
    tool = Tool.OLAKE if raw.strip() == b"{}" else None
    return inspect_bytes(raw, tool=tool, path=path)


def _bytes(location: Location, what: str) -> bytes:
    try:
        with location.open("rb") as stream:
            return stream.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CursorDocumentError(
            f"the {what} {location.uri} cannot be read: {reason}",
            fix="check its path; the tool writes it at the end of its first sync",
            path=location.uri,
        ) from error


def _lost(inspection: Inspection, table: Location) -> CursorDocumentError:
    """The error of a document that is empty or torn however often it is read."""
    finding = inspection.findings[0]
    folder = table.child(KEPT_FOLDER)
    copies = sorted(folder.local_path.glob("*")) if folder.is_local and folder.local_path.is_dir() else []
    kept = (
        f"the last good one that we kept is {copies[0]}"
        if copies
        else "none was kept, for no commit was made under one"
    )
    return CursorDocumentError(
        f"{finding.path} is empty or torn ({finding.message.removeprefix('this is not JSON: ')})",
        fix=f"stop the tool and restore the document; {kept}",
        path=finding.path,
        torn=True,
        kept=str(copies[0]) if copies else None,
    )


def _catalog_entry(catalog: Location, stream_id: str) -> tuple[str | None, dict[str, frozenset[str]]]:
    """The sync mode of a stream in OLake's ``streams.json``, and the types of its columns.

    Raises:
        CursorDocumentError: it is no such catalog, or does not have the stream, or one that keeps no state.
    """
    try:
        content = read_strict(_bytes(catalog, "catalog").decode("utf-8"))
        entries = [entry["stream"] for entry in content["streams"]]
        stream = next((entry for entry in entries if _id(entry) == stream_id), None)
    except (ValueError, ArithmeticError, RecursionError, KeyError, TypeError) as error:
        raise CursorDocumentError(
            f"{catalog.uri} is no catalog of OLake: {error}",
            fix="give the streams.json that `olake discover` wrote",
            path=catalog.uri,
        ) from error
    if stream is None:
        raise CursorDocumentError(
            f"{catalog.uri} has no stream {stream_id}",
            fix=f"it has {', '.join(sorted(map(_id, entries))[:10])}",
            path=catalog.uri,
        )
    mode = stream.get("sync_mode")
    if mode == FULL_REFRESH:
        raise CursorDocumentError(
            f"{stream_id} is synced by full_refresh, of which OLake keeps no state",
            fix="remove `cursor` from the node, or sync the stream by cdc or incremental",
            path=catalog.uri,
        )
    return mode if isinstance(mode, str) else None, _column_types(stream)


def _id(stream: Mapping[str, Any]) -> str:
    namespace = stream.get("namespace")
    return f"{namespace}.{stream['name']}" if namespace else str(stream["name"])


def _column_types(stream: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    schema = stream.get("type_schema")
    columns = schema.get("properties") if isinstance(schema, dict) else None
    types: dict[str, frozenset[str]] = {}
    for name, column in columns.items() if isinstance(columns, dict) else ():
        kinds = column.get("type") if isinstance(column, dict) else None
        types[name] = (
            frozenset(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else frozenset()
        )
    return types
