"""Which files of a table, and which of their rows, have keys of a batch: found by Spark, after file statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from odi_assets.delta.footers import WrittenFile
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.reader import by_file_uri, file_uri_key, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE = "__odi_file"
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Affected:
    """Files that hold rows with keys of a batch, how many such rows there are, and how many of them are deleted."""

    files: tuple[LiveFile, ...]
    rows: int
    deleted: int = 0


def candidates(handle: TableHandle, staged: Sequence[WrittenFile], keys: Sequence[str]) -> list[LiveFile]:
    """Live files whose statistics do not rule out that they hold a key of the staged rows."""
    live = list(handle.live_files)
    bounds = {key: _staged_bounds(staged, key) for key in keys if key not in handle.partition_columns}
    actions = handle.add_actions if live else None
    keep = [True] * len(live)
    for key, bound in bounds.items():
        if bound is None or actions is None or f"min.{key}" not in actions.column_names:
            continue
        low, high = actions[f"min.{key}"].to_pylist(), actions[f"max.{key}"].to_pylist()
        keep = [kept and _overlaps(low[i], high[i], bound) for i, kept in enumerate(keep)]
    partition_keys = [key for key in keys if key in handle.partition_columns]
    if partition_keys:
        written = {tuple(file.partition[key] for key in partition_keys) for file in staged}
        keep = [
            kept and tuple(live[i].partition[key] for key in partition_keys) in written for i, kept in enumerate(keep)
        ]
    return [file for file, kept in zip(live, keep, strict=True) if kept]


def _staged_bounds(staged: Sequence[WrittenFile], key: str) -> tuple[Any, Any] | None:
    lows, highs = [], []
    for file in staged:
        stats = json.loads(file.stats)
        # A NULL key matches NULL keys, which statistics do not place.
        if stats["nullCount"].get(key) != 0 or key not in stats["minValues"]:
            return None
        lows.append(stats["minValues"][key])
        highs.append(stats["maxValues"][key])
    return (min(lows), max(highs)) if lows else None


def _overlaps(low: Any, high: Any, bound: tuple[Any, Any]) -> bool:
    if low is None or high is None:
        return True
    try:
        return bool(_like(bound[0], high) <= _widened(high) and _like(bound[1], low) >= low)
    except (TypeError, ValueError):
        return True


def _widened(high: Any) -> Any:
    # Delta allows writers to cut timestamp bounds to milliseconds (protocol, "Per-file Statistics").
    return high + _MILLISECOND if isinstance(high, datetime) else high


def _like(bound: Any, value: Any) -> Any:
    """A bound from JSON as the type of the table's statistics."""
    if isinstance(value, datetime):
        return datetime.fromisoformat(bound)
    if isinstance(value, date):
        return date.fromisoformat(bound)
    return bound


def find_affected(
    batch: DataFrame, handle: TableHandle, among: Sequence[LiveFile], keys: Sequence[str], marker: str | None = None
) -> Affected:
    """Of the files ``among``, those that hold a row whose keys equal those of a row of ``batch``.

    Args:
        marker: a BOOLEAN column of ``batch``, which has one row for each key then: where it is true, stored rows with
            these keys count as deleted.
    """
    from pyspark.sql import functions as F

    if not among:
        return Affected((), 0)
    rows = read_files(batch.sparkSession, handle, among, file_as=_FILE).select(*map(quoted, keys), _FILE).alias("t")
    wanted = batch.select(*map(quoted, [*keys, *filter(None, [marker])])).alias("b")
    deleted = F.count_if(F.col(f"b.{quoted(marker)}")) if marker else F.lit(0)
    hits = (
        rows.join(wanted, same_keys(keys), "inner" if marker else "left_semi")
        .groupBy(_FILE)
        .agg(F.count(F.lit(1)).alias("rows"), deleted.alias("deleted"))
        .collect()
    )
    known = by_file_uri(handle.location, among)
    return Affected(
        tuple(known[file_uri_key(hit[_FILE])] for hit in hits),
        sum(int(hit["rows"]) for hit in hits),
        sum(int(hit["deleted"]) for hit in hits),
    )


def rows_to_move(batch: DataFrame, handle: TableHandle, files: Sequence[LiveFile], keys: Sequence[str]) -> DataFrame:
    """Rows of ``files`` that have no row with the same keys in ``batch``."""
    return _without_match(read_files(batch.sparkSession, handle, files), batch, keys)


def rows_without_match(
    batch: DataFrame, handle: TableHandle, among: Sequence[LiveFile], keys: Sequence[str]
) -> DataFrame:
    """Rows of ``batch`` whose keys are in none of the files ``among``."""
    return _without_match(batch, read_files(batch.sparkSession, handle, among), keys)


def _without_match(rows: DataFrame, others: DataFrame, keys: Sequence[str]) -> DataFrame:
    return rows.alias("t").join(others.select(*map(quoted, keys)).alias("b"), same_keys(keys), "left_anti")
