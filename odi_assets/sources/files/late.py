"""Rows that files brought at or below a mark: of the files whose paths the mark does not know."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import FileFormat
from odi_assets.sources.cursor.late import NONE_LATE, Late, place_of, rows_below
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.marks import CursorMark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.sources.files.source import FilesSnapshot

_MOST = 500
"""Files that a mark knows. Of more, nothing is kept: the commit that sets the mark stays small."""
_DIGEST = 4


def known_files(files: Sequence[SourceFile]) -> str | None:
    """The files as a mark keeps them: a short digest of each path, and of its state; None of too many."""
    if len(files) > _MOST:
        return None
    return base64.b64encode(b"".join(sorted(_of_path(file) + _of_state(file) for file in files))).decode()


def arrived_since(files: Sequence[SourceFile], known: str) -> tuple[list[SourceFile], bool]:
    """The files whose paths are not among the ``known`` ones; and whether one of the others was rewritten."""
    kept = base64.b64decode(known)
    pairs = [kept[at : at + 2 * _DIGEST] for at in range(0, len(kept), 2 * _DIGEST)]
    paths, states = {pair[:_DIGEST] for pair in pairs}, set(pairs)
    new = [file for file in files if _of_path(file) not in paths]
    others = [file for file in files if _of_path(file) in paths]
    return new, any(_of_path(file) + _of_state(file) not in states for file in others)


def late_in_files(
    files: FilesSnapshot, mark: CursorMark, window: Window, start: Any, spark: SparkSession | None
) -> Late:
    """The rows of files that arrived since ``mark`` was set, and lie below ``window``."""
    if mark.held_then is None or window.lower is None:
        return NONE_LATE
    new, rewritten = arrived_since(files.chosen, mark.held_then)
    below, mixed = _below_by_footers(files, new, window, start)
    if not mixed or spark is None:
        # Rows that a rewritten file had before look like those that it has now.
        return Late(below, not (mixed or rewritten), by_reading=bool(mixed))
    rows = replace(files, chosen=tuple(mixed)).rows(spark)
    return Late(below + rows_below(rows, window, start), not rewritten)


def _below_by_footers(
    files: FilesSnapshot, new: Sequence[SourceFile], window: Window, start: Any
) -> tuple[int, Sequence[SourceFile]]:
    """How many rows are in files that lie below ``window`` as a whole; and the files that may lie on both sides."""
    if files.format != FileFormat.PARQUET or files.schema_ddl or window.fallback or window.date_format:
        return 0, new
    from odi_assets.sources.cursor.parquet_bounds import bounds_of_files

    below, mixed = 0, []
    found = bounds_of_files(files.base, [file.path for file in new], window.column)
    for file, bounds in zip(new, found, strict=True):
        if bounds is None:
            mixed.append(file)
            continue
        place = place_of(bounds.lower, bounds.upper, window.lower, inclusive=window.lower_inclusive)
        if place == "below" and (start is None or bounds.lower >= start):
            below += bounds.rows - bounds.nulls
        elif place != "above" and bounds.upper is not None:
            mixed.append(file)
    return below, mixed


def _of_path(file: SourceFile) -> bytes:
    return _short(file.path)


def _of_state(file: SourceFile) -> bytes:
    return _short(f"{file.size}\0{file.mtime_ns}\0{file.etag}")


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_DIGEST).digest()
