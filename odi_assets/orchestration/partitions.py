"""Partitions of a node as Dagster's: definitions, the range a run is bounded to, and the keys of what was written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime

import dagster as dg

from odi_assets.config.models import PartitionConfig
from odi_assets.nodes.bounds import Bounds

_KEY_FORMAT = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d"}


def partitions_definition(config: PartitionConfig) -> dg.TimeWindowPartitionsDefinition:
    """The time windows of a partitioned node, in UTC; ``end`` is the first day that has none any more."""
    if config.every == "hour":
        return dg.HourlyPartitionsDefinition(_midnight(config.start), _midnight(config.end) if config.end else None)
    kind = dg.DailyPartitionsDefinition if config.every == "day" else dg.MonthlyPartitionsDefinition
    return kind(config.start.isoformat(), end_date=config.end.isoformat() if config.end else None)


def run_bounds(context: dg.AssetExecutionContext, config: PartitionConfig | None) -> Bounds | None:
    """The half-open range of the partition column that this run is bounded to; None for a run without partitions."""
    if config is None or not (context.has_partition_key or context.has_partition_key_range):
        return None
    window = context.partition_time_window
    return Bounds.of(window.start, window.end)


def partition_keys(values: Iterable[str | None], config: PartitionConfig) -> list[str]:
    """Dagster's keys of the partitions with these column values; NULL and values outside the definition have none."""
    definition = partitions_definition(config)
    keys = {_key(datetime.fromisoformat(value), config) for value in values if value is not None}
    return sorted(key for key in keys if definition.has_partition_key(key))


def _key(moment: datetime, config: PartitionConfig) -> str:
    # A month is named after its first day.
    return (moment.replace(day=1) if config.every == "month" else moment).strftime(_KEY_FORMAT[config.every])


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
