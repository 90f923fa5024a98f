"""Bounded runs (backfills, ``--from/--to``): what a range means for a node, and what it reads of each source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from itertools import islice
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig, WriteMode
from odi_assets.delta.files.spans import Span, TimePartition
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.partition_calendar import PartitionCalendar
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.same_history import in_same_history
from odi_assets.nodes.planning.start import hwm_in_target, marks_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds
from odi_assets.sources.marks import Mark
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Partitions
from odi_assets.sources.source import Source

_LIMIT = 100_000
_LEAST = timedelta(microseconds=1)


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
    if wanted.span is not None and (stored := _kind_stored(plan, wanted.column)) is not None:
        wanted.span.require(stored)
    replaced = wanted if way.mode.traits.increment == "partitions" else None
    return replace(
        plan,
        reads=tuple(_in_partitions(plan, read, wanted) for read in _all_rows(plan)),
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


def _in_partitions(plan: NodePlan, read: PlannedRead, wanted: Partitions) -> PlannedRead:
    # If the transform makes the column, rows outside the range are left out after it. So are they where the column is
    # of another type in the source, which may mean other partitions by it.
    columns = read.snapshot.columns
    if columns is None or wanted.column not in columns:
        return read
    alike = plan.node.config.transform is None or columns[wanted.column] == _kind_stored(plan, wanted.column)
    return read.in_partitions(wanted) if alike else read


def _kind_stored(plan: NodePlan, column: str) -> Any:
    """The type of a column of the node's table; None if there is none yet."""
    return plan.target.columns.get(column) if plan.target.exists else None


def _partitions_within(node: Node, bounds: Bounds) -> Partitions:
    """The partitions of the node in ``bounds``; none for a node that takes a range of a cursor."""
    way, partition = range_way(node), node.config.partition
    if partition is None:
        return Partitions(way.column)
    return Partitions(way.column, span=Span(way.column, partitions_within(partition, bounds), partition.every))


def partitions_within(partition: PartitionConfig, bounds: Bounds) -> tuple[TimePartition, ...]:
    """The partitions that begin in ``bounds``, oldest first.

    Raises:
        ConfigError: the bounds cut a partition in two, or hold too many.
    """
    calendar = PartitionCalendar(partition)
    try:
        first, last = calendar.holding(bounds.start), calendar.holding(bounds.end - _LEAST)
        # In UTC: for Python, times that the clock of a zone shows twice equal no time of another zone.
        if (first.start.astimezone(UTC), last.end.astimezone(UTC)) != (bounds.start, bounds.end):
            start, end = calendar.text(first.start), calendar.text(last.end)
            raise ConfigError(
                f"the range {bounds} cuts a partition in two: there is one per {partition.every}",
                fix=f"begin and end with a whole {partition.every}: --from {start} --to {end}",
            )
        found = tuple(islice(calendar.between(bounds.start, bounds.end), _LIMIT + 1))
    except OverflowError as error:
        raise ConfigError(f"a partition of the range {bounds} is not within the years 1 to 9999") from error
    if len(found) > _LIMIT:
        raise ConfigError(f"the range {bounds} holds more than {_LIMIT:,} partitions", fix="run it in parts")
    return found
