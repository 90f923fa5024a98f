"""The greatest value of a column of Parquet files, from their footers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from odi_assets.config.models import StatefulIncrement
from odi_assets.connections.location import Location
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.marks import UNRESOLVED, Unresolved

_READERS = 8
_FIRST_YEAR = 1900
"""Older days may be in the Julian calendar; whether they are depends on the writer."""


@dataclass(frozen=True)
class ColumnBounds:
    """What the footers say of a column.

    Attributes:
        type_name: its type as Spark would call it; None if no file holds a row.
        upper: its greatest value; None if it has none.
        nulls: rows in which it is NULL.
        lower: of one file, its least value; None if it has none.
        rows: of one file, how many rows it has.
    """

    type_name: str | None
    upper: Any
    nulls: int
    lower: Any = field(default=None, compare=False)
    rows: int = field(default=0, compare=False)


def column_bounds(base: Location, paths: Sequence[str], column: str) -> ColumnBounds | None:
    """The bounds of ``column`` over files below ``base``; None if the footers do not have them exactly."""
    all_bounds = bounds_of_files(base, paths, column)
    known_bounds = [bounds for bounds in all_bounds if bounds is not None]
    if len(known_bounds) < len(all_bounds):
        return None
    names = {bounds.type_name for bounds in known_bounds}
    if len(names) > 1:
        return None
    uppers = [bounds.upper for bounds in known_bounds if bounds.upper is not None]
    return ColumnBounds(
        next(iter(names), None), max(uppers, default=None), sum(bounds.nulls for bounds in known_bounds)
    )


def bounds_of_files(base: Location, paths: Sequence[str], column: str) -> list[ColumnBounds | None]:
    """The bounds of ``column`` in each file; None where its footer does not have them exactly."""
    with ThreadPoolExecutor(max_workers=min(_READERS, len(paths) or 1)) as pool:
        return list(pool.map(lambda path: _of_file(base, path, column), paths))


def files_bound(bounds: ColumnBounds | None, increment: StatefulIncrement) -> Bound | Unresolved:
    """The upper bound of Parquet files from their footers; UNRESOLVED if those do not have it."""
    if bounds is None or increment.date_format:
        return UNRESOLVED
    if bounds.nulls and increment.fallback_column:
        return UNRESOLVED
    return Bound(bounds.upper, bounds.nulls)


def _of_file(base: Location, path: str, column: str) -> ColumnBounds | None:
    location = base.child(path)
    try:
        with location.open("rb") as stream:
            footer = pq.read_metadata(stream)
    except (OSError, pa.ArrowException):
        # Spark reads the file next and raises the error.
        return None
    try:
        return _of_footer(footer, column)
    except OverflowError:
        # A time beyond Python's years; `spark_bound` raises the error.
        return None


def _of_footer(footer: pq.FileMetaData, column: str) -> ColumnBounds | None:
    schema = footer.schema.to_arrow_schema()
    index = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == column), None)
    # A name with a dot may be a field of a struct.
    name = _type_name(schema.field(column).type) if column in schema.names else None
    if index is None or name is None:
        return None
    nulls, lowers, uppers = 0, [], []
    for g in range(footer.num_row_groups):
        group = footer.row_group(g)
        if not group.num_rows:
            continue
        statistics = group.column(index).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.null_count == group.num_rows:
            continue
        if not statistics.has_min_max or _is_old(statistics.min):
            return None
        lowers.append(_value(statistics.min))
        uppers.append(_value(statistics.max))
    lower, upper = min(lowers, default=None), max(uppers, default=None)
    return ColumnBounds(name, upper, nulls, lower, footer.num_rows)


def _type_name(kind: pa.DataType) -> str | None:
    """Spark's name of an Arrow type whose statistics are exact; None for others."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        if kind.unit not in {"us", "ms"}:
            return None
        return "timestamp" if kind.tz else "timestamp_ntz"
    return {pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer", pa.int64(): "long", pa.date32(): "date"}.get(
        kind
    )


def _value(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _is_old(value: Any) -> bool:
    return isinstance(value, date) and value.year < _FIRST_YEAR
