"""Upper bounds that only a pass of Spark can tell, fixed before the sources are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.errors import IncrementError
from odi_assets.nodes.planning.plan import NodePlan, combined_hwm
from odi_assets.nodes.planning.sources import rows_are_known_by_keys
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.columns import spark_bound, ties_at
from odi_assets.sources.cursor.types import cursor_type
from odi_assets.sources.cursor.window import MOST_TIES, fixed, keeps_ties
from odi_assets.sources.model import UNKNOWN, ReadPlan
from odi_assets.sources.read import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_upper_bounds(plan: NodePlan, spark: SparkSession) -> NodePlan:
    """``plan`` with all its windows bounded, and the rows known that stand at the bounds.

    Raises:
        IncrementError: a cursor, an HWM or a row does not fit the configuration.
    """
    fixed_reads = tuple(_bounded(read, spark) for read in plan.reads)
    following = [read for read in fixed_reads if read.incremental]
    nothing = bool(following) and all(read.nothing_new for read in following)
    if not nothing and plan.moves_hwm and not rows_are_known_by_keys(plan.node.write):
        fixed_reads = tuple(_with_ties(read, spark) for read in fixed_reads)
    plan = replace(plan, reads=fixed_reads, nothing_new=nothing)
    return replace(plan, hwm_after=plan.hwm_before if nothing else combined_hwm(plan))


def _bounded(read: ReadPlan, spark: SparkSession) -> ReadPlan:
    if read.stateful is None or read.window is None or read.window.upper is not UNKNOWN:
        return read
    rows = _all_rows(read, spark)
    columns = {field.name: field.dataType.jsonValue() for field in rows.schema.fields}
    name = cursor_type(read.stateful, columns, read.label)
    read = fixed(read, name, UNKNOWN)
    if read.window is None:
        return read
    found = spark_bound(rows, read.window, read.label)
    return fixed(read, name, Bound(found.upper, found.without_cursor))


def _with_ties(read: ReadPlan, spark: SparkSession) -> ReadPlan:
    if read.window is None or read.hwm_after is None or not keeps_ties(read, by_keys=False):
        return read
    found = ties_at(_all_rows(read, spark), read.window, read.hwm_after, MOST_TIES)
    if found is None:
        raise IncrementError(
            f"more than {MOST_TIES:,} different rows of {read.label} are tied with its HWM {read.hwm_after}, and a "
            "closed boundary has to remember them",
            fix="name `write.keys`: tied rows are then looked up in the target, however many there are; or choose a "
            "finer cursor, or `boundary: open`",
            column=read.window.column,
        )
    if read.hwm_after == read.hwm_before and not read.from_start:
        # A row that was loaded stays known when the source drops it and brings it back.
        found = {row: max(found.get(row, 0), read.window.ties.get(row, 0)) for row in {*found, *read.window.ties}}
    return replace(read, ties_after=found)


def _all_rows(read: ReadPlan, spark: SparkSession) -> DataFrame:
    return load(spark, replace(read, window=None))
