"""Partitions of a range of times, and partitions that are single values: whose rows are whose, by a column's type."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import product
from typing import Any, Protocol

from odi_assets.config.compared_values import NAMED_BY, names_value
from odi_assets.delta.partition_values import INTEGERS, PartitionValues, same_spelling
from odi_assets.errors import ConfigError

TIMES = ("date", "timestamp", "timestamp_ntz")
"""Delta's types of dates and times."""

NUMBERS = {"hour": "%Y%m%d%H", "day": "%Y%m%d", "week": "%Y%m%d", "month": "%Y%m", "year": "%Y"}
"""How an integer names a partition, by the length of partitions: 2024013105, 20240131, 202401, 2024."""
_NUMBER = re.compile(r"[+-]?\d+")
_GREATEST = {"byte": 2**7 - 1, "short": 2**15 - 1, "integer": 2**31 - 1, "long": 2**63 - 1}


class PartitionChoice(Protocol):
    """Some partitions of a table, known by their values once the types of its columns are."""

    def among(self, partitions: Iterable[PartitionValues], kinds: Mapping[str, Any]) -> list[PartitionValues]:
        """Those of ``partitions`` that are meant, each once."""


@dataclass(frozen=True)
class TimePartition:
    """One partition: ``start <= time < end``, both in the time zone of the partitions.

    Attributes:
        key: its name in Dagster.
    """

    key: str
    start: datetime
    end: datetime


@dataclass(frozen=True)
class Span:
    """A row of partitions, of which each begins where the one before ends. Which rows are theirs, the type of
    ``column`` says: TIMESTAMP by the moment; DATE and TIMESTAMP_NTZ by the clock of the partitions' time zone; texts
    and integers name the partition.

    Attributes:
        every: the length of a partition: ``hour``, ``day``, ``week``, ``month``, ``year``.

    Example:
        >>> first, second = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
        >>> day = Span("at", (TimePartition("2024-01-01", first, second),), "day")
        >>> day.holds("2024-01-01 10:15:00", "timestamp"), day.holds("2024-01-02 00:00:00", "timestamp")
        (True, False)
        >>> day.holds("20240101", "integer")
        True
    """

    column: str
    partitions: tuple[TimePartition, ...]
    every: str = "day"

    def holds(self, value: str | None, kind: Any) -> bool:
        """Whether a value of the type ``kind``, as Delta's log writes it, is one of these partitions.

        Raises:
            ConfigError: values of this type do not say so.
        """
        if value is None:
            return False
        if kind not in TIMES:
            return same_spelling(value, kind) in self.names(kind)
        moment = time_of(value)
        start, end = self.bounds(kind)
        return moment is not None and start <= moment < end

    def __str__(self) -> str:
        return f"{self.column} from {self.partitions[0].start} until before {self.partitions[-1].end}"

    def bounds(self, kind: str) -> tuple[datetime, datetime]:
        """Where the range begins and ends, by the clock that a column of dates or times goes by.

        Raises:
            ConfigError: values of this type do not say to which partition a row belongs.
        """
        start, end = self.partitions[0].start, self.partitions[-1].end
        return clock_bounds(self.column, start, end, kind, hours=self.every == "hour")

    def texts(self, kind: str) -> tuple[str, str]:
        """The bounds as texts that Spark casts to ``kind``, in any time zone of a session."""
        start, end = (bound_text(bound, kind) for bound in self.bounds(kind))
        return start, end

    def names(self, kind: Any) -> Collection[str]:
        """What a column of texts or integers holds in these partitions, as Delta writes it.

        Raises:
            ConfigError: values of this type do not say to which partition a row belongs.
        """
        if kind not in self._known:
            self._known[kind] = self._names(kind)
        return self._known[kind]

    def require(self, kind: Any) -> None:
        """Raise ConfigError if values of the type ``kind`` do not say to which partition a row belongs."""
        if kind in TIMES:
            self.bounds(kind)
        else:
            self.names(kind)

    @cached_property
    def _known(self) -> dict[Any, frozenset[str]]:
        return {}

    def _names(self, kind: Any) -> frozenset[str]:
        if kind != "string" and kind not in INTEGERS:
            raise ConfigError(
                f"`{self.column}` is {_shown(kind)}, which does not say to which partition a row belongs",
                fix="take a column of dates, times, texts or integers as `partition.column`",
                column=self.column,
            )
        if self.every == "hour" and kind in INTEGERS:
            for bound in (self.partitions[0].start, self.partitions[-1].end):
                require_once(self.column, bound, kind)
        return frozenset().union(*(names_of(self.column, partition, self.every, kind) for partition in self.partitions))

    def among(self, values: Iterable[str | None], kind: Any) -> set[str]:
        """The column's ``values`` that lie in it, and what each of its partitions begins with, whether the table
        has it or not."""
        if kind not in TIMES:
            return set(self.names(kind))
        starts = [_clock(partition.start, kind) for partition in self.partitions]
        firsts = {str(same_spelling(bound_text(start, kind), kind)) for start in starts}
        return firsts | {value for value in values if value is not None and self.holds(value, kind)}


@dataclass(frozen=True)
class NamedPartitions:
    """Partitions of which each is one value of ``column``.

    Attributes:
        keys: the values, as Dagster and the project file name them.

    Example:
        >>> some = NamedPartitions("year", ("2023", "2024"))
        >>> some.holds("2024", "integer"), some.holds("2025", "integer"), some.holds(None, "integer")
        (True, False, False)
    """

    column: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.column} {', '.join(self.keys)}"

    def holds(self, value: str | None, kind: Any) -> bool:
        """Whether a value of the type ``kind``, as Delta's log writes it, is one of these partitions."""
        return self.key_of(value, kind) is not None

    def key_of(self, value: str | None, kind: Any) -> str | None:
        """The partition that a value, as Delta's log writes it, belongs to."""
        return None if value is None else self._by_text(kind).get(str(same_spelling(value, kind)))

    def names(self, kind: Any) -> Collection[str]:
        """What the column holds in these partitions, as Delta writes it.

        Raises:
            ConfigError: a column of this type holds no such partitions.
        """
        return self._by_text(kind).keys()

    def require(self, kind: Any) -> None:
        """Raise ConfigError if a column of the type ``kind`` holds no such partitions."""
        self._by_text(kind)

    def among(self, values: Iterable[str | None], kind: Any) -> set[str]:  # noqa: ARG002  as of Span
        """What the column holds in these partitions, whether the table has it or not."""
        return set(self.names(kind))

    @cached_property
    def _known(self) -> dict[str, dict[str, str]]:
        return {}

    def _by_text(self, kind: Any) -> dict[str, str]:
        if (name := str(kind)) not in self._known:
            self._known[name] = key_by_text(self.column, {key: self._texts(key, kind) for key in self.keys}, kind)
        return self._known[name]

    def _texts(self, key: str, kind: Any) -> set[str]:
        if kind not in NAMED_BY:
            raise ConfigError(
                f"`{self.column}` is {_shown(kind)}, whose values are no partitions by their names",
                fix="take a column of texts, integers, dates or booleans as the column of the partitions",
                column=self.column,
            )
        text = value_text(key, kind)
        if text is None:
            raise ConfigError(
                f"the partition {key} is no value of `{self.column}`, which is {_shown(kind)}",
                fix="let the column hold the names of the partitions as texts, or correct the name",
                column=self.column,
            )
        return {text}


@dataclass(frozen=True)
class PartitionBox:
    """Partitions of a table by one column, or by several: those that lie in each of ``sides``.

    Example:
        >>> box = PartitionBox((NamedPartitions("year", ("2024",)), NamedPartitions("shop", ("a", "b"))))
        >>> box.among([{"year": "2024", "shop": "c"}], {"year": "integer", "shop": "string"})
        [{'year': '2024', 'shop': 'a'}, {'year': '2024', 'shop': 'b'}]
    """

    sides: tuple[Span | NamedPartitions, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say whether a row is in it."""
        return tuple(side.column for side in self.sides)

    def within(self, columns: Collection[str]) -> PartitionBox | None:
        """What these columns alone say of it; None if they say nothing."""
        sides = tuple(side for side in self.sides if side.column in columns)
        return PartitionBox(sides) if sides else None

    def require(self, kinds: Mapping[str, Any]) -> None:
        """Raise ConfigError if columns of these types do not say which rows are in it; those not known may."""
        for side in self.sides:
            if side.column in kinds:
                side.require(kinds[side.column])

    def among(self, partitions: Iterable[PartitionValues], kinds: Mapping[str, Any]) -> list[PartitionValues]:
        """The table's ``partitions`` that lie in it, each once, by its columns alone; and what each of its own
        begins with, whether the table has it or not.

        Args:
            kinds: the types of the table's columns.
        """
        there = list(partitions)
        values = [
            sorted(side.among({partition.get(side.column) for partition in there}, kinds.get(side.column)))
            for side in self.sides
        ]
        return [dict(zip(self.columns, combination, strict=True)) for combination in product(*values)]

    def __str__(self) -> str:
        return ", ".join(map(str, self.sides))


def key_by_text(column: str, texts: Mapping[str, Iterable[str]], kind: Any) -> dict[str, str]:
    """The partition of each value, as Delta writes it, by what a column holds in each partition.

    Raises:
        ConfigError: two of the partitions are one value.
    """
    key_of_text: dict[str, str] = {}
    for key, values in texts.items():
        for text in values:
            if key_of_text.setdefault(text, key) != key:
                raise ConfigError(
                    f"the partitions {key_of_text[text]} and {key} are one value of `{column}`, which is "
                    f"{str(kind).upper()}: {text}",
                    fix="let the column hold the keys of the partitions as texts",
                    column=column,
                )
    return key_of_text


def value_text(key: str, kind: Any) -> str | None:
    """What a column of the type ``kind`` holds where a partition is named ``key``, as Delta writes it; None if no value
    of that type is so named."""
    return same_spelling(key, kind) if kind not in NAMED_BY or names_value(key, kind) else None


def clock_bounds(column: str, start: datetime, end: datetime, kind: str, *, hours: bool) -> tuple[datetime, datetime]:
    """``start`` and ``end``, moments with a zone, by the clock that a column of the type ``kind`` goes by; without one.

    Args:
        hours: the partitions are shorter than a day.

    Raises:
        ConfigError: that clock does not say on which side of a bound a row is.
    """
    if hours and kind == "date":
        raise ConfigError(
            f"`{column}` is a DATE, and the partitions are shorter than a day",
            fix="partition by a column of times, or take partitions of days",
            column=column,
        )
    if hours and kind == "timestamp_ntz":
        for bound in (start, end):
            require_once(column, bound, kind)
    return _clock(start, kind), _clock(end, kind)


def require_once(column: str, bound: datetime, kind: Any) -> None:
    """Raise ConfigError if ``bound`` lies within what the clock of its zone shows twice."""
    if divides_repeated_time(bound):
        raise ConfigError(
            f"the clock shows {bound:%Y-%m-%d %H:%M} twice, and `{column}` is {_shown(kind)}: it is not known to which "
            "of the two partitions a row belongs",
            fix=f"run both of them in one range, or let `{column}` be a TIMESTAMP, or take partitions in UTC",
            column=column,
        )


def divides_repeated_time(bound: datetime) -> bool:
    """Whether there are times on both sides of ``bound`` that the clock of its zone shows twice."""
    return is_twice(bound) and (bool(bound.fold) or is_twice(bound - timedelta(microseconds=1)))


def is_twice(moment: datetime) -> bool:
    """Whether the clock of its zone shows this time twice."""
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()


def names_of(column: str, partition: TimePartition, every: str | None, kind: Any) -> set[str]:
    """What a column of the type ``kind``, neither dates nor times, holds in one partition, as Delta writes it.

    Args:
        every: the length of partitions; None for one that has no number.

    Raises:
        ConfigError: integers of this type are too small.
    """
    start, key = partition.start, partition.key
    if kind not in INTEGERS:
        texts = {key}
        if every == "month":
            texts.add(f"{start:%Y-%m}")
        # A time that the clock leaves out is shown as a later one.
        shown = start.astimezone(UTC).astimezone(start.tzinfo)
        # Of partitions that are longer than what is shown twice, one alone begins then.
        if every in ("day", "week", "month", "year") or not is_twice(shown):
            texts |= {f"{begin:%Y-%m-%d %H:%M:%S}" for begin in (start, shown)}
            if (start.hour, start.minute) == (0, 0):
                texts.add(f"{start:%Y-%m-%d}")
        return {text for spelling in texts if (text := same_spelling(spelling, kind))}
    number = key if key.isdigit() else start.strftime(NUMBERS[every]) if every else ""
    if not _NUMBER.fullmatch(number):
        return set()
    if int(number) > _GREATEST[kind]:
        raise ConfigError(
            f"`{column}` is {_shown(kind)}, which cannot hold {number}, the number of the partition {key}",
            fix=f"let `{column}` be a BIGINT",
            column=column,
        )
    return {str(int(number))}


def time_of(value: str) -> datetime | None:
    """A date or time as Delta writes it, without a zone; None for a year that Python does not have."""
    try:
        return _naive(_in_utc(datetime.fromisoformat(value)))
    except (ValueError, OverflowError):
        return None


def bound_text(bound: datetime, kind: str) -> str:
    """A bound by the clock of a column's type as a text that Spark and Delta take for a value of it."""
    if kind == "date":
        return bound.strftime("%Y-%m-%d")
    return bound.isoformat(sep=" ") + ("Z" if kind == "timestamp" else "")


def _clock(moment: datetime, kind: str) -> datetime:
    if kind == "timestamp":
        return _naive(_in_utc(moment))
    return _naive(moment) if kind == "timestamp_ntz" else datetime(moment.year, moment.month, moment.day)


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(UTC)


def _naive(moment: datetime) -> datetime:
    # Without its fold, too: Python compares times of one fold.
    return moment.replace(tzinfo=None, fold=0)


def _shown(kind: Any) -> str:
    names = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
    return names.get(kind, kind.upper()) if isinstance(kind, str) else str(kind.get("type", kind)).upper()
