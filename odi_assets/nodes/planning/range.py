"""Bounded runs (backfills, ``--from/--to``): what a range means for a node, and what it reads of each source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig, WriteMode
from odi_assets.delta.files.spans import Span
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.same_history import in_same_history
from odi_assets.nodes.planning.start import hwm_in_target, marks_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds
from odi_assets.sources.marks import Mark
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Partitions
from odi_assets.sources.source import Source

Unit = Literal["hour", "day", "month"]
"""The lengths of a partition."""
_LIMIT = 100_000


@dataclass(frozen=True)
class RangeWay:
    """What a range means for a node.

    Attributes:
        column: the partition column of its table, or the cursor column of a source.
        source: the source whose cursor is bounded; None for a range of partitions.
        mode: how the rows of the range are written.
    """

    column: str
    source: str | None
    mode: WriteMode


def range_way(node: Node) -> RangeWay:
    """What a range means for ``node``.

    A partitioned node replaces whole partitions. If its keys do not hold the partition column, a key may be in another
    partition too, so its rows are upserted. A node without partitions that writes by keys takes a range of its cursor.

    Raises:
        ConfigError: it takes no range; the remedy is named.
    """
    write, partition = node.config.write, node.config.partition
    if partition is not None:
        in_keys = partition.column.lower() in [name.lower() for name in write.keys]
        by_keys = write.mode.traits.needs_keys and not in_keys
        return RangeWay(partition.column, None, write.mode if by_keys else WriteMode.PARTITION_OVERWRITE)
    if not write.mode.traits.needs_keys:
        appends = not write.mode.traits.takes_rows_again
        why = "would append its rows again" if appends else "cannot be separated from the other rows"
        raise ConfigError(
            f"{node} has no `partition`: with {write.mode.value}, a range {why}",
            fix="add `partition: {column: …, start: …}` to the node, or write it with mode upsert and `keys`; "
            "or load all of it with --full-refresh",
            node=str(node),
        )
    cursors = {source.name: source.cursor for source in node.sources if source.cursor}
    if len(cursors) != 1:
        raise ConfigError(
            f"{node} has no `partition`, and {'no' if not cursors else 'more than one'} source of it has a cursor "
            "column to take a range of",
            fix="add `partition: {column: …, start: …}` to the node, or read with `incremental: {mode: stateful, "
            "column: …}`; or load all of it with --full-refresh",
            node=str(node),
        )
    ((source, column),) = cursors.items()
    return RangeWay(column, source, write.mode)


def require_ranges(project: Project, keys: Iterable[NodeKey], bounds: Bounds) -> None:
    """Raises ConfigError unless each of ``keys`` takes this range; names all that do not."""
    wrong: list[ConfigError] = []
    for key in keys:
        try:
            _partitions_within(Node.of(project, key), bounds)
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        lines = "\n".join(f"  {error.message}" for error in wrong)
        raise ConfigError(
            f"{len(wrong)} of the nodes take no such range:\n{lines}", fix="name the nodes that do with --node"
        )


def planned_range(plan: NodePlan, bounds: Bounds) -> NodePlan:
    """``plan`` with the reads that the node's rows in ``bounds`` are made of. They move no mark.

    Raises:
        ConfigError: the node takes no such range, or rows that it is made of are gone from a source.
    """
    way, sources = range_way(plan.node), plan.node.sources
    write = replace(plan.write, mode=way.mode)
    if way.source is not None:
        reads = tuple(
            source.between(bounds.start, bounds.end) if source.name == way.source else source.whole()
            for source in sources
        )
        return replace(plan, reads=reads, write=write)
    wanted = _partitions_within(plan.node, bounds)
    replaced = wanted if way.mode.traits.increment == "partitions" else None
    return replace(
        plan,
        reads=tuple(_in_partitions(read, wanted) for read in _all_rows(plan)),
        write=replace(write, replace=replaced, within=wanted),
    )


def _all_rows(plan: NodePlan) -> list[PlannedRead]:
    """What a range is made of: all rows of the sources. A node that appends takes only what its increments have loaded,
    because they will append the rest."""
    node = plan.node
    if node.config.write.mode.traits.takes_rows_again:
        return [source.whole() for source in node.sources]
    hwm = hwm_in_target(node, plan.start, plan.target)
    start = replace(plan.start, hwm=hwm)
    marks = in_same_history(node, marks_of(node, start, plan.target), plan.target)
    return [
        _loaded(node, source, marks.get(source.name)) if source.follows else source.whole() for source in node.sources
    ]


def _loaded(node: Node, source: Source, mark: Mark | None) -> PlannedRead:
    if mark is not None:
        return source.loaded(mark)
    raise ConfigError(
        f"{node} appends, and nothing of {source.label} was loaded yet: its first run would repeat the range",
        fix=f"run it first (odi run {node.command}); a range can be run again then",
        node=str(node),
    )


def _in_partitions(read: PlannedRead, wanted: Partitions) -> PlannedRead:
    # If the transform makes the column, rows outside the range are left out after it.
    columns = read.snapshot.columns
    return read if columns is None or wanted.column not in columns else read.in_partitions(wanted)


def _partitions_within(node: Node, bounds: Bounds) -> Partitions:
    """The partitions of the node in ``bounds``; none for a node that takes a range of a cursor."""
    way, partition = range_way(node), node.config.partition
    if partition is None:
        return Partitions(way.column)
    return Partitions(way.column, partition_values(partition, bounds), Span(way.column, bounds.start, bounds.end))


def partition_values(partition: PartitionConfig, bounds: Bounds) -> tuple[str, ...]:
    """The partitions that begin in ``bounds``, as Delta writes them.

    Raises:
        ConfigError: the bounds cut a partition in two, or hold too many.
    """
    moment, values = bounds.start, []
    if floor_of(moment, partition.every) != moment or floor_of(bounds.end, partition.every) != bounds.end:
        raise ConfigError(
            f"the range {bounds} cuts a partition in two: there is one per {partition.every}",
            fix=f"begin and end with a whole {partition.every}",
        )
    while moment < bounds.end:
        values.append(partition_value(partition, moment))
        moment = next_of(moment, partition.every)
        if len(values) > _LIMIT:
            raise ConfigError(f"the range {bounds} holds more than {_LIMIT:,} partitions", fix="run it in parts")
    return tuple(values)


def partition_value(partition: PartitionConfig, moment: datetime) -> str:
    """The value in the table of the partition that begins at ``moment``."""
    return f"{moment:%Y-%m-%d %H:%M:%S}" if partition.every == "hour" else f"{moment:%Y-%m-%d}"


def floor_of(moment: datetime, every: Unit) -> datetime:
    """The beginning of the hour, day or month that ``moment`` is in."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    if every == "hour":
        return hour
    return hour.replace(hour=0) if every == "day" else hour.replace(hour=0, day=1)


def next_of(moment: datetime, every: Unit) -> datetime:
    """The end of the hour, day or month that begins at ``moment``. Raises OverflowError beyond the year 9999."""
    if every == "hour":
        return moment + timedelta(hours=1)
    if every == "day":
        return moment + timedelta(days=1)
    return (moment + timedelta(days=32)).replace(day=1)
