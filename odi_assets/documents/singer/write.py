"""Writes Singer bookmarks, and finds the places of a stream in a document that is there."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition
from odi_assets.documents.positions import BinlogPosition, PostgresLsn
from odi_assets.documents.singer.read import POSITION_KEYS, cursor_leaves, marks
from odi_assets.util.exact_json import JsonPath, value_at, write


def text_of(streams: Iterable[CursorStream], shared: SharedPosition | None = None) -> str:
    """A state with a bookmark for each stream."""
    del shared
    return write({"bookmarks": {stream_id(stream): entry(stream) for stream in streams}, "currently_syncing": None})


def stream_id(stream: CursorStream) -> str:
    """A stream's id as taps of databases build it: ``public-orders``."""
    return f"{stream.namespace}-{stream.name}" if stream.namespace else stream.name


def entry(stream: CursorStream) -> dict[str, Any]:
    """The bookmark of one stream."""
    position = stream.position
    if isinstance(position, PostgresLsn):
        return {"last_replication_method": "LOG_BASED", "lsn": position.value}
    if isinstance(position, BinlogPosition):
        return {"last_replication_method": "LOG_BASED", "log_file": position.file, "log_pos": position.offset}
    ((column, value),) = stream.cursors.items()
    return {"replication_key": column, "replication_key_value": value}


def state_places(document: CursorDocument) -> dict[str, list[JsonPath]]:
    """Where the bookmark of each stream is, by its id; in each part of Meltano's state."""
    paths_by_stream: dict[str, list[JsonPath]] = {}
    for name, _, at in marks(document.content, document.form):
        paths_by_stream.setdefault(name, []).append(at)
    return paths_by_stream


def cursor_places(document: CursorDocument, name: str) -> dict[str, list[JsonPath]]:
    """Where the value of each cursor of a stream is."""
    paths_by_cursor: dict[str, list[JsonPath]] = {}
    for at in state_places(document).get(name, []):
        mark = value_at(document.content, at)
        if not isinstance(mark, dict):
            paths_by_cursor.setdefault("bookmark", []).append(at)
            continue
        for leaf in cursor_leaves(mark):
            if not isinstance(leaf.value, dict | list | bool) and leaf.at[-1] in value_at(mark, leaf.at[:-1]):
                paths_by_cursor.setdefault(leaf.name, []).append((*at, *leaf.at))
    stream = document.stream(name)
    return {column: at for column, at in paths_by_cursor.items() if stream is not None and column in stream.cursors}


def settable(document: CursorDocument, name: str) -> dict[str, list[JsonPath]]:
    """Where the values are that can be set: of cursors, and of the position in the log."""
    paths_by_name = cursor_places(document, name)
    for at in state_places(document).get(name, []):
        mark = value_at(document.content, at)
        for key in POSITION_KEYS & mark.keys() if isinstance(mark, dict) else ():
            paths_by_name.setdefault(key, []).append((*at, key))
    return paths_by_name


def removals(document: CursorDocument, name: str) -> list[JsonPath]:
    """The members to take out, so that the tap reads the stream from its start."""
    return state_places(document).get(name, [])


def encoded(value: str | int | Decimal | bool | None, before: Any) -> Any:
    """A cursor's value as this document writes it."""
    del before
    return value
