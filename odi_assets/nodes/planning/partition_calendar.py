"""Where the partitions of a node begin and end: as Dagster counts them, without Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from odi_assets.config.models import PartitionConfig
from odi_assets.delta.files.spans import NUMBERS, TIMES, Span, TimePartition, is_twice, time_of
from odi_assets.delta.partition_values import INTEGERS
from odi_assets.errors import ConfigError

KEYS = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "week": "%Y-%m-%d", "month": "%Y-%m-%d", "year": "%Y"}
"""The names of partitions in Dagster, by their length."""
_TEXTS = ("%Y-%m-%d-%H:%M%z", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y-%m")
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_OF_CHANGES = {1, 2, 3}
"""The hours in which clocks change, for Dagster: it moves what begins within them."""


@dataclass(frozen=True)
class PartitionCalendar:
    """The partitions of a node, one after the other, without a beginning and an end.

    Example:
        >>> config = PartitionConfig(column="at", start=date(2024, 1, 1), timezone="Europe/Berlin", hour_offset=6)
        >>> calendar = PartitionCalendar(config)
        >>> one = calendar.holding(datetime(2024, 3, 31, 4, 30, tzinfo=UTC))
        >>> one.key, one.start.isoformat(), one.end.isoformat()
        ('2024-03-31', '2024-03-31T06:00:00+02:00', '2024-04-01T06:00:00+02:00')
    """

    config: PartitionConfig

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.config.timezone)

    def holding(self, moment: datetime) -> TimePartition:
        """The partition that a moment is in.

        Raises:
            OverflowError: it begins or ends beyond the years 1 to 9999.
        """
        if self.config.every == "hour":
            wall = moment.astimezone(self.zone)
            past = timedelta(
                minutes=(wall.minute - self.config.minute_offset) % 60,
                seconds=wall.second,
                microseconds=wall.microsecond,
            )
            start = (moment.astimezone(UTC) - past).astimezone(self.zone)
            return self._partition(start, self._later(start))
        day = self._first_day((_naive(moment.astimezone(self.zone)) - self._offset).date())
        start = self._begins(day)
        while _utc(start) > _utc(moment):
            day = self._first_day(day - _DAY)
            start = self._begins(day)
        end = self._begins(self._next_day(day))
        while _utc(end) <= _utc(moment):
            day, start = self._next_day(day), end
            end = self._begins(self._next_day(day))
        return self._partition(start, end)

    def following(self, partition: TimePartition) -> TimePartition:
        """The partition after ``partition``. Raises OverflowError beyond the year 9999."""
        return self.holding(partition.end)

    def between(self, start: datetime, end: datetime) -> Iterator[TimePartition]:
        """The partitions that begin at ``start`` or later, and before ``end``; ``start`` is where one begins."""
        partition = self.holding(start)
        while _utc(partition.start) < _utc(end):
            yield partition
            partition = self.following(partition)

    def partition_of(self, value: str | None, kind: Any) -> TimePartition | None:
        """The partition that a value of the partition column, as Delta writes it, belongs to; None if it does not say.

        Args:
            kind: the type of the column, as Delta has it.
        """
        if value is None:
            return None
        candidates = self._near(time_of(value), kind) if kind in TIMES else self._named(value, kind)
        for partition in candidates:
            try:
                if Span(self.config.column, (partition,), self.config.every).holds(value, kind):
                    return partition
            except ConfigError:
                # Hours that the clock shows twice, and types that do not say it.
                continue
        return None

    def text(self, moment: datetime) -> str:
        """A bound of a range as ``--from`` and ``--to`` take it, by the clock of the partitions."""
        wall = moment.astimezone(self.zone)
        if self.config.timezone != "UTC":
            return wall.isoformat(timespec="minutes")
        return time_text(wall)

    def _near(self, moment: datetime | None, kind: str) -> Iterator[TimePartition]:
        """Partitions of which one holds a date or time."""
        if moment is None:
            return
        try:
            partition = self.holding(moment.replace(tzinfo=UTC if kind == "timestamp" else self.zone))
            yield partition
            yield self.following(partition)
            yield self.holding(_utc(partition.start) - timedelta(microseconds=1))
        except OverflowError:
            return

    def _named(self, value: str, kind: Any) -> Iterator[TimePartition]:
        """Partitions of which one may have this name."""
        patterns = [NUMBERS[self.config.every]] if kind in INTEGERS else [KEYS[self.config.every], *_TEXTS]
        for pattern in patterns:
            try:
                label = _naive(datetime.strptime(value, pattern))
                for wall in (label, label + self._offset):
                    for fold in (0, 1):
                        yield self.holding(wall.replace(tzinfo=self.zone, fold=fold))
            except (ValueError, OverflowError):
                continue

    def _partition(self, start: datetime, end: datetime) -> TimePartition:
        key = start.strftime(KEYS[self.config.every])
        if self.config.every == "hour" and start.fold and is_twice(start):
            key += start.strftime("%z")
        return TimePartition(key, start, end)

    @property
    def _offset(self) -> timedelta:
        return timedelta(hours=self.config.hour_offset, minutes=self.config.minute_offset)

    def _later(self, moment: datetime) -> datetime:
        return (moment.astimezone(UTC) + _HOUR).astimezone(self.zone)

    def _begins(self, day: date) -> datetime:
        """When the partition begins that begins on a day."""
        hour, minute = self.config.hour_offset, self.config.minute_offset
        start = datetime.combine(day, time(hour, minute), self.zone)
        if hour not in _OF_CHANGES:
            return start
        if _naive(_utc(start).astimezone(self.zone)) != _naive(start):
            # The clock does not show this time on that day: it is the first that it shows after.
            saved = self.zone.dst(start + _HOUR) or timedelta()
            start = start.replace(minute=0) + saved
        return start.replace(fold=1) if is_twice(start) else start

    def _first_day(self, day: date) -> date:
        if self.config.every == "week":
            return day - timedelta(days=(day.weekday() - self.config.first_day.weekday()) % 7)
        if self.config.every == "month":
            return day.replace(day=1)
        return day.replace(month=1, day=1) if self.config.every == "year" else day

    def _next_day(self, day: date) -> date:
        if self.config.every == "week":
            return day + 7 * _DAY
        if self.config.every == "month":
            return (day + timedelta(days=32)).replace(day=1)
        return (day + timedelta(days=366)).replace(month=1, day=1) if self.config.every == "year" else day + _DAY


def time_text(moment: datetime) -> str:
    """A bound of a range in UTC as ``--from`` and ``--to`` take it."""
    return f"{moment:%Y-%m-%d}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%Y-%m-%dT%H:%M}"


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None, fold=0)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
