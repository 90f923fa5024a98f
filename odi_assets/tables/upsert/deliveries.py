"""Rows of several deliveries in one batch of an upsert: what one write for each delivery would leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window

from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.upsert.newest import PRESENT, STORED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RANK, _STEPS, _LAST, _WINNER = "__odi_rank", "__odi_steps", "__odi_last", "__odi_winner"


def first_delivered(batch: DataFrame, keys: Sequence[str], delivery: str) -> DataFrame:
    """Of each key, one row of the first delivery that has it."""
    return _first(batch, keys, [F.col(quoted(delivery)).asc()])


def last_delivered(batch: DataFrame, keys: Sequence[str], delivery: str, column: str | None) -> DataFrame:
    """Of each key, the row that its deliveries leave, where a row replaces another one with a lesser ``column``, or any
    other one if that is not given.

    Args:
        batch: one row for each key and delivery.
    """
    if column is None:
        return _first(batch, keys, [F.col(quoted(delivery)).desc()])
    # An equal value is not newer: the delivery that brought it first stays.
    return _first(batch, keys, [F.col(quoted(column)).desc_nulls_last(), F.col(quoted(delivery)).asc()])


def _first(batch: DataFrame, keys: Sequence[str], order: Sequence[Column]) -> DataFrame:
    rows = Window.partitionBy(*map(quoted, keys)).orderBy(*order)
    return batch.withColumn(_RANK, F.row_number().over(rows)).where(f"{_RANK} = 1").drop(_RANK)


def deciding_rows(
    batch: DataFrame, keys: Sequence[str], delivery: str, column: str, marker: str, stored: DataFrame | None
) -> DataFrame:
    """The row of ``batch`` that decides about a key, for keys that change: it is stored, or its marker deletes the key.

    A row that deletes takes the value with it that later rows would have to exceed. So the deliveries are followed one
    by one, from the stored row on.

    Args:
        batch: one row for each key and delivery.
        stored: what :func:`newest.stored_values` gives; None if nothing is stored.
    """
    value, deletes = F.col(quoted(column)), F.coalesce(F.col(quoted(marker)), F.lit(False))
    step = F.struct(F.col(quoted(delivery)).alias("number"), value.alias("value"), deletes.alias("deletes"))
    steps = batch.groupBy(*map(quoted, keys)).agg(F.sort_array(F.collect_list(step)).alias(_STEPS))
    kind = batch.schema[column].dataType
    if stored is None:
        steps_with_stored = steps.withColumns({PRESENT: F.lit(False), STORED: F.lit(None).cast(kind)})
    else:
        joined = steps.alias("t").join(stored.alias("b"), same_keys(keys), "left")
        there = F.coalesce(F.col(f"b.{PRESENT}"), F.lit(False)).alias(PRESENT)
        steps_with_stored = joined.select("t.*", there, F.col(f"b.{STORED}").cast(kind).alias(STORED))
    start = F.struct(F.col(PRESENT).alias("there"), F.col(STORED).alias("value"), F.lit(-1).alias("number"))
    last = F.aggregate(_STEPS, start, _after)
    deciding = steps_with_stored.withColumn(_LAST, last).select(
        *map(quoted, keys), F.col(f"{_LAST}.number").alias(_WINNER)
    )
    same = same_keys(keys) & (F.col(f"t.{quoted(delivery)}") == F.col(f"b.{_WINNER}"))
    return batch.alias("t").join(deciding.alias("b"), same, "left_semi")


def _after(key: Column, step: Column) -> Column:
    """What is there of a key after one more delivery."""
    newer = key["value"].isNull() & step["value"].isNotNull() | (step["value"] > key["value"])
    taken = F.struct(
        (~step["deletes"]).alias("there"),
        F.when(~step["deletes"], step["value"]).alias("value"),
        step["number"].alias("number"),
    )
    return F.when(~key["there"] | F.coalesce(newer, F.lit(False)), taken).otherwise(key)
