"""Partitions of a node as Dagster's: definitions, the range a run is bounded to, and the keys of what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

import dagster as dg

from odi_assets.config.models import PartitionConfig
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.planning.partition_calendar import KEYS, PartitionCalendar
from odi_assets.nodes.request import Bounds


def partitions_definition(config: PartitionConfig) -> dg.TimeWindowPartitionsDefinition:
    """The time windows of a partitioned node; ``end`` is the first day without one."""
    hour, minute = config.hour_offset, config.minute_offset
    start, end = (None if day is None else datetime.combine(day, time()) for day in (config.start, config.end))
    assert start is not None
    end = None if end is None else end.replace(hour=hour, minute=minute)
    zone = config.timezone
    if config.every == "hour":
        return dg.HourlyPartitionsDefinition(start, end, minute, zone)
    if config.every == "day":
        return dg.DailyPartitionsDefinition(start, end, minute, hour, zone)
    if config.every == "week":
        weekday = config.start.isoweekday() % 7
        return dg.WeeklyPartitionsDefinition(start, end, minute, hour, weekday, zone)
    if config.every == "month":
        return dg.MonthlyPartitionsDefinition(start, end, minute, hour, timezone=zone)
    schedule = f"{minute} {hour} 1 1 *"
    return dg.TimeWindowPartitionsDefinition(start, KEYS["year"], end, cron_schedule=schedule, timezone=zone)


def partition_mapping(config: PartitionConfig | None, above: PartitionConfig | None) -> dg.PartitionMapping | None:
    """Which partitions of a node ``above`` a node reads; None for Dagster's own way, by their times.

    Dagster does not map times between zones: all partitions above are meant then.
    """
    if config is None or above is None or config.timezone == above.timezone:
        return None
    return dg.AllPartitionMapping()


def backfill_policy(config: PartitionConfig) -> dg.BackfillPolicy:
    """How many partitions a run of a backfill takes."""
    most = config.max_partitions_per_run
    return dg.BackfillPolicy.single_run() if most is None else dg.BackfillPolicy.multi_run(most)


def run_bounds(context: dg.OpExecutionContext, config: PartitionConfig) -> Bounds | None:
    """The half-open range of time that this run is bounded to; None for a run without partitions."""
    if context.has_partition_key:
        first = last = str(context.partition_key)
    elif context.has_partition_key_range:
        first, last = context.partition_key_range
    else:
        return None
    # The context has no window here: in a pipeline's job, assets have no partitions (see ``jobs``).
    definition = partitions_definition(config)
    start, end = (definition.time_window_for_partition_key(key) for key in (first, last))
    return Bounds.of(start.start, end.end)


@dataclass(frozen=True)
class PartitionSize:
    """What a table has of a partition. Files without statistics count as 0 rows."""

    rows: int = 0
    bytes: int = 0
    files: int = 0


class PartitionKeys:
    """Dagster's keys of values of a node's partition column.

    Args:
        kind: the type of the column, as Delta has it.
    """

    def __init__(self, config: PartitionConfig, kind: Any) -> None:
        self._calendar, self._kind = PartitionCalendar(config), kind
        self._definition = partitions_definition(config)
        self._known: dict[str | None, str | None] = {}
        self._there: dict[str, bool] = {}

    def of(self, value: str | None) -> str | None:
        """The key of the partition that a value belongs to. NULL, values outside the definition and values that do not
        say have none."""
        if value not in self._known:
            found = self._calendar.partition_of(value, self._kind)
            self._known[value] = found.key if found is not None and self._has(found.key) else None
        return self._known[value]

    def of_all(self, values: Iterable[str | None]) -> list[str]:
        """The keys of values, each once, in order."""
        return sorted({key for value in values if (key := self.of(value)) is not None})

    def rows(self, rows: Mapping[str | None, int]) -> Mapping[str, int]:
        """Rows by value of the partition column, counted by key; without those that have none."""
        counts = Counter[str]()
        for value, count in rows.items():
            if (key := self.of(value)) is not None:
                counts[key] += count
        return counts

    def sizes(self, table: TableHandle, column: str) -> dict[str, PartitionSize]:
        """What the table has of each partition."""
        sizes: dict[str, PartitionSize] = {}
        for file in table.live_files:
            if (key := self.of(file.partition.get(column))) is not None:
                one = sizes.get(key, PartitionSize())
                sizes[key] = PartitionSize(one.rows + (file.rows or 0), one.bytes + file.size, one.files + 1)
        return sizes

    def _has(self, key: str) -> bool:
        if key not in self._there:
            self._there[key] = self._definition.has_partition_key(key)
        return self._there[key]
