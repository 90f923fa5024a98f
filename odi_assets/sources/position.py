"""Where a source stands: what tells, without reading a row, whether it is still as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from odi_assets.delta.changes import changes
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.sources.files.listing import SourceFile

Position = Mapping[str, Any]
"""JSON-ready: of files, how many and a digest of their paths, sizes and times; of a table, its id and version."""


def files_position(files: Iterable[SourceFile]) -> Position:
    """The position of a listing, in whatever order it came."""
    digest, count = hashlib.sha256(), 0
    for file in sorted(files):
        count += 1
        digest.update(f"{file.path}\0{file.size}\0{file.mtime_ns}\n".encode())
    return {"files": count, "digest": digest.hexdigest()[:32]}


def table_position(handle: TableHandle) -> Position:
    """The position of a table; of one that does not exist, that it does not."""
    if not handle.exists:
        return {"version": None}
    return {"table_id": handle.table_id, "version": handle.version}


def difference(then: Position | None, now: Position) -> str | None:
    """How a listing of files differs from what was recorded of it, in words; None if it does not."""
    if then == now:
        return None
    if then is None or "files" not in then:
        return "what it held was not recorded"
    return f"{then['files']:,} files then, {now['files']:,} now" if then["files"] != now["files"] else "files changed"


def table_difference(then: Position | None, handle: TableHandle) -> str | None:
    """How a table differs from what was recorded of it; None if no row of it changed. Compaction changes none."""
    now = table_position(handle)
    if then == now:
        return None
    if then is None or "version" not in then:
        return "what it held was not recorded"
    before, after = then["version"], now["version"]
    if before is None or after is None:
        return "it did not exist then" if before is None else "it is gone"
    if then.get("table_id") != now["table_id"]:
        return "it was dropped and made again"
    if after > before and not _rows_changed(handle, before, after):
        return None
    return f"version {before} then, version {after} now"


def _rows_changed(handle: TableHandle, after: int, upto: int) -> bool:
    try:
        return changes(handle, after, upto).kind != "none"
    except TableError:
        # The log of that time is gone: nobody can say that nothing changed.
        return True
