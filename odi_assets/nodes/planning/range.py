"""Bounded runs (backfills, ``--from/--to``): what a range means for a node, and what it reads of each source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from itertools import islice

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig, ValuesConfig, WriteMode
from odi_assets.delta.files.spans import NamedPartitions, PartitionBox, Span, TimePartition
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import require_sources_of_table
from odi_assets.nodes.planning.known_rows import require_known_rows
from odi_assets.nodes.planning.partition_calendar import PartitionCalendar
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.same_history import in_same_history
from odi_assets.nodes.planning.start import hwm_in_target, marks_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds, RunRequest
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

    A partitioned node replaces whole partitions. If its keys do not hold the partition columns, a key may be in another
    partition too, so its rows are upserted. A node without partitions that writes by keys takes a range of its cursor.

    Raises:
        ConfigError: it takes no range; the remedy is named.
    """
    write, partition = node.config.write, node.config.partition
    if partition is not None:
        in_keys = {name.lower() for name in partition.columns} <= {name.lower() for name in write.keys}
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


def require_ranges(project: Project, keys: Iterable[NodeKey], request: RunRequest) -> None:
    """Raises ConfigError unless each of ``keys`` takes the part that ``request`` asks for; names all that do not."""
    wrong: list[ConfigError] = []
    for key in keys:
        try:
            _partitions_within(Node.of(project, key), request)
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        lines = "\n".join(f"  {error.message}" for error in wrong)
        raise ConfigError(
            f"{len(wrong)} of the nodes take no such {'range' if request.bounds else 'partition'}:\n{lines}",
            fix="name the nodes that do with --node",
        )


def planned_range(plan: NodePlan) -> NodePlan:
    """``plan`` with the reads that the node's rows of its request's part are made of. They move no mark.

    Raises:
        ConfigError: the node takes no such part, or rows that it is made of are gone from a source.
        IdentityMismatchError: its table has rows of another source, or rows that it would not find.
    """
    if plan.target.exists:
        require_sources_of_table(plan.node, plan.start, plan.target)
        require_known_rows(plan.node, plan.target, bounded=True)
    wanted, bounds = _partitions_within(plan.node, plan.request), plan.request.bounds
    way, sources = range_way(plan.node), plan.node.sources
    write = replace(plan.write, mode=way.mode)
    if way.source is not None:
        assert bounds is not None
        reads = tuple(
            source.between(bounds.start, bounds.end) if source.name == way.source else source.whole()
            for source in sources
        )
        return replace(plan, reads=reads, write=write)
    if wanted.box is not None and plan.target.exists:
        wanted.box.require(plan.target.columns)
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
    columns, stored = read.snapshot.columns, plan.target.columns if plan.target.exists else {}
    alike = [
        name for name, kind in (columns or {}).items() if plan.node.config.transform is None or kind == stored.get(name)
    ]
    box = wanted.box.within(alike) if wanted.box is not None else None
    return read if box is None else read.in_partitions(Partitions(box.columns[0], box=box))


def _partitions_within(node: Node, request: RunRequest) -> Partitions:
    """The partitions of the node that ``request`` asks for; none for a node that takes a range of a cursor.

    Raises:
        ConfigError: the node has no such partitions.
    """
    partition, bounds = node.config.partition, request.bounds
    named = partition.named if partition is not None else None
    if request.partitions and named is None:
        raise ConfigError(
            f"{node} has no partitions that are named by a value" + (", but of times" if partition is not None else ""),
            fix="run a range of times of it: --from TIME --to TIME"
            if partition is not None
            else "add `partition: {column: …, values: […]}` to the node, or run it without --partition",
            node=str(node),
        )
    sides: list[Span | NamedPartitions] = []
    if bounds is not None and partition is not None:
        if not partition.is_timed:
            raise ConfigError(
                f"{node} has no partitions of times: each is a value of `{partition.column}`",
                fix=f"name partitions of it: --partition {_some(partition.named)}",
                node=str(node),
            )
        sides.append(Span(partition.column, partitions_within(partition, bounds), partition.every))
    if request.partitions and named is not None:
        sides.append(NamedPartitions(named.column, _known(node, named, request.partitions)))
    if partition is None:
        return Partitions(range_way(node).column)
    return Partitions(sides[0].column, box=PartitionBox(tuple(sides)))


def _known(node: Node, named: ValuesConfig, wanted: Sequence[str]) -> tuple[str, ...]:
    """``wanted``, each once."""
    unknown = [name for name in wanted if not named.is_dynamic and name not in named.values]
    if unknown:
        known = f"its partitions are {', '.join(named.values)}"
        raise ConfigError(f"{node} has no partition {', '.join(unknown)}", fix=known, node=str(node))
    return tuple(dict.fromkeys(wanted))


def _some(named: ValuesConfig | None) -> str:
    return named.values[0] if named is not None and named.values else "VALUE"


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
        partitions = tuple(islice(calendar.between(bounds.start, bounds.end), _LIMIT + 1))
    except OverflowError as error:
        raise ConfigError(f"a partition of the range {bounds} is not within the years 1 to 9999") from error
    if len(partitions) > _LIMIT:
        raise ConfigError(f"the range {bounds} holds more than {_LIMIT:,} partitions", fix="run it in parts")
    return partitions
