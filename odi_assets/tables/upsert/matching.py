"""Which rows and files of a table a batch of keyed rows touches, found by Spark and bounded by file statistics.

An upsert is copy-on-write: rows that only have to move out of a touched file go to files of their own, committed
without ``dataChange``. So the files committed with ``dataChange`` hold exactly the rows that are new or changed, and
a downstream node can read an upsert's increment from the table's log alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.delta.footers import WrittenFile
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError
from odi_assets.tables.reader import by_file_uri, file_uri_key, quoted, read_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE = "__odi_file"
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Touched:
    """Files that hold rows with keys of the batch, how many such rows there are, and how many of them go for good."""

    files: tuple[LiveFile, ...]
    rows: int
    deleted: int = 0


def require_unique_keys(batch: DataFrame, keys: Sequence[str], uri: str) -> None:
    """Raises TableError if two rows of ``batch`` have the same keys: which of them wins is not for us to guess."""
    from pyspark.sql import functions as F

    twice = (
        batch.groupBy(*_names(keys))
        .agg(F.count(F.lit(1)).alias("__odi_count"))
        .where("__odi_count > 1")
        .limit(1)
        .collect()
    )
    if twice:
        example = ", ".join(f"{key}={twice[0][key]!r}" for key in keys)
        raise TableError(
            f"{twice[0]['__odi_count']} rows of one increment for {uri} have the same keys ({example})",
            fix=f"deduplicate in the transform, for example by row_number() over (partition by {', '.join(keys)} …)",
            uri=uri,
            keys=tuple(keys),
        )


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


def touched(
    spark: SparkSession,
    handle: TableHandle,
    batch: DataFrame,
    keys: Sequence[str],
    among: Sequence[LiveFile],
    marker: str | None = None,
) -> Touched:
    """Of the files ``among``, those that hold a row whose keys equal those of a row of ``batch``.

    ``marker`` names a boolean column of ``batch``: rows whose keys it is true for count as deleted. Rows of ``batch``
    must have distinct keys then.
    """
    from pyspark.sql import functions as F

    if not among:
        return Touched((), 0)
    rows = read_files(spark, handle, among, file_as=_FILE).select(*_names(keys), _FILE).alias("t")
    wanted = batch.select(*_names(keys), *_names([marker] if marker else [])).alias("b")
    gone = F.count_if(F.col(f"b.{quoted(marker)}")) if marker else F.lit(0)
    hits = (
        rows.join(wanted, same_keys(keys), "inner" if marker else "left_semi")
        .groupBy(_FILE)
        .agg(F.count(F.lit(1)).alias("rows"), gone.alias("deleted"))
        .collect()
    )
    known = by_file_uri(handle.location, among)
    return Touched(
        tuple(known[file_uri_key(hit[_FILE])] for hit in hits),
        sum(int(hit["rows"]) for hit in hits),
        sum(int(hit["deleted"]) for hit in hits),
    )


def carried(
    spark: SparkSession, handle: TableHandle, batch: DataFrame, keys: Sequence[str], files: Sequence[LiveFile]
) -> DataFrame:
    """Rows of ``files`` that ``batch`` does not replace."""
    return (
        read_files(spark, handle, files)
        .alias("t")
        .join(batch.select(*_names(keys)).alias("b"), same_keys(keys), "left_anti")
    )


def absent(
    spark: SparkSession, handle: TableHandle, batch: DataFrame, keys: Sequence[str], among: Sequence[LiveFile]
) -> DataFrame:
    """Rows of ``batch`` whose keys are in none of the files ``among``."""
    present = read_files(spark, handle, among).select(*_names(keys))
    return batch.alias("t").join(present.alias("b"), same_keys(keys), "left_anti")


def same_keys(keys: Sequence[str]) -> Column:
    """``t`` and ``b`` agree on the keys; NULL equals NULL, or a NULL key would be inserted again by every run."""
    from pyspark.sql import functions as F

    return reduce(
        lambda left, right: left & right, [F.col(f"t.{key}").eqNullSafe(F.col(f"b.{key}")) for key in _names(keys)]
    )


def _names(columns: Sequence[str]) -> list[str]:
    return [quoted(column) for column in columns]
