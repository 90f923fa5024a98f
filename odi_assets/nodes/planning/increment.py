"""How much of its sources an increment needs: the rows they gained alone, whole partitions, or all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

from odi_assets.config.models import WriteMode
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.sources.reads import Affected, Partitions, PlannedRead


def planned_increment(plan: NodePlan) -> NodePlan:
    """``plan``, whose reads are of what each source gained, with as much more as its table needs.

    Raises:
        ConfigError: the increments of several sources do not make the rows of the node.
        IncrementError: rows that are needed cannot be read any more.
    """
    following = [read for read in plan.reads if read.follows]
    if following and all(read.nothing_new for read in following):
        return replace(plan, nothing_new=True)
    scope = plan.write.mode.traits.increment
    rewrites = any(read.rewrites for read in plan.reads)
    if scope == "partitions" and plan.target.exists and any(_gained(read) for read in plan.reads):
        return _by_partitions(plan)
    if following and (scope == "table" or (rewrites and (plan.target.exists or scope == "partitions"))):
        # A table as a whole shows its sources as they are; the increment only decides whether there is anything to do.
        return _read_whole(plan)
    if len(following) > 1:
        names = ", ".join(f"`{read.name}`" for read in following)
        raise ConfigError(
            f"{plan.key}: rows of {names} together make its rows, so {plan.write.mode.value} of an increment would "
            "miss those that meet rows read before",
            fix="make one input incremental, or partition the node and write with partition_overwrite",
            node=str(plan.key),
        )
    return plan


def _gained(read: PlannedRead) -> bool:
    return read.is_part and not read.nothing_new


def _read_whole(plan: NodePlan) -> NodePlan:
    reads = tuple(read.whole() for read in plan.reads)
    return replace(plan, reads=reads, write=replace(plan.write, mode=WriteMode.OVERWRITE))


def _by_partitions(plan: NodePlan) -> NodePlan:
    """Compute each partition that gained rows from all of its rows, now or once it is known which those are."""
    column = partition_column(plan)
    affected = reduce(or_, (read.affected(column, str(plan.key)) for read in plan.reads), Affected())
    if affected.everything:
        return _read_whole(plan)
    if affected.by_rows:
        return replace(plan, recompute=column)
    wanted = Partitions.of(column, affected.values)
    reads = tuple(read.in_partitions(wanted) if read.is_part else read for read in plan.reads)
    return replace(plan, reads=reads, write=replace(plan.write, replace=wanted))


def partition_column(plan: NodePlan) -> str:
    """The column whose partitions a node of partitions replaces."""
    partition = plan.node.config.partition
    return partition.column if partition is not None else plan.node.config.write.partition_by[0]
