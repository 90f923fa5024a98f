"""Cursor documents of other tools: read, check, compare, convert. Pure functions; no Spark and no Dagster here.

before = load("state.json.yesterday")
after = load("state.json")
for move in compare(before, after):
    print(move)                      # public.orders: forward, log position 0/198C935 → 0/1A00000
"""

from __future__ import annotations

from pathlib import Path

from odi_assets.documents.canonical import canonical, dump, fingerprint
from odi_assets.documents.compare import PartMove, StreamMove, compare, compare_streams
from odi_assets.documents.editing import with_cursors, with_shared_position, with_stream, without_streams
from odi_assets.documents.files import save
from odi_assets.documents.findings import DocumentFinding, Severity
from odi_assets.documents.model import (
    CursorChunk,
    CursorDocument,
    CursorSnapshot,
    CursorStream,
    SharedPosition,
    SnapshotStatus,
    StateType,
    Tool,
)
from odi_assets.documents.moves import Move
from odi_assets.documents.olake.write import text_of as olake_text
from odi_assets.documents.positions import (
    BinlogPosition,
    ConsumerGroup,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.documents.reading import Inspection, inspect, inspect_bytes, inspect_file, load, parse

__all__ = [
    "BinlogPosition",
    "ConsumerGroup",
    "CursorChunk",
    "CursorDocument",
    "CursorSnapshot",
    "CursorStream",
    "DocumentFinding",
    "Inspection",
    "LogPosition",
    "Move",
    "PartMove",
    "PostgresLsn",
    "ResumeToken",
    "Severity",
    "SharedPosition",
    "SnapshotStatus",
    "SqlServerLsn",
    "StateType",
    "StreamMove",
    "Tool",
    "UnknownPosition",
    "canonical",
    "compare",
    "compare_streams",
    "dump",
    "fingerprint",
    "inspect",
    "inspect_bytes",
    "inspect_file",
    "load",
    "load_olake",
    "olake_text",
    "parse",
    "parse_olake",
    "save",
    "with_cursors",
    "with_shared_position",
    "with_stream",
    "without_streams",
]


def load_olake(path: str | Path) -> CursorDocument:
    """The document of OLake in a file; see :func:`load`."""
    return load(path, tool=Tool.OLAKE)


def parse_olake(text: str, *, path: str | Path | None = None) -> CursorDocument:
    """The document of OLake in a text; see :func:`parse`."""
    return parse(text, tool=Tool.OLAKE, path=path)
