"""Partitions of a node as Dagster's: definitions, the range a run is bounded to, and the keys of what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

import dagster as dg

from odi_assets.config.models import PartitionConfig
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.request import Bounds

_KEY_FORMAT = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d"}


def partitions_definition(config: PartitionConfig) -> dg.TimeWindowPartitionsDefinition:
    """The time windows of a partitioned node, in UTC; ``end`` is the first day without one."""
    if config.every == "hour":
        return dg.HourlyPartitionsDefinition(_midnight(config.start), _midnight(config.end) if config.end else None)
    kind = dg.DailyPartitionsDefinition if config.every == "day" else dg.MonthlyPartitionsDefinition
    return kind(config.start.isoformat(), end_date=config.end.isoformat() if config.end else None)


def run_bounds(context: dg.OpExecutionContext, config: PartitionConfig) -> Bounds | None:
    """The half-open range of the partition column that this run is bounded to; None for a run without partitions."""
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


def partition_keys(values: Iterable[str | None], config: PartitionConfig) -> list[str]:
    """Dagster's keys of the partitions with these column values; NULL and values outside the definition have none."""
    definition = partitions_definition(config)
    keys = {_key(datetime.fromisoformat(value), config) for value in values if value is not None}
    return sorted(key for key in keys if definition.has_partition_key(key))


def rows_by_key(rows: Mapping[str | None, int], config: PartitionConfig) -> Mapping[str, int]:
    """Rows by value of the partition column, counted by Dagster's key; without those that have none."""
    counts = Counter[str]()
    for value, count in rows.items():
        for key in partition_keys([value], config):
            counts[key] += count
    return counts


@dataclass(frozen=True)
class PartitionSize:
    """What a table has of a partition. Files without statistics count as 0 rows."""

    rows: int = 0
    bytes: int = 0
    files: int = 0


def sizes_by_partition(table: TableHandle, config: PartitionConfig) -> dict[str, PartitionSize]:
    """What the table has of each partition, by Dagster's key."""
    sizes: dict[str, PartitionSize] = {}
    for file in table.live_files:
        value = file.partition.get(config.column)
        if value is not None:
            key = _key(datetime.fromisoformat(value), config)
            one = sizes.get(key, PartitionSize())
            sizes[key] = PartitionSize(one.rows + (file.rows or 0), one.bytes + file.size, one.files + 1)
    return sizes


def _key(moment: datetime, config: PartitionConfig) -> str:
    # A month is named after its first day.
    return (moment.replace(day=1) if config.every == "month" else moment).strftime(_KEY_FORMAT[config.every])


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
