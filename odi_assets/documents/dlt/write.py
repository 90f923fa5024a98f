"""Writes the state of a dlt pipeline, and finds the places of a resource in a document that is there."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from odi_assets.documents.dlt.read import DATE, DATETIME, DECIMAL, MARKS, places
from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition
from odi_assets.util.exact_json import JsonPath, plain, write

SOURCE = "source"
"""The source of streams without a namespace."""


def text_of(streams: Iterable[CursorStream], shared: SharedPosition | None = None) -> str:
    """The state of a pipeline whose sources are the namespaces, as dlt takes it for its first run."""
    del shared
    sources: dict[str, Any] = {}
    for stream in streams:
        resources = sources.setdefault(stream.namespace or SOURCE, {"resources": {}})["resources"]
        resources[stream.name] = {"incremental": {column: entry(value) for column, value in stream.cursors.items()}}
    return write({"_state_version": 1, "_state_engine_version": 4, "sources": sources})


def entry(value: str | int | Decimal | bool | None) -> dict[str, Any]:
    """The state of one cursor. No hashes: rows at the cursor that come are loaded."""
    return {"initial_value": None, "last_value": typed(value), "unique_hashes": []}


def typed(value: str | int | Decimal | bool | None) -> Any:
    """A value with the mark of its type: dlt's resources of databases compare times with times, not with texts."""
    if isinstance(value, Decimal):
        return f"{DECIMAL}{plain(value)}"
    if not isinstance(value, str):
        return value
    for mark, kind in ((DATE, date), (DATETIME, datetime)):
        try:
            return f"{mark}{kind.fromisoformat(value).isoformat()}"
        except ValueError:
            continue
    return value


def state_places(document: CursorDocument) -> dict[str, list[JsonPath]]:
    """Where the state of each resource is, by its id."""
    return {
        f"{source}.{resource}": [("sources", source, "resources", resource)]
        for source, state in (document.content.get("sources") or {}).items()
        for resource in state.get("resources") or {}
    }


def settable(document: CursorDocument, stream_id: str) -> dict[str, list[JsonPath]]:
    """Where the value of each cursor of a resource is."""
    return {
        place.column: [(*place.at, "last_value")] for place in places(document.content) if place.stream == stream_id
    }


def removals(document: CursorDocument, stream_id: str) -> list[JsonPath]:
    """The members to take out, so that dlt reads the resource from its start."""
    return state_places(document).get(stream_id, [])


def encoded(value: str | int | Decimal | bool | None, before: Any) -> Any:
    """A cursor's value as this document writes it: with the mark of the type that it had before."""
    if isinstance(before, str) and before[:1] in MARKS and not isinstance(value, bool | None):
        text = plain(value) if isinstance(value, Decimal) else str(value)
        return text if text[:1] == before[0] else f"{before[0]}{text}"
    return value
