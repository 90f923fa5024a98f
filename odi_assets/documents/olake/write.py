"""Writes ``state.json`` as OLake 0.9.4 does: one line, the log position in ``global``, everything else by stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition, SnapshotStatus, StateType
from odi_assets.documents.olake.read import LATEST_VERSION
from odi_assets.documents.positions import (
    BinlogPosition,
    ConsumerGroup,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.util.exact_json import JsonPath, value_at, write
from odi_assets.util.json_scan import read_strict


def text_of(
    streams: Iterable[CursorStream], shared: SharedPosition | None = None, *, version: int = LATEST_VERSION
) -> str:
    """The document of these streams.

    Args:
        streams: those that have no state but the shared position are named in ``global`` alone.
        shared: what they share; None if no stream reads a log that is.

    Raises:
        ValueError: OLake has no place for a position.
    """
    content: dict[str, Any] = {"type": StateType.STREAM.value, "version": version}
    if shared is not None:
        state = {} if shared.position is None else shared_state(shared.position)
        content["global"] = {"state": state, "streams": sorted(shared.streams or ())}
    entries = [entry(stream, shared) for stream in streams]
    content["streams"] = [stream_entry for stream_entry in entries if stream_entry["state"]]
    return write(content)


def entry(stream: CursorStream, shared: SharedPosition | None = None) -> dict[str, Any]:
    """One element of ``streams``; its members are in the order that OLake has them.

    Raises:
        ValueError: OLake has no place for its position.
    """
    state: dict[str, Any] = dict(stream.cursors) | {key: read_strict(text) for key, text in stream.other.items()}
    if stream.snapshot.status is not SnapshotStatus.ABSENT:
        state["chunks"] = [
            {"min": read_strict(chunk.min), "max": read_strict(chunk.max)} for chunk in sorted(stream.snapshot.chunks)
        ]
    if stream.position is not None and (shared is None or stream.position != shared.position):
        state |= _own_position(stream.position)
    return {
        "stream": stream.name,
        "namespace": stream.namespace,
        "sync_mode": stream.sync_mode,
        "state": dict(sorted(state.items())),
    }


def _own_position(position: LogPosition) -> Mapping[str, Any]:
    if isinstance(position, ResumeToken):
        return {"_data": position.digits}
    if isinstance(position, SqlServerLsn):
        return {"lsn": position.digits}
    if isinstance(position, BinlogPosition):
        server = {} if position.server_id is None else {"server_id": position.server_id}
        return {"binlog_file": position.file, "binlog_position": position.offset, **server}
    raise ValueError(f"OLake keeps a position such as {position} for all streams in one place, and not with a stream")


def shared_state(position: LogPosition) -> Mapping[str, Any]:
    """``global.state`` for a position that streams share.

    Raises:
        ValueError: it is one that OLake keeps with each stream, or it lacks the server id that OLake needs.
    """
    if isinstance(position, PostgresLsn):
        return {"lsn": str(position)}
    if isinstance(position, BinlogPosition):
        if position.server_id is None:
            raise ValueError("OLake stops without the server_id under which the log is read")
        return {
            "server_id": position.server_id,
            "state": {"position": {"Name": position.file, "Pos": position.offset}},
        }
    if isinstance(position, ConsumerGroup):
        return {"consumer_group_id": position.group_id}
    if isinstance(position, UnknownPosition):
        content = read_strict(position.json)
        return dict(content.get("state") or {}) if isinstance(content, dict) else {}
    raise ValueError(f"OLake keeps a position such as {position} with each stream")


# -- editing a document that is there ----------------------------------------------------------------------------------


def state_places(document: CursorDocument) -> dict[str, list[JsonPath]]:
    """Where the state of each stream is, by its id."""
    paths_by_stream: dict[str, list[JsonPath]] = {}
    for index, item in enumerate(document.content.get("streams") or ()):
        namespace = item.get("namespace")
        name = f"{namespace}.{item['stream']}" if namespace else item["stream"]
        paths_by_stream.setdefault(name, []).append(("streams", index, "state"))
    return paths_by_stream


def settable(document: CursorDocument, stream_id: str) -> dict[str, list[JsonPath]]:
    """Where the values are that can be set: every member of a stream's state."""
    places = state_places(document).get(stream_id, [])
    return {key: [(*at, key)] for at in places for key in value_at(document.content, at)}


def removals(document: CursorDocument, stream_id: str) -> list[JsonPath]:
    """The members and elements to take out, so that OLake reads the stream from its start."""
    paths: list[JsonPath] = [at[:-1] for at in state_places(document).get(stream_id, [])]
    shared = document.content.get("global")
    names = shared.get("streams") if isinstance(shared, dict) else None
    return paths + [("global", "streams", index) for index, name in enumerate(names or ()) if name == stream_id]


def encoded(value: str | int | Decimal | bool | None, before: Any) -> Any:
    """A cursor's value as this document writes it."""
    del before
    return value
