"""Parquet footers of freshly written files → Delta add actions with row counts and statistics."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from odi_assets.connections.location import Location
from odi_assets.delta.partition_values import EXACT_FLOAT_DIGITS
from odi_assets.errors import TableError

WRITE_FOLDER = "odi_write"
"""Name of the folder level that keeps the files of one write together: ``odi_write=<write id>``.

It looks like a partition so that Spark finds the real partition columns below it; it is never a column of a table.
"""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Spark and Hive call the folder of NULL."""
INDEXED_COLUMNS = 32
"""Columns that get minimum and maximum, as Delta's own ``delta.dataSkippingNumIndexedCols`` has it."""

_LONGEST_STRING = 128
_READERS = 8


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that is on storage and not yet in the table's log. ``path`` is relative to the table."""

    path: str
    size: int
    modified_ms: int
    rows: int
    partition: dict[str, str | None]
    stats: str

    def add_action(self, *, data_change: bool) -> AddAction:
        """The action that puts this file into the table. deltalake encodes the path itself."""
        return AddAction(self.path, self.size, self.partition, self.modified_ms, data_change, self.stats)


def written_files(table: Location, folder: str, always_index: Iterable[str] = ()) -> list[WrittenFile]:
    """The non-empty Parquet files below ``folder`` of the table, their footers read in parallel.

    ``always_index`` names columns that get statistics however far to the right they are (keys, cursors).

    Raises:
        TableError: a file is not a whole Parquet file.
    """
    filesystem, root = table.child(folder).in_store()
    keep, now = frozenset(always_index), int(time.time() * 1000)

    def read(path: str) -> WrittenFile:
        inside = path[len(root.rstrip("/")) + 1 :]
        try:
            with filesystem.open(path, "rb") as stream:
                footer, size = pq.read_metadata(stream), stream.seek(0, os.SEEK_END)
        except pa.ArrowInvalid as error:
            raise TableError(
                f"{folder}/{inside}, just written for the table at {table.uri}, is not a whole Parquet file: {error}",
                fix="nothing was committed; look for full disks and errors of the storage, and run the node again",
                uri=table.uri,
                path=f"{folder}/{inside}",
            ) from error
        statistics, partition = footer_statistics(footer, keep), _partition_of(inside) if "/" in inside else {}
        return WrittenFile(f"{folder}/{inside}", size, now, footer.num_rows, partition, statistics)

    listed = sorted(_parquet_files(filesystem, root, strictly=table.is_local))
    with ThreadPoolExecutor(max_workers=min(_READERS, len(listed) or 1)) as pool:
        return [file for file in pool.map(read, listed) if file.rows > 0]


def _parquet_files(filesystem: fsspec.AbstractFileSystem, root: str, *, strictly: bool) -> Iterator[str]:
    """The files that Spark counts as data. Not ``_temporary`` above all: a task that was given up, on an executor that
    is alive, may go on writing there after its job is done.

    Args:
        strictly: ``root`` is on this machine, where fsspec would pass over folders that it cannot list, and so lose
            their rows.

    Raises:
        OSError: a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    if strictly:
        paths = [f"{folder}/{name}" for folder, _, names in os.walk(root, onerror=refuse) for name in names]
    else:
        paths = filesystem.find(root)
    for path in paths:
        *folders, name = path[len(root.rstrip("/")) + 1 :].split("/")
        if any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in folders):
            continue
        if name.endswith(".parquet") and name[0] not in "._":
            yield path


def _partition_of(path: str) -> dict[str, str | None]:
    """Partition values of a Hive-style path, unescaped: ``{"day": "2013-01-01"}`` for ``day=2013-01-01/x.parquet``."""
    named = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == HIVE_NULL else unquote(value) for name, _, value in named}


def footer_statistics(footer: pq.FileMetaData, keep: frozenset[str] = frozenset(), first: int = INDEXED_COLUMNS) -> str:
    """Delta's statistics of a file, as JSON (Delta protocol, "Per-file Statistics").

    The ``first`` columns have them, and those that ``keep`` names. A bound is left out where it could be wrong: NaN,
    long strings, decimals that a float cannot hold, repeated values.
    """
    nulls: dict[str, Any] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    indexed = 0
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if column.max_repetition_level > 0:
            continue
        # A dot leads into a struct, unless it is in the name itself.
        path = (column.name,) if column.name == column.path else tuple(column.path.split("."))
        indexed += 1
        if indexed > first and path[0] not in keep:
            continue
        for tree, value in zip((nulls, low, high), _column_statistics(footer, index), strict=True):
            if value is not None:
                for part in path[:-1]:
                    tree = tree.setdefault(part, {})
                tree[path[-1]] = value
    return json.dumps({"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _column_statistics(footer: pq.FileMetaData, index: int) -> tuple[int | None, Any, Any]:
    """How many NULLs a column has, its least and its greatest value; None for what is not known for sure."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    statistics_by_group = [group.column(index).statistics for group in groups]
    if any(statistics is None or not statistics.has_null_count for statistics in statistics_by_group):
        return None, None, None
    nulls = sum(statistics.null_count for statistics in statistics_by_group)
    # A row group that holds only NULLs has no bounds and narrows nothing.
    bounded = [s for s, group in zip(statistics_by_group, groups, strict=True) if s.null_count < group.num_rows]
    if not bounded or not all(statistics.has_min_max for statistics in bounded):
        return nulls, None, None
    try:
        least = _json_bound(min(statistics.min for statistics in bounded))
        most = _json_bound(max(statistics.max for statistics in bounded))
    except (OverflowError, UnicodeDecodeError):
        # A time beyond the years of Python, or a text that is not UTF-8, as Spark takes it where nobody checks.
        return nulls, None, None
    return (nulls, None, None) if least is None or most is None else (nulls, least, most)


def _json_bound(value: Any) -> Any:
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value) if len(value.as_tuple().digits) <= EXACT_FLOAT_DIGITS else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_STRING else None
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if value.tzinfo else text
    return value.isoformat() if isinstance(value, dt.date) else value
