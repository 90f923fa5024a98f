"""Writes state messages of Airbyte, and finds the places of a stream in a document that is there."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from odi_assets.documents.airbyte.read import places
from odi_assets.documents.airbyte.state import cursor_leaves
from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition
from odi_assets.util.exact_json import JsonPath, plain, value_at, write


def text_of(streams: Iterable[CursorStream], shared: SharedPosition | None = None) -> str:
    """A list of STREAM states, as a connector takes them with ``--state``: a cursor column and its value in each."""
    del shared
    return write([{"type": "STREAM", "stream": entry(stream)} for stream in streams])


def entry(stream: CursorStream) -> dict[str, Any]:
    """The state of one stream, as Airbyte's database sources keep it."""
    descriptor = {"name": stream.name} | ({"namespace": stream.namespace} if stream.namespace else {})
    ((column, value),) = stream.cursors.items()
    state = {
        "version": 2,
        "state_type": "cursor_based",
        "stream_name": stream.name,
        "stream_namespace": stream.namespace,
        "cursor_field": [column],
        # These sources keep every cursor as a text, whatever its type.
        "cursor": value if value is None or isinstance(value, str) else str(value),
    }
    return {"stream_descriptor": descriptor, "stream_state": state}


def state_places(document: CursorDocument) -> dict[str, list[JsonPath]]:
    """Where the state of each stream is, by its id; every place of it, in messages one after another."""
    paths_by_stream: dict[str, list[JsonPath]] = {}
    for place in places(document.content, document.form):
        paths_by_stream.setdefault(place.stream, []).append(place.at)
    return paths_by_stream


def settable(document: CursorDocument, stream_id: str) -> dict[str, list[JsonPath]]:
    """Where the value of each cursor of a stream is."""
    paths_by_cursor: dict[str, list[JsonPath]] = {}
    for at in state_places(document).get(stream_id, []):
        state = value_at(document.content, at)
        for leaf in cursor_leaves(state) if isinstance(state, dict) else ():
            if not isinstance(leaf.value, dict | list | bool) and leaf.at[-1] in value_at(state, leaf.at[:-1]):
                paths_by_cursor.setdefault(leaf.name, []).append((*at, *leaf.at))
    return paths_by_cursor


def removals(document: CursorDocument, stream_id: str) -> list[JsonPath]:
    """The members and elements to take out, so that Airbyte reads the stream from its start."""
    return [place.whole for place in places(document.content, document.form) if place.stream == stream_id]


def encoded(value: str | int | Decimal | bool | None, before: Any) -> Any:
    """A cursor's value as this document writes it."""
    if isinstance(value, Decimal) and isinstance(before, str):
        return plain(value)
    return str(value) if isinstance(before, str) and value is not None else value
