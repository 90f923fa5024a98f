"""Reads ``state.json`` of OLake (https://olake.io) and checks what OLake itself does not.

Shapes: those of OLake's documentation for MongoDB, PostgreSQL and MySQL, and those its versions up to 0.9.4 write.
A fault that OLake would take in silence for "nothing was read yet" is an error here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from odi_assets.cursors.model import CursorDocument, CursorStream, SharedPosition, Snapshot, SnapshotStatus, StateType
from odi_assets.cursors.olake_state import (
    kind_of,
    read_cursors,
    read_shared_position,
    read_snapshot,
    read_stream_position,
)
from odi_assets.cursors.problems import DocumentProblem, Problems, document_error
from odi_assets.errors import CursorDocumentError
from odi_assets.util.exact_json import JsonPath, JsonSyntaxError, faults, read

TOOL = "OLake"

_TYPES = ", ".join(StateType)


def load_olake(path: str | Path) -> CursorDocument:
    """The document in a file; see :func:`parse_olake`.

    Raises:
        CursorDocumentError: there is no such file, it is not UTF-8, or its document is wrong.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise CursorDocumentError(
            f"{path}: this {TOOL} document cannot be read: {error.strerror}",
            fix="check the path; OLake writes the file at the end of its first sync",
            path=str(path),
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise _unreadable(
            str(path), line, column, f"the byte 0x{error.object[error.start]:02x} is not UTF-8"
        ) from error
    return parse_olake(text, path=path)


def parse_olake(text: str, *, path: str | Path | None = None) -> CursorDocument:
    """The document in a text. ``path`` is where it came from, for messages.

    Raises:
        CursorDocumentError: it is not JSON, or not a state document. ``problems`` lists every fault with line,
            column, key and remedy; ``path``, ``line``, ``column`` and ``key`` are those of the first.
    """
    where = None if path is None else str(path)
    try:
        content = read(text)
    except JsonSyntaxError as error:
        raise _unreadable(where or "<text>", error.line, error.column, f"this is not JSON: {error}") from error
    problems = Problems(TOOL, text, where)
    for key, fault, remedy in faults(content):
        problems.add(key, fault, remedy)
    document = _read_document(content, where, problems)
    problems.raise_if_any()
    return document


def _unreadable(path: str, line: int, column: int, fault: str) -> CursorDocumentError:
    remedy = (
        "OLake rewrites the file in place, so a reader can meet half of it: read again when no sync runs; "
        "if it stays, restore a copy"
    )
    return document_error(TOOL, (DocumentProblem(path, line, column, "", fault, remedy),))


def _read_document(content: Any, path: str | None, problems: Problems) -> CursorDocument:
    if not isinstance(content, dict):
        problems.add((), f"must be an object, but is {kind_of(content)}", "give the state.json that OLake wrote")
        problems.raise_if_any()
    state_type = _read_type(content, problems)
    version = content.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        problems.add(
            ("version",), f"must be a whole number, 0 or more, but is {kind_of(version)}", "remove it or fix it"
        )
        version = 0
    shared = _read_shared(content.get("global"), problems)
    streams = _read_streams(content.get("streams"), state_type, shared, problems)
    return CursorDocument(TOOL, state_type, version, streams, shared, content, path)


def _read_type(content: Mapping[str, Any], problems: Problems) -> StateType:
    value = content.get("type")
    if isinstance(value, str) and value in set(StateType):
        return StateType(value)
    fault = "is missing" if "type" not in content else f"must be one of {_TYPES}, but is {value!r}"
    problems.add(("type",), fault, 'write "STREAM", or "GLOBAL" if the document has positions in `global` only')
    return StateType.STREAM


def _read_shared(value: Any, problems: Problems) -> SharedPosition | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.add(("global",), f"must be an object, but is {kind_of(value)}", "remove it, or restore it from a copy")
        return None
    names = value.get("streams")
    if names is not None and not isinstance(names, list):
        problems.add(
            ("global", "streams"), f"must be a list, but is {kind_of(names)}", "list the streams as namespace.name"
        )
        names = None
    for index, name in enumerate(names or ()):
        if not isinstance(name, str):
            problems.add(
                ("global", "streams", index),
                f"must be a text, but is {kind_of(name)}",
                "write namespace.name, or remove it",
            )
    position = read_shared_position(value, ("global",), problems)
    return SharedPosition(position, None if names is None else frozenset(n for n in names if isinstance(n, str)))


def _read_streams(
    value: Any, state_type: StateType, shared: SharedPosition | None, problems: Problems
) -> tuple[CursorStream, ...]:
    if value is not None and not isinstance(value, list):
        problems.add(("streams",), f"must be a list, but is {kind_of(value)}", "write a list of stream objects, or []")
        value = None
    streams: dict[str, CursorStream] = {}
    for index, item in enumerate(value or ()):
        at: JsonPath = ("streams", index)
        stream = _read_stream(item, at, state_type, shared, problems)
        if stream is None:
            continue
        if stream.id in streams:
            problems.add(
                at, f"the stream {stream.id} is given more than once", "keep the entry with the right position"
            )
        streams[stream.id] = stream
    for name in (shared.streams or frozenset()) - streams.keys() if shared else ():
        namespace, _, table = name.rpartition(".") if name.count(".") == 1 else ("", "", name)
        streams[name] = _with_shared(
            CursorStream(name, namespace, table, "", Snapshot(SnapshotStatus.ABSENT)), state_type, shared
        )
    return tuple(streams[name] for name in sorted(streams))


def _read_stream(
    item: Any, at: JsonPath, state_type: StateType, shared: SharedPosition | None, problems: Problems
) -> CursorStream | None:
    if not isinstance(item, dict):
        problems.add(
            at,
            f"must be an object, but is {kind_of(item)}, on which OLake fails",
            "remove it, or write the stream's state",
        )
        return None
    texts = {key: "" if item.get(key) is None else item[key] for key in ("stream", "namespace", "sync_mode")}
    for key, value in texts.items():
        if not isinstance(value, str):
            problems.add((*at, key), f"must be a text, but is {kind_of(value)}", "write a text")
            return None
    if not texts["stream"]:
        problems.add((*at, "stream"), "is missing or empty", "write the name of the table or collection")
        return None
    state = item.get("state")
    if not isinstance(state, dict):
        fault = "is missing" if "state" not in item else f"must be an object, but is {kind_of(state)}"
        problems.add(
            (*at, "state"),
            f"{fault}: OLake would read the stream from its start",
            "restore it, or write {} to mean that",
        )
        return None
    position, position_keys = read_stream_position(state, (*at, "state"), problems)
    stream = CursorStream(
        id=f"{texts['namespace']}.{texts['stream']}" if texts["namespace"] else texts["stream"],
        namespace=texts["namespace"],
        name=texts["stream"],
        sync_mode=texts["sync_mode"],
        snapshot=read_snapshot(state, (*at, "state"), problems),
        position=position,
        cursors=read_cursors(state, position_keys | {"chunks"}),
    )
    return _with_shared(stream, state_type, shared)


def _with_shared(stream: CursorStream, state_type: StateType, shared: SharedPosition | None) -> CursorStream:
    """The stream with what ``global`` says of it: its position, and under GLOBAL that its snapshot is finished."""
    if shared is None:
        return stream
    listed = shared.streams is not None and stream.id in shared.streams
    counts = listed or (shared.streams is None and not stream.cursors)
    snapshot = stream.snapshot
    if listed and state_type is StateType.GLOBAL and snapshot.status is SnapshotStatus.ABSENT:
        snapshot = Snapshot(SnapshotStatus.FINISHED)
    return replace(stream, snapshot=snapshot, position=stream.position or (shared.position if counts else None))
