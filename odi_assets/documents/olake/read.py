"""Reads ``state.json`` of OLake (https://olake.io) and checks what OLake itself does not.

Shapes: from OLake's documentation for MongoDB, PostgreSQL and MySQL, and from what its versions up to 0.9.4 write. What
OLake would take in silence for "nothing was read yet" is an error here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import (
    ABSENT,
    FINISHED,
    CursorDocument,
    CursorStream,
    SharedPosition,
    SnapshotStatus,
    StateType,
    Tool,
)
from odi_assets.documents.olake.state import POSITION_KEYS, read_columns, read_shared_position, read_snapshot
from odi_assets.documents.olake.state import read_stream_position as read_position
from odi_assets.documents.values import kind_of, shown
from odi_assets.util.exact_json import JsonPath

LATEST_VERSION = 7
"""The greatest ``version`` that OLake 0.9.4 writes."""
SYNC_MODES = frozenset({"", "full_refresh", "incremental", "cdc", "strict_cdc"})

_TYPES = frozenset({StateType.STREAM, StateType.GLOBAL, StateType.MIXED})
_KEYS = frozenset({"type", "version", "global", "streams"})
_GLOBAL_KEYS = frozenset({"state", "streams", "server_id"})
_STREAM_KEYS = frozenset({"stream", "namespace", "sync_mode", "state"})

_NOT_OLAKE = frozenset(
    {"stream", "data", "bookmarks", "sources", "value", "singer_state", "streamState", "stateType", "cdc"}
)
"""Keys that documents of other tools have beside OLake's keys."""
_NOT_SHARED = frozenset({"shared_state", "stream_states", "sharedState", "streamStates"})
"""Keys that other tools have in `global`."""
_CATALOG = "selected_streams"
"""What only OLake's catalog has, `streams.json`, and not its state."""


def form_of(content: Any) -> str | None:
    """``state`` if this looks like OLake's document, else None."""
    if not isinstance(content, dict):
        return None
    shared = content.get("global")
    if isinstance(shared, dict) and shared:
        own = bool(shared.keys() & _GLOBAL_KEYS) or "streams" in content
        return "state" if own and not shared.keys() & _NOT_SHARED else None
    own = "streams" in content or isinstance(content.get("version"), int)
    # Without `global`, a document of type GLOBAL holds nothing, whoever wrote it.
    own = own or content.get("type") in (StateType.GLOBAL, StateType.MIXED)
    return "state" if own and not content.keys() & _NOT_OLAKE else None


def read(content: Any, findings: Findings) -> CursorDocument | None:
    """The document of a JSON value; None if there is none to be seen in it. What is wrong goes to ``findings``."""
    if not isinstance(content, dict):
        findings.add((), f"must be an object, but is {kind_of(content)}", "give the state.json that OLake wrote")
        return None
    if _CATALOG in content:
        findings.add(
            (_CATALOG,), "is a key of OLake's catalog, streams.json, and not of its state", "give its state.json"
        )
        return None
    findings.of_keys((), content, _KEYS)
    state_type = _read_type(content, findings)
    version = _read_version(content, findings)
    shared = _read_shared(content, state_type, findings)
    streams = _read_streams(content, state_type, shared, findings)
    return CursorDocument(Tool.OLAKE, state_type, version, streams, shared, content)


def _read_type(content: Mapping[str, Any], findings: Findings) -> StateType:
    value = content.get("type")
    if isinstance(value, str) and value in _TYPES:
        return StateType(value)
    if "type" not in content and "global" not in content and "streams" not in content:
        # OLake begins with such a document: {"version": 7}.
        return StateType.STREAM
    named = ", ".join(sorted(_TYPES))
    fault = "is missing" if "type" not in content else f"must be one of {named}, but is {shown(value)}"
    findings.add(("type",), fault, 'write "STREAM", or "GLOBAL" if the document has positions in `global` only')
    return StateType.STREAM


def _read_version(content: Mapping[str, Any], findings: Findings) -> int:
    value = content.get("version", 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        what = value if isinstance(value, int) and not isinstance(value, bool) else kind_of(value)
        findings.add(("version",), f"must be a whole number, 0 or more, but is {what}", "remove it or correct it")
        return 0
    if value > LATEST_VERSION:
        findings.add(
            ("version",),
            f"is {value}, a version of the future: OLake 0.9.4 writes at most {LATEST_VERSION}, and what is meant by "
            "the positions may have changed",
            "use an odi_assets that knows it, or restore the document that OLake up to 0.9.4 wrote",
        )
    return value


def _read_shared(content: Mapping[str, Any], state_type: StateType, findings: Findings) -> SharedPosition | None:
    value = content.get("global")
    if value is None:
        what = "is null" if "global" in content else "is missing"
        if state_type is StateType.GLOBAL:
            text = f"{what}, and a document of type GLOBAL keeps its positions there: OLake reads every stream again"
            findings.add(("global",), text, "restore it from a copy")
        elif "global" in content:
            findings.warn(("global",), "is null, where OLake writes no `global` at all", "remove it")
        return None
    if not isinstance(value, dict):
        findings.add(("global",), f"must be an object, but is {kind_of(value)}", "remove it, or restore it from a copy")
        return None
    findings.of_keys(("global",), value, _GLOBAL_KEYS)
    names = value.get("streams")
    if names is None:
        text = "is missing: OLake does not know whose snapshots are finished, and reads them again"
        findings.warn(("global", "streams"), text, "list the streams as namespace.name")
    elif not isinstance(names, list):
        findings.add(
            ("global", "streams"), f"must be a list, but is {kind_of(names)}", "list the streams as namespace.name"
        )
        names = None
    seen: set[str] = set()
    for index, name in enumerate(names or ()):
        if not isinstance(name, str) or not name:
            findings.add(
                ("global", "streams", index),
                f"must be a text, but is {kind_of(name) if name != '' else 'empty'}",
                "write namespace.name, or remove it",
            )
        elif name in seen:
            findings.warn(("global", "streams", index), f"the stream {name} is listed more than once", "remove it")
        else:
            seen.add(name)
    position = read_shared_position(value, ("global",), findings)
    return SharedPosition(position, None if names is None else frozenset(seen))


def _read_streams(
    content: Mapping[str, Any], state_type: StateType, shared: SharedPosition | None, findings: Findings
) -> tuple[CursorStream, ...]:
    value = content.get("streams")
    if value is None:
        if "streams" in content:
            findings.warn(("streams",), "is null: OLake has no position of any stream", "write [] if that is meant")
        value = []
    elif not isinstance(value, list):
        findings.add(("streams",), f"must be a list, but is {kind_of(value)}", "write a list of stream objects, or []")
        value = []
    streams: dict[str, CursorStream] = {}
    for index, item in enumerate(value):
        stream = _read_stream(item, index, state_type, shared, findings)
        if stream is None:
            continue
        if stream.id in streams:
            text = f"the stream {stream.id} is given more than once"
            findings.add(("streams", index), text, "keep the entry with the right position")
        streams[stream.id] = stream
    for name in (shared.streams or frozenset()) - streams.keys() if shared else ():
        namespace, _, table = name.rpartition(".") if name.count(".") == 1 else ("", "", name)
        streams[name] = _with_shared(CursorStream(name, namespace, table, "", ABSENT), state_type, shared)
    return tuple(streams[name] for name in sorted(streams))


def _read_stream(
    item: Any, index: int, state_type: StateType, shared: SharedPosition | None, findings: Findings
) -> CursorStream | None:
    at: JsonPath = ("streams", index)
    if not isinstance(item, dict):
        text = f"must be an object, but is {kind_of(item)}, on which OLake fails"
        findings.add(at, text, "remove it, or write the stream's state")
        return None
    if item.keys() != _STREAM_KEYS:
        findings.of_keys(at, item, _STREAM_KEYS)
    name, namespace, mode, state = item.get("stream"), item.get("namespace"), item.get("sync_mode"), item.get("state")
    if type(name) is not str or type(namespace) is not str or type(mode) is not str:
        for key, value in (("stream", name), ("namespace", namespace), ("sync_mode", mode)):
            if value is not None and not isinstance(value, str):
                findings.add((*at, key), f"must be a text, but is {kind_of(value)}", "write a text")
                return None
    if not name:
        findings.add((*at, "stream"), "is missing or empty", "write the name of the table or collection")
        return None
    if mode and mode not in SYNC_MODES:
        known = ", ".join(sorted(SYNC_MODES - {""}))
        text = f"must be one of {known}, or empty, but is {shown(mode)}"
        findings.add((*at, "sync_mode"), text, "leave it empty, as OLake does, or correct it")
    if not isinstance(state, dict):
        fault = "is missing" if "state" not in item else f"must be an object, but is {kind_of(state)}"
        text = f"{fault}: OLake would read the stream from its start"
        findings.add((*at, "state"), text, "restore it, or write {} to mean that")
        return None
    at = (*at, "state")
    position = None if POSITION_KEYS.isdisjoint(state) else read_position(state, at, findings)
    snapshot = read_snapshot(state, at, findings)
    cursors, other = read_columns(state, at, findings)
    stream_id = f"{namespace}.{name}" if namespace else name
    stream = CursorStream(stream_id, namespace or "", name, mode or "", snapshot, position, cursors, other)
    if shared is None:
        return stream
    if snapshot.chunks and shared.streams and stream_id in shared.streams:
        _note_contradiction(stream, state_type, at, findings)
    return _with_shared(stream, state_type, shared)


def _note_contradiction(stream: CursorStream, state_type: StateType, at: JsonPath, findings: Findings) -> None:
    # HasCompletedBackfill of OLake 0.9.4: under GLOBAL the list in `global` decides, otherwise the chunks do.
    left = len(stream.snapshot.chunks)
    if state_type is StateType.GLOBAL:
        text = f"has {left} chunks left, and `global.streams` lists {stream.id}: OLake takes the snapshot for finished"
        findings.add((*at, "chunks"), text, "take it out of `global.streams`, or write [] if the chunks are read")
    else:
        text = f"has {left} chunks left, and `global.streams` lists {stream.id} as finished"
        findings.warn((*at, "chunks"), text, "the chunks count: check that they are still to be read")


def _with_shared(stream: CursorStream, state_type: StateType, shared: SharedPosition | None) -> CursorStream:
    """The stream with what ``global`` says of it: its position, and under GLOBAL that its snapshot is finished."""
    if shared is None:
        return stream
    listed = shared.streams is not None and stream.id in shared.streams
    counts = listed or (shared.streams is None and not stream.cursors)
    snapshot = stream.snapshot
    if listed and state_type is StateType.GLOBAL and snapshot.status is SnapshotStatus.ABSENT:
        snapshot = FINISHED
    position = stream.position or (shared.position if counts else None)
    if snapshot is stream.snapshot and position is stream.position:
        return stream
    return stream._replace(snapshot=snapshot, position=position)
