"""Partitions of a node as Dagster's: definitions, the range a run is bounded to, and the keys of what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from functools import cached_property
from typing import Any

import dagster as dg

from odi_assets.config.models import PartitionConfig, ValuesConfig, is_key
from odi_assets.delta.files.spans import NamedPartitions
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.planning.partition_calendar import KEYS, PartitionCalendar
from odi_assets.nodes.request import Bounds

ROW_COUNT = "dagster/partition_row_count"


def partitions_definition(config: PartitionConfig, name: str) -> dg.PartitionsDefinition[Any]:
    """The partitions of a node: times, values of a column, or both.

    Args:
        name: under which the instance keeps partitions that runs add; unique among assets.
    """
    named = config.named
    of_values = None if named is None else _of_values(named, name)
    if not config.is_timed:
        assert of_values is not None
        return of_values
    of_times = _of_times(config)
    if named is None or of_values is None:
        return of_times
    return dg.MultiPartitionsDefinition({config.column: of_times, named.column: of_values})


def _of_values(named: ValuesConfig, name: str) -> dg.PartitionsDefinition[Any]:
    if named.is_dynamic:
        return dg.DynamicPartitionsDefinition(name=name)
    return dg.StaticPartitionsDefinition(list(named.values))


def _of_times(config: PartitionConfig) -> dg.TimeWindowPartitionsDefinition:
    """The time windows of a partitioned node; ``end`` is the first day without one."""
    hour, minute = config.hour_offset, config.minute_offset
    start = datetime.combine(config.first_day, time())
    end = None if config.end is None else datetime.combine(config.end, time(hour, minute))
    zone = config.timezone
    if config.every == "hour":
        return dg.HourlyPartitionsDefinition(start, end, minute, zone)
    if config.every == "day":
        return dg.DailyPartitionsDefinition(start, end, minute, hour, zone)
    if config.every == "week":
        weekday = config.first_day.isoweekday() % 7
        return dg.WeeklyPartitionsDefinition(start, end, minute, hour, weekday, zone)
    if config.every == "month":
        return dg.MonthlyPartitionsDefinition(start, end, minute, hour, timezone=zone)
    schedule = f"{minute} {hour} 1 1 *"
    return dg.TimeWindowPartitionsDefinition(start, KEYS["year"], end, cron_schedule=schedule, timezone=zone)


def partition_mapping(config: PartitionConfig | None, above: PartitionConfig | None) -> dg.PartitionMapping | None:
    """Which partitions of a node ``above`` a node reads; None for Dagster's own way, by their times or by equal values.

    All partitions above are meant where Dagster has no way: between time zones, and between different values.
    """
    if config is None or above is None:
        return None
    if config.is_timed and above.is_timed and config.timezone != above.timezone:
        return dg.AllPartitionMapping()
    if config.is_timed and above.is_timed and None in (config.also, above.also):
        return None
    if any(partition.named is not None and partition.named.is_dynamic for partition in (config, above)):
        return dg.AllPartitionMapping()
    own, other = (partitions_definition(partition, "") for partition in (config, above))
    sides = [*_sides(own), *_sides(other)]
    return None if own == other or other in sides or own in sides else dg.AllPartitionMapping()


def _sides(definition: dg.PartitionsDefinition[Any]) -> list[dg.PartitionsDefinition[Any]]:
    several = definition.partitions_defs if isinstance(definition, dg.MultiPartitionsDefinition) else ()
    return [part.partitions_def for part in several]


def add_partitions(instance: dg.DagsterInstance, name: str, config: PartitionConfig, table: TableHandle) -> None:
    """Let the instance know the partitions of values that rows of the table have, where runs add them.

    Args:
        name: as in :func:`partitions_definition`.
    """
    if config.named is None or not config.named.is_dynamic:
        return
    keys = PartitionKeys(config, table.columns if table.exists else {}).dynamic(table)
    if new := sorted(keys - set(instance.get_dynamic_partitions(name))):
        instance.add_dynamic_partitions(name, new)


def backfill_policy(config: PartitionConfig) -> dg.BackfillPolicy:
    """How many partitions a run of a backfill takes."""
    most = config.max_partitions_per_run
    return dg.BackfillPolicy.single_run() if most is None else dg.BackfillPolicy.multi_run(most)


def run_part(
    context: dg.OpExecutionContext, config: PartitionConfig, name: str
) -> tuple[Bounds | None, tuple[str, ...]]:
    """The range of time and the values of a column that this run is bounded to; neither for one without partitions."""
    if context.has_partition_key:
        first = last = str(context.partition_key)
    elif context.has_partition_key_range:
        first, last = map(str, context.partition_key_range)
    else:
        return None, ()
    # The context has no window here: in a pipeline's job, assets have no partitions (see ``jobs``).
    definition = partitions_definition(config, name)
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return _bounds(definition, first, last), ()
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        if not isinstance(definition, dg.MultiPartitionsDefinition):
            return None, _keys(definition, first, last)
        ends = [definition.get_partition_key_from_str(key).keys_by_dimension for key in (first, last)]
        bounds: Bounds | None = None
        values: tuple[str, ...] = ()
        for part in definition.partitions_defs:
            of_part = [end[part.name] for end in ends]
            if isinstance(part.partitions_def, dg.TimeWindowPartitionsDefinition):
                bounds = _bounds(part.partitions_def, *of_part)
            else:
                values = _keys(part.partitions_def, *of_part)
        return bounds, values


def _bounds(definition: dg.TimeWindowPartitionsDefinition, first: str, last: str) -> Bounds:
    start, end = (definition.time_window_for_partition_key(key) for key in (first, last))
    return Bounds.of(start.start, end.end)


def _keys(definition: dg.PartitionsDefinition[Any], first: str, last: str) -> tuple[str, ...]:
    return tuple(definition.get_partition_keys_in_range(dg.PartitionKeyRange(first, last)))


@dataclass(frozen=True)
class PartitionSize:
    """What a table has of a partition. Files without statistics count as 0 rows."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    @property
    def metadata(self) -> dict[str, int]:
        """What Dagster shows of it."""
        return {ROW_COUNT: self.rows, "partition_bytes": self.bytes, "partition_files": self.files}


class PartitionKeys:
    """Dagster's keys of partitions of a node's table.

    Args:
        kinds: the types of the table's columns, as Delta has them.
    """

    def __init__(self, config: PartitionConfig, kinds: Mapping[str, Any]) -> None:
        self._config, self._kinds = config, kinds
        self._known: dict[tuple[str | None, ...], str | None] = {}
        if config.is_timed:
            self._calendar, self._times = PartitionCalendar(config), _of_times(config)

    def of(self, *values: str | None) -> str | None:
        """The key of the partition that values of the node's partition columns belong to. NULL, values outside the
        definition and values that do not say have none."""
        if values not in self._known:
            pairs = zip(self._config.columns, values, strict=True)
            keys_by_column = {column: self._of_column(column, value) for column, value in pairs}
            # Dagster sorts the columns by their names.
            keys = [keys_by_column[column] for column in sorted(keys_by_column)]
            self._known[values] = None if None in keys else "|".join(map(str, keys))
        return self._known[values]

    def of_all(self, values: Iterable[tuple[str | None, ...]]) -> list[str]:
        """The keys of values, each once, in order."""
        return sorted({key for row_values in values if (key := self.of(*row_values)) is not None})

    def rows(self, rows: Mapping[tuple[str | None, ...], int]) -> Mapping[str, int]:
        """Rows by values of the partition columns, counted by key; without those that have none."""
        counts = Counter[str]()
        for values, count in rows.items():
            if (key := self.of(*values)) is not None:
                counts[key] += count
        return counts

    def sizes(self, table: TableHandle) -> dict[str, PartitionSize]:
        """What the table has of each partition."""
        sizes: dict[str, PartitionSize] = {}
        for file in table.live_files:
            if (key := self.of(*map(file.partition.get, self._config.columns))) is not None:
                size = sizes.get(key, PartitionSize())
                sizes[key] = PartitionSize(size.rows + (file.rows or 0), size.bytes + file.size, size.files + 1)
        return sizes

    def dynamic(self, table: TableHandle) -> set[str]:
        """Of partitions that runs add: those that the table has."""
        named = self._config.named
        if named is None or not named.is_dynamic or not table.exists:
            return set()
        values = {file.partition.get(named.column) for file in table.live_files}
        return {key for value in values if (key := self._of_column(named.column, value)) is not None}

    def _of_column(self, column: str, value: str | None) -> str | None:
        named, kind = self._config.named, self._kinds.get(column)
        if named is None or column != named.column:
            partition = self._calendar.partition_of(value, kind)
            return partition.key if partition is not None and self._has(partition.key) else None
        if named.is_dynamic:
            return value if value is not None and is_key(value) else None
        return self._values.key_of(value, kind)

    @cached_property
    def _values(self) -> NamedPartitions:
        named = self._config.named
        assert named is not None
        return NamedPartitions(named.column, named.values)

    @cached_property
    def _there(self) -> dict[str, bool]:
        return {}

    def _has(self, key: str) -> bool:
        if key not in self._there:
            self._there[key] = self._times.has_partition_key(key)
        return self._there[key]
