"""Partitions that an increment touches, where only its rows can tell, and the reads that compute them anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.delta.partition_values import same_spelling
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.read_scope import read_whole
from odi_assets.sources.model import PartitionFilter, ReadPlan
from odi_assets.sources.read import changed_rows, load, replaced_rows
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_partitions(plan: NodePlan, spark: SparkSession) -> NodePlan:
    """``plan`` with its pending partitions known, and read whole.

    Raises:
        ConfigError: a source has no such column.
    """
    pending = next((read.partitions for read in plan.reads if read.partitions and read.partitions.pending), None)
    if pending is None:
        return plan
    column = pending.column
    values: set[str | None] = set()
    for read in plan.reads:
        for rows in _changes(read, spark):
            values |= _values(rows, column, read, plan)
    ordered = tuple(sorted(values, key=lambda value: (value is not None, value or "")))
    known = PartitionFilter(column, ordered)
    reads = tuple(_all_of(read, known) if read.partitions else read for read in plan.reads)
    return replace(plan, reads=reads, replace=tuple({column: value} for value in ordered))


def _changes(read: ReadPlan, spark: SparkSession) -> list[DataFrame]:
    if read.partitions is None:
        return []
    if read.window is not None or read.every_file is not None:
        return [] if read.nothing_new else [load(spark, read)]
    if read.handle is None or read.gained is None:
        return []
    old = (replaced_rows(spark, read.handle, commit) for commit in read.gained.commits)
    return [changed_rows(spark, read.handle, read.gained), *(rows for rows in old if rows is not None)]


def _values(rows: DataFrame, column: str, read: ReadPlan, plan: NodePlan) -> set[str | None]:
    from pyspark.sql import functions as F

    if column not in rows.columns:
        raise ConfigError(
            f"{plan.key} is written by partitions of `{column}`, and {read.label} has no such column: which partitions "
            "its new rows touch cannot be told",
            fix=f"write what is read with `append` or `upsert`, and let a second node, which finds `{column}` in its "
            "input, write by partitions",
            node=str(plan.key),
            column=column,
        )
    # As text, because a collected TIMESTAMP would take on this machine's zone.
    kind = rows.schema[column].dataType.jsonValue()
    found = rows.select(F.col(quoted(column)).cast("string")).distinct().collect()
    return {same_spelling(row[0], kind) for row in found}


def _all_of(read: ReadPlan, known: PartitionFilter) -> ReadPlan:
    if read.window is None and read.every_file is None:
        return replace(read, partitions=known)
    return replace(read_whole(read), partitions=known, summary=read.summary)
