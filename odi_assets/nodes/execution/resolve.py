"""Finds what only a pass of Spark can tell of a plan, before sources are read: upper bounds, affected partitions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from odi_assets.delta.partition_values import same_spelling
from odi_assets.nodes.planning.partition_column import require_partition_column
from odi_assets.nodes.planning.plan import NodePlan, ResolvedPlan
from odi_assets.nodes.planning.same_history import require_uncorrected
from odi_assets.sources.reads import PlannedRead, Read, UnresolvedRead, Whole
from odi_assets.sources.snapshot import Partitions
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def resolve(plan: NodePlan, spark: SparkSession) -> ResolvedPlan:
    """``plan`` with an upper bound for each read, and with the partitions that it recomputes.

    Raises:
        IncrementError: a cursor, an HWM or a row does not fit the configuration.
        ConfigError: a source lacks the column that the node's table is partitioned by.
        IdentityMismatchError: rows that were read before have changed.
    """
    require_uncorrected(plan, spark)
    resolved = ResolvedPlan.of(plan, _resolved(plan.reads, spark), plan.write)
    if resolved.nothing_new and _empties(resolved):
        emptied = tuple(Whole(snapshot=r.snapshot, summary=r.summary, follows=r.follows) for r in resolved.reads)
        return ResolvedPlan.of(plan, emptied, plan.write)
    if plan.recompute is None or resolved.nothing_new:
        return resolved
    wanted = _affected(resolved, plan.recompute, spark)
    reads = tuple(read.in_partitions(wanted) if read.is_part else read for read in resolved.reads)
    return ResolvedPlan.of(plan, _resolved(reads, spark), replace(plan.write, replace=wanted))


def _empties(plan: ResolvedPlan) -> bool:
    """Whether a full refresh, which may lose rows, is to leave none: the tables that it reads are there, and empty."""
    request = plan.request
    return request.full_refresh and request.accept_loss and all(read.snapshot.is_emptied for read in plan.reads)


def _resolved(reads: tuple[PlannedRead, ...], spark: SparkSession) -> tuple[Read, ...]:
    resolved_reads: list[Read] = []
    for read in reads:
        if isinstance(read, UnresolvedRead):
            resolved_reads.append(read.resolve(spark))
        elif isinstance(read, Read):
            resolved_reads.append(read)
    return tuple(resolved_reads)


def _affected(plan: ResolvedPlan, column: str, spark: SparkSession) -> Partitions:
    """The partitions of the rows that the sources gained, of changed rows as they were before, and of stored rows that
    the sources may not have any more."""
    values: set[str | None] = set()
    stored = partial(engine_of(plan.target).read, spark, plan.target)
    for read in plan.reads:
        gone = read.affected_stored(stored) if plan.target.exists else ()
        for rows in (*read.affected_rows(spark), *gone):
            values |= _values(rows, column, read, plan)
    return Partitions.of(column, values)


def _values(rows: DataFrame, column: str, read: Read, plan: ResolvedPlan) -> set[str | None]:
    require_partition_column(plan.node, read.label, rows.columns)
    # As text: Spark would convert a collected TIMESTAMP to this machine's zone.
    kind = rows.schema[column].dataType.jsonValue()
    value_rows = rows.select(F.col(quoted(column)).cast("string")).distinct().collect()
    return {same_spelling(row[0], kind) for row in value_rows}
