"""Cursor documents of other tools: parse, check, compare. Pure functions; neither Spark nor Dagster is imported here.

before = load_olake("state.json.yesterday")
after = load_olake("state.json")
for move in compare(before, after):
    print(move)                      # public.orders: forward, log position 0/198C935 → 0/1A00000
"""

from odi_assets.cursors.canonical import canonical, dump, fingerprint
from odi_assets.cursors.compare import StreamMove, compare
from odi_assets.cursors.model import (
    Chunk,
    CursorDocument,
    CursorStream,
    SharedPosition,
    Snapshot,
    SnapshotStatus,
    StateType,
)
from odi_assets.cursors.moves import Move
from odi_assets.cursors.olake import load_olake, parse_olake
from odi_assets.cursors.positions import (
    BinlogPosition,
    ConsumerGroup,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.cursors.problems import DocumentProblem

__all__ = [
    "BinlogPosition",
    "Chunk",
    "ConsumerGroup",
    "CursorDocument",
    "CursorStream",
    "DocumentProblem",
    "LogPosition",
    "Move",
    "PostgresLsn",
    "ResumeToken",
    "SharedPosition",
    "Snapshot",
    "SnapshotStatus",
    "SqlServerLsn",
    "StateType",
    "StreamMove",
    "UnknownPosition",
    "canonical",
    "compare",
    "dump",
    "fingerprint",
    "load_olake",
    "parse_olake",
]
