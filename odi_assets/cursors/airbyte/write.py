"""Writes state messages of Airbyte, and finds the places of a stream in a document that is there."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from odi_assets.cursors.airbyte.read import places
from odi_assets.cursors.model import CursorDocument, CursorStream, SharedPosition
from odi_assets.util.exact_json import JsonPath, write


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
    found: dict[str, list[JsonPath]] = {}
    for place in places(document.content, document.form):
        named = place.descriptor.get(place.names.descriptor) or {}
        namespace, name = named.get("namespace"), named.get("name")
        if place.names.state in place.descriptor:
            stream_id = f"{namespace}.{name}" if namespace else str(name)
            found.setdefault(stream_id, []).append((*place.at, place.names.state))
    return found


def cursor_places(document: CursorDocument, stream_id: str) -> dict[str, list[JsonPath]]:
    """Where the value of each cursor column of a stream is."""
    found: dict[str, list[JsonPath]] = {}
    for at in state_places(document).get(stream_id, []):
        state = _value(document.content, at)
        if not isinstance(state, dict):
            continue
        if isinstance(state.get("incremental_state"), dict):
            at, state = (*at, "incremental_state"), state["incremental_state"]
        columns = state.get("cursor_field")
        if isinstance(columns, list) and columns and "cursor" in state:
            found.setdefault(".".join(map(str, columns)), []).append((*at, "cursor"))
            continue
        if isinstance(state.get("cursors"), dict):
            at, state = (*at, "cursors"), state["cursors"]
        for key, value in state.items():
            if not isinstance(value, dict | list):
                found.setdefault(key, []).append((*at, key))
    stream = document.stream(stream_id)
    return {name: at for name, at in found.items() if stream is not None and name in stream.cursors}


def removals(document: CursorDocument, stream_id: str) -> list[JsonPath]:
    """The members and elements to take out, so that Airbyte reads the stream from its start."""
    # Of an element of a list all goes; of a message that stands for itself only the state does.
    found = state_places(document).get(stream_id, [])
    return [at[:-1] if isinstance(at[-2], int) else at for at in found if len(at) > 1]


def encoded(value: str | int | Decimal | bool | None, before: Any) -> Any:
    """A cursor's value as this document writes it."""
    return str(value) if isinstance(before, str) and value is not None else value


def _value(content: Any, at: JsonPath) -> Any:
    for step in at:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            return None
    return content
