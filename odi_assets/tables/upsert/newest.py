"""Which rows of an upsert's batch count: the newest of each key, and only those newer than what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError
from odi_assets.tables.reader import quoted, read_files
from odi_assets.tables.row_text import row_text
from odi_assets.tables.upsert.matching import same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANK, _TEXT, _STORED, _PRESENT, _COUNT = "__odi_rank", "__odi_text", "__odi_stored", "__odi_present", "__odi_count"


def newest(batch: DataFrame, keys: Sequence[str], column: str) -> DataFrame:
    """Of each key, the rows with the greatest ``column``; NULL is less than any value. Equal rows count once."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = [quoted(key) for key in keys]
    order = Window.partitionBy(*names).orderBy(F.col(quoted(column)).desc_nulls_last())
    best = batch.withColumn(_RANK, F.rank().over(order)).where(f"{_RANK} = 1").drop(_RANK)
    # As text, because a row with a map in it does not compare.
    return best.withColumn(_TEXT, row_text(batch.columns)).dropDuplicates([*keys, _TEXT]).drop(_TEXT)


def require_one_newest(batch: DataFrame, keys: Sequence[str], column: str, uri: str) -> None:
    """Raises TableError if ``batch``, which has the newest rows of each key, has several for one of them."""
    from pyspark.sql import functions as F

    groups = batch.groupBy(*[quoted(key) for key in keys]).agg(F.count(F.lit(1)).alias(_COUNT))
    twice = groups.where(f"{_COUNT} > 1").limit(1).collect()
    if twice:
        example = ", ".join(f"{key}={twice[0][key]!r}" for key in keys)
        raise TableError(
            f"{twice[0][_COUNT]} different rows of one increment for {uri} have the same keys ({example}) "
            f"and the same `{column}`; none is the newest",
            fix="order by a column that tells them apart, or leave one row per key in the transform",
            uri=uri,
            keys=tuple(keys),
            column=column,
        )


def newer_than_stored(
    spark: SparkSession,
    handle: TableHandle,
    batch: DataFrame,
    keys: Sequence[str],
    column: str,
    among: Sequence[LiveFile],
) -> DataFrame:
    """Rows of ``batch`` whose keys are in none of the files ``among``, or there with a lesser ``column``.

    An equal value is not newer. A stored NULL is less than any value.
    """
    from pyspark.sql import functions as F

    if not among:
        return batch
    rows = read_files(spark, handle, among)
    stored = rows.groupBy(*[quoted(key) for key in keys]).agg(
        F.max(F.col(quoted(column))).alias(_STORED), F.lit(True).alias(_PRESENT)
    )
    joined = batch.alias("t").join(stored.alias("b"), same_keys(keys), "left")
    value, there = F.col(f"t.{quoted(column)}"), F.col(f"b.{_STORED}")
    newer = F.col(f"b.{_PRESENT}").isNull() | (there.isNull() & value.isNotNull()) | (value > there)
    return joined.where(newer).select(*[F.col(f"t.{quoted(name)}") for name in batch.columns])
