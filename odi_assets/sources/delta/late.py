"""Rows that a Delta table gained at or below a mark, from its log and the statistics of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odi_assets.delta.changes import TableChanges, changes
from odi_assets.delta.errors import cannot_look
from odi_assets.delta.maintenance.restore import removed_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError
from odi_assets.sources.cursor.late import NONE_LATE, Late, place_of, rows_below
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.marks import CursorMark
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_COMMITS = 200
"""Commits that are looked at: each is a read of the log."""


def late_in_table(
    handle: TableHandle, after: int, mark: CursorMark, window: Window, start: Any, spark: SparkSession | None
) -> Late:
    """The rows of the commits after version ``after`` that lie below ``window``, and were not loaded since ``mark``."""
    upto = int(handle.version or 0)
    if upto <= after or window.lower is None:
        return NONE_LATE
    try:
        gained = changes(handle, max(after, upto - _MOST_COMMITS), upto)
    except TableError as error:
        if cannot_look(error):
            raise
        # The log was cleaned: it is not known which rows came since.
        return Late(is_exact=False)
    files = _files(handle, gained)
    vacuumed = {*removed_files(handle, files)}
    files = [file for file in files if file.path not in vacuumed]
    # What others rewrote holds rows of before, too; what was rewritten since is in other files now.
    is_whole = upto - after <= _MOST_COMMITS and gained.kind in {"rows", "none"} and len(files) == len(gained.files)
    came = {file.path: commit.version for commit in gained.commits for file in commit.files}
    ranges = {
        path: tuple(loaded_range for loaded_range in mark.ranges if loaded_range.held >= version)
        for path, version in came.items()
    }
    below, mixed = _by_statistics(handle, [file for file in files if not ranges[file.path]], window, start)
    mixed += [file for file in files if ranges[file.path]]
    if spark is not None and mixed:
        for loaded in {ranges[file.path] for file in mixed}:
            alike = [file for file in mixed if ranges[file.path] == loaded]
            below += rows_below(engine_of(handle).read_files(spark, handle, alike), window, start, loaded)
        return Late(below, is_whole)
    return Late(below, is_whole and not mixed, by_reading=bool(mixed))


def _files(handle: TableHandle, gained: TableChanges) -> list[LiveFile]:
    """The files of rows that came, as far as these rows are in the table still: there, or where they were moved to."""
    there = {file.path for file in handle.live_files}
    for commit in reversed(gained.commits):
        if commit.kind == "none" and all(file.path in there for file in commit.moved):
            there.update(path for path, _ in commit.removed)
    return [file for commit in gained.commits if commit.kind == "rows" for file in commit.files if file.path in there]


def _by_statistics(
    handle: TableHandle, files: list[LiveFile], window: Window, start: Any
) -> tuple[int, list[LiveFile]]:
    """How many rows are in files that lie below ``window`` as a whole; and the files that may lie on both sides."""
    names = [f"{kind}.{window.column}" for kind in ("min", "max", "null_count")]
    plain = window.fallback is None and window.date_format is None and not isinstance(window.lower, str | float | bytes)
    if not files or not plain:
        return 0, files
    paths, *facts = handle.file_columns(["path", *names])
    facts_by_path = {path: values for path, *values in zip(paths, *facts, strict=True)}
    below, mixed = 0, []
    for file in files:
        low, high, nulls = facts_by_path.get(file.path, (None, None, None))
        side = place_of(low, high, window.lower, inclusive=window.lower_inclusive)
        is_wanted = start is None or (low is not None and low >= start)
        if side == "below" and is_wanted and file.rows is not None and nulls is not None:
            below += file.rows - int(nulls)
        elif side != "above":
            mixed.append(file)
    return below, mixed
