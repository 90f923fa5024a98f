"""Which files of a table, and which of their rows, have keys of a batch: found by Spark, after file statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any

from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.files.pruning import uncut
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.reader import by_file_uri, file_uri_key, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE = "__odi_file"


@dataclass(frozen=True)
class MatchedFiles:
    """Files that hold rows with keys of a batch, how many such rows there are, and how many of them are deleted."""

    files: tuple[LiveFile, ...]
    rows: int
    deleted: int = 0


def candidates(handle: TableHandle, staged: Sequence[WrittenFile], keys: Sequence[str]) -> list[LiveFile]:
    """Live files that may hold a key of the staged rows, by their partitions and their statistics."""
    partition_keys = [key for key in keys if key in handle.partition_columns]
    written = {tuple(file.partition[key] for key in partition_keys) for file in staged}
    keep = [tuple(file.partition[key] for key in partition_keys) in written for file in handle.live_files]
    for key in keys:
        bounds = None if key in partition_keys else _staged_bounds(staged, key)
        if bounds is None or not any(keep):
            continue
        low, high = handle.bounds("min", key), handle.bounds("max", key)
        if low is None or high is None:
            continue
        keep = [kept and _overlaps(low[i], high[i], *bounds) for i, kept in enumerate(keep)]
    return list(compress(handle.live_files, keep))


def _staged_bounds(staged: Sequence[WrittenFile], key: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of the key, as JSON has them; None if the statistics do not tell."""
    every = [json.loads(file.stats) for file in staged]
    # A NULL key matches NULL keys, which statistics do not place.
    if not every or any(stats["nullCount"].get(key) != 0 or key not in stats["minValues"] for stats in every):
        return None
    return min(stats["minValues"][key] for stats in every), max(stats["maxValues"][key] for stats in every)


def _overlaps(low: Any, high: Any, least: Any, greatest: Any) -> bool:
    """Whether values from ``low`` to ``high``, a live file's, may be among those from ``least`` to ``greatest``."""
    if low is None or high is None:
        return True
    if isinstance(low, Decimal):
        # JSON has floats for decimals, and a float is seldom the decimal it was made of.
        low, high = float(low), float(high)
    high = uncut(high)
    try:
        return bool(_like(least, high) <= high and _like(greatest, low) >= low)
    except (TypeError, ValueError):
        return True


def _like(bound: Any, value: Any) -> Any:
    """A bound from JSON as the type of the table's statistics."""
    if isinstance(value, date):
        return type(value).fromisoformat(bound)
    return bound


def find_affected(
    batch: DataFrame, handle: TableHandle, among: Sequence[LiveFile], keys: Sequence[str], marker: str | None = None
) -> MatchedFiles:
    """The files in ``among`` that hold a row with the same keys as a row of ``batch``.

    Args:
        marker: a BOOLEAN column of ``batch``, which has one row for each key then: where it is true, stored rows with
            these keys count as deleted.
    """
    if not among:
        return MatchedFiles((), 0)
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
    return MatchedFiles(
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
