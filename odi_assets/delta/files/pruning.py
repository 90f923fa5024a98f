"""Files that can hold given values of a column, by partition values and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from odi_assets.delta.files.spans import TIMES, PartitionBox, Span
from odi_assets.delta.partition_values import partition_string
from odi_assets.delta.table import LiveFile, TableHandle

_MOST_DAYS = 3_700
"""About ten years: a wider range of dates is better found by reading the rows."""


_MILLISECOND = timedelta(milliseconds=1)


def uncut(high: Any) -> Any:
    """The greatest value that the upper bound of a file may stand for: Delta allows writers to cut times to
    milliseconds (protocol, "Per-file Statistics")."""
    if not isinstance(high, datetime):
        return high
    try:
        return high + _MILLISECOND
    except OverflowError:
        # It ends the years of Python, and of most calendars that mean `never`.
        return datetime.max.replace(tzinfo=high.tzinfo)


def files_in_box(handle: TableHandle, box: PartitionBox) -> list[LiveFile]:
    """Live files that may hold a row of the partitions in ``box``."""
    files = list(handle.live_files)
    for side in box.sides:
        kind = handle.columns.get(side.column)
        if isinstance(side, Span) and kind in TIMES:
            some = _files_in_span(handle, side, str(kind))
        else:
            some = files_in_partitions(handle, side.column, list(side.names(kind)))
        paths = {file.path for file in some}
        files = [file for file in files if file.path in paths]
    return files


def files_in_partitions(handle: TableHandle, column: str, values: Sequence[str | None]) -> list[LiveFile]:
    """Live files that may hold a row whose ``column`` is one of ``values``."""
    wanted = set(values)
    if column in handle.partition_columns:
        return [file for file in handle.live_files if file.partition[column] in wanted]
    low, high = handle.bounds("min", column), handle.bounds("max", column)
    if low is None or high is None or None in wanted:
        return list(handle.live_files)
    return [
        file for file, least, most in zip(handle.live_files, low, high, strict=True) if _may_hold(least, most, wanted)
    ]


def _files_in_span(handle: TableHandle, span: Span, kind: str) -> list[LiveFile]:
    if span.column in handle.partition_columns:
        return [file for file in handle.live_files if span.holds(file.partition[span.column], kind)]
    low, high = handle.bounds("min", span.column), handle.bounds("max", span.column)
    if kind != "date" or low is None or high is None:
        # Statistics of times may be cut, so the rows are asked.
        return list(handle.live_files)
    first, end = (bound.date() for bound in span.bounds(kind))
    return [
        file
        for file, least, most in zip(handle.live_files, low, high, strict=True)
        if not (isinstance(least, date) and isinstance(most, date)) or (least <= end and most >= first)
    ]


def _may_hold(low: object, high: object, wanted: set[str | None]) -> bool:
    # Text compares as the values do only for dates; for other types the statistics are not asked.
    if not (isinstance(low, date) and isinstance(high, date)) or isinstance(low, datetime):
        return True
    return any(value is not None and low.isoformat() <= value <= high.isoformat() for value in wanted)


def values_of(handle: TableHandle, column: str, files: Sequence[LiveFile]) -> list[str | None] | None:
    """Values of ``column`` that ``files``, live or not, may hold; None where only their rows can tell.

    Exact for a partition column and for a column whose files each hold one value; for dates, all days in between.
    """
    if column in handle.partition_columns:
        return sorted({file.partition[column] for file in files}, key=lambda value: (value is not None, value or ""))
    low, high, nulls = (handle.bounds(kind, column) for kind in ("min", "max", "null_count"))
    if low is None or high is None or nulls is None:
        return None
    bounds_by_path = {file.path: bounds for file, *bounds in zip(handle.live_files, low, high, nulls, strict=True)}
    values: set[str | None] = set()
    for file in files:
        if file.path not in bounds_by_path:
            return None
        file_values = _between(*bounds_by_path[file.path])
        if file_values is None:
            return None
        values |= file_values
    return sorted(values, key=lambda value: (value is not None, value or ""))


def _between(low: object, high: object, nulls: int | None) -> set[str | None] | None:
    if low is None or high is None or nulls != 0:
        return None
    if isinstance(low, datetime) and low.microsecond % 1000 == 0:
        # It may have been cut.
        return None
    if low == high and not isinstance(low, str | float):
        return {partition_string(low)}
    if not isinstance(low, date) or not isinstance(high, date) or isinstance(low, datetime):
        return None
    days = (high - low).days
    return {(low + timedelta(days=day)).isoformat() for day in range(days + 1)} if days <= _MOST_DAYS else None
