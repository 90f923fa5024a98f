"""OLake, as one of the tools whose documents are known."""

from __future__ import annotations

from typing import Any

from odi_assets.documents.canonical import as_set
from odi_assets.documents.model import CursorDocument, Tool
from odi_assets.documents.olake import write
from odi_assets.documents.olake.read import form_of, read
from odi_assets.documents.positions import BinlogPosition, PostgresLsn, ResumeToken, SqlServerLsn
from odi_assets.documents.tools import ToolSpec


def _with_sorted_sets(document: CursorDocument) -> Any:
    content = dict(document.content)
    if isinstance(content.get("streams"), list):
        streams = [_with_sorted_chunks(stream) for stream in content["streams"]]
        # Their ids are unique, or there were no document.
        content["streams"] = sorted(streams, key=lambda stream: (stream.get("namespace") or "", stream["stream"]))
    shared = content.get("global")
    if isinstance(shared, dict) and isinstance(shared.get("streams"), list):
        content["global"] = {**shared, "streams": sorted(set(shared["streams"]))}
    return content


def _with_sorted_chunks(stream: Any) -> Any:
    chunks = stream["state"].get("chunks")
    if not chunks or not isinstance(chunks, list):
        return stream
    return {**stream, "state": {**stream["state"], "chunks": as_set(chunks)}}


OLAKE = ToolSpec(
    Tool.OLAKE.value,
    form_of,
    read,
    writer=write,
    canonical=_with_sorted_sets,
    reads_above=True,
    most_columns=2,
    positions=(PostgresLsn, BinlogPosition, ResumeToken, SqlServerLsn),
)
