"""Ranges of a partition column, for bounded runs: backfills and ``--from/--to``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from odi_assets.config.models import PartitionConfig
from odi_assets.errors import ConfigError

_LIMIT = 100_000


@dataclass(frozen=True)
class Bounds:
    """A half-open range: ``start`` is in it, ``end`` is not. Both are UTC."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, start: str | date | datetime, end: str | date | datetime) -> Bounds:
        """Bounds of dates, times or their ISO texts.

        Raises:
            ConfigError: one is not a date or time, or they hold nothing.
        """
        bounds = cls(_moment(start), _moment(end))
        if bounds.start >= bounds.end:
            raise ConfigError(f"the range from {start} to {end} holds nothing", fix="the end comes after the start")
        return bounds

    def __str__(self) -> str:
        return f"from {_short(self.start)} until before {_short(self.end)}"


def _moment(value: str | date | datetime) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ConfigError(
                f"{value!r} is not a date or a time", fix="write it as 2013-01-31 or 2013-01-31T05:00"
            ) from error
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return in_utc(value)


def in_utc(moment: datetime) -> datetime:
    """``moment`` in UTC; one without a zone is in UTC already.

    Raises:
        ConfigError: it lies outside of the years 1 to 9999 there.
    """
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ConfigError(f"{moment.isoformat()} is no time of the years 1 to 9999 in UTC") from error


def _short(moment: datetime) -> str:
    return (
        moment.date().isoformat() if moment.time() == time() else moment.replace(tzinfo=None).isoformat("T", "minutes")
    )


def partition_values(partition: PartitionConfig, bounds: Bounds) -> tuple[str, ...]:
    """The partitions that begin in ``bounds``, as Delta writes them.

    Raises:
        ConfigError: the bounds lie outside the partitions, or cut one in two.
    """
    moment, values = bounds.start, []
    if _floor(moment, partition) != moment or _floor(bounds.end, partition) != bounds.end:
        raise ConfigError(
            f"the range {bounds} cuts a partition in two: there is one per {partition.every}",
            fix=f"begin and end with a whole {partition.every}",
        )
    while moment < bounds.end:
        values.append(partition_value(partition, moment))
        moment = _next(moment, partition)
        if len(values) > _LIMIT:
            raise ConfigError(f"the range {bounds} holds more than {_LIMIT:,} partitions", fix="run it in parts")
    return tuple(values)


def partition_value(partition: PartitionConfig, moment: datetime) -> str:
    """The value in the table of the partition that begins at ``moment``."""
    return f"{moment:%Y-%m-%d %H:%M:%S}" if partition.every == "hour" else f"{moment:%Y-%m-%d}"


def _floor(moment: datetime, partition: PartitionConfig) -> datetime:
    hour = moment.replace(minute=0, second=0, microsecond=0)
    if partition.every == "hour":
        return hour
    return hour.replace(hour=0) if partition.every == "day" else hour.replace(hour=0, day=1)


def _next(moment: datetime, partition: PartitionConfig) -> datetime:
    if partition.every == "hour":
        return moment + timedelta(hours=1)
    if partition.every == "day":
        return moment + timedelta(days=1)
    return (moment + timedelta(days=32)).replace(day=1)
