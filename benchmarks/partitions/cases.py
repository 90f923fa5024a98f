"""Rows around a change of the clock, and the partition of each by arithmetic of dates and ``zoneinfo`` alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from itertools import pairwise, product
from typing import Any
from zoneinfo import ZoneInfo

EVERY = ("hour", "day", "week", "month", "year")
KINDS = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "STRING", "INT")
DELTA = {"TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz", "DATE": "date", "STRING": "string"}
DELTA["INT"] = "integer"
"""The types as Delta's log writes them."""
CHANGES = {
    ("Europe/Berlin", "forward"): date(2024, 3, 31),
    ("Europe/Berlin", "back"): date(2024, 10, 27),
    ("America/Havana", "forward"): date(2024, 3, 10),
    ("America/Havana", "back"): date(2024, 11, 3),
    ("America/St_Johns", "back"): date(2024, 11, 3),
    ("Asia/Kolkata", "none"): date(2024, 2, 29),
    ("UTC", "none"): date(2024, 2, 29),
}
"""Days on which the clock of a zone changes, and days of zones in which it never does."""
OFFSETS = ((0, 0), (6, 0), (22, 30))
_MICROSECOND, _HOUR, _DAY = timedelta(microseconds=1), timedelta(hours=1), timedelta(days=1)
_KEYS = {"hour": "%Y-%m-%d-%H:%M", "year": "%Y"}
_NUMBERS = {"hour": "%Y%m%d%H", "month": "%Y%m", "year": "%Y"}


@dataclass(frozen=True)
class Part:
    """A partition: its name in Dagster, and where it begins and ends, in UTC.

    Attributes:
        shared: the clock shows its times, or some of them, twice.
    """

    key: str
    start: datetime
    end: datetime
    shared: bool = False


@dataclass(frozen=True)
class Case:
    """Partitions of one length around a change of the clock, on a column of one type."""

    every: str
    kind: str
    zone: str
    change: str
    hour: int = 0
    minute: int = 0

    def __str__(self) -> str:
        return f"{self.every} {self.kind} {self.zone} {self.change} {self.hour:02}:{self.minute:02}"

    @property
    def config(self) -> dict[str, Any]:
        """The node's `partition`."""
        found = {"column": "at", "every": self.every, "start": date(2022, 1, 3), "timezone": self.zone}
        return found | {"hour_offset": self.hour, "minute_offset": self.minute}

    @property
    def day(self) -> date:
        return CHANGES[self.zone, self.change]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The partitions around the change, one after the other."""
        zone = ZoneInfo(self.zone)
        if self.every == "hour":
            first = datetime.combine(self.day - _DAY, time(22, self.minute), zone).astimezone(UTC)
            starts = [(first + number * _HOUR).astimezone(zone) for number in range(8)]
        else:
            starts = [datetime.combine(day, time(self.hour, self.minute), zone) for day in self._days()]
        found = []
        for start, end in pairwise(starts):
            key, shared = start.strftime(_KEYS.get(self.every, "%Y-%m-%d")), self.every == "hour" and _twice(start)
            if shared and start.fold:
                key += start.strftime("%z")
            last = end.astimezone(UTC) - _MICROSECOND
            shared = shared or (self.every == "hour" and _twice(last.astimezone(zone)))
            found.append(Part(key, start.astimezone(UTC), end.astimezone(UTC), shared))
        return tuple(found)

    def _days(self) -> list[date]:
        day = self.day
        if self.every == "day":
            return [day + number * _DAY for number in range(-1, 4)]
        if self.every == "week":
            # Partitions begin on a Monday, 3 January 2022.
            monday = day - day.weekday() * _DAY
            return [monday + 7 * number * _DAY for number in range(-1, 3)]
        if self.every == "month":
            months = [(day.year, day.month + number) for number in range(-1, 3)]
            return [date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1) for year, month in months]
        return [date(day.year + number, 1, 1) for number in range(-1, 3)]

    @cached_property
    def rows(self) -> Mapping[int, tuple[str, str | None]]:
        """By id, the value of a row as Delta writes it, and its partition; None where the value does not say."""
        found: dict[int, tuple[str, str | None]] = {}
        zone = ZoneInfo(self.zone)
        for part in self.parts:
            middle = part.start + (part.end - part.start) / 2
            for moment in (part.start, part.start + _MICROSECOND, middle, part.end - _MICROSECOND):
                found[len(found)] = self._row(moment, moment.astimezone(zone), part)
        return found

    def _row(self, moment: datetime, wall: datetime, part: Part) -> tuple[str, str | None]:
        plain, key = wall.replace(tzinfo=None, fold=0), None if part.shared else part.key
        begun = part.start.astimezone(wall.tzinfo)
        if self.kind == "TIMESTAMP":
            return moment.replace(tzinfo=None).isoformat(sep=" "), part.key
        if self.kind == "TIMESTAMP_NTZ":
            return plain.isoformat(sep=" "), key if self.every == "hour" else self._by_clock(plain)
        if self.kind == "DATE":
            day = (plain - timedelta(hours=self.hour, minutes=self.minute)).date()
            return day.isoformat(), self._by_clock(datetime.combine(day, time(self.hour, self.minute)))
        if self.kind == "STRING":
            names_begin = moment == part.start and (self.every != "hour" or not _twice(begun))
            return f"{begun:%Y-%m-%d %H:%M:%S}" if names_begin else part.key, part.key
        return begun.strftime(_NUMBERS.get(self.every, "%Y%m%d")), key

    def _by_clock(self, wall: datetime) -> str | None:
        """The partition of days or more in which the clock shows a time."""
        zone = ZoneInfo(self.zone)
        for part in self.parts:
            start, end = (bound.astimezone(zone).replace(tzinfo=None) for bound in (part.start, part.end))
            if self.kind == "DATE":
                start, end = (datetime.combine(one, time(self.hour, self.minute)) for one in (start, end))
            if start <= wall < end:
                return part.key
        return None


def cases() -> Iterator[Case]:
    """All of them. A DATE has no hours."""
    for every, kind, (zone, change), (hour, minute) in product(EVERY, KINDS, CHANGES, OFFSETS):
        if every == "hour" and (kind == "DATE" or hour not in (0, 22)):
            continue
        yield Case(every, kind, zone, change, 0 if every == "hour" else hour, minute)


def _twice(moment: datetime) -> bool:
    return moment.replace(fold=0).astimezone(UTC) != moment.replace(fold=1).astimezone(UTC)
