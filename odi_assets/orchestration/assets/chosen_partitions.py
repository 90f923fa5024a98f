"""The partitions of an asset that a run is for, as values of its table's columns: which rows are theirs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, reduce
from itertools import product
from operator import and_, itemgetter
from typing import TYPE_CHECKING, Any

import dagster as dg

from odi_assets.delta.files.spans import (
    TIMES,
    TimePartition,
    bound_text,
    clock_bounds,
    divides_repeated_time,
    key_by_text,
    names_of,
    require_once,
    time_of,
    value_text,
)
from odi_assets.delta.partition_values import INTEGERS, same_spelling
from odi_assets.errors import ConfigError
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from odi_assets.delta.partition_values import PartitionValues

_YEARLY = re.compile(r"\S+ \S+ \d+ \d+ \*")
_LENGTHS = {"HOURLY": "hour", "DAILY": "day", "WEEKLY": "week", "MONTHLY": "month"}
_DAY = timedelta(days=1)
_MOST_TERMS = 500
"""Of one predicate."""


@dataclass(frozen=True)
class ColumnValues:
    """What a column holds in some partitions: ranges of dates or times, ``start <= column < end``, or single values;
    all as Delta writes them."""

    ranges: tuple[tuple[str, str], ...] = ()
    single: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dimension:
    """One dimension of an asset's partitions: all of it, but for two-dimensional ones.

    Dates and times belong to the partition whose time they are in: TIMESTAMP by the moment, DATE and TIMESTAMP_NTZ by
    the clock of the partitions' time zone. Columns of other types hold the key; integers may hold its date instead:
    2024, 202401, 20240131 or 2024013105.

    What the clock shows twice is in several partitions for columns that go by it. Where a run is for all of them, the
    rows are of the first; else it is refused.

    Attributes:
        column: the column of the table that says which partition a row belongs to.
        keys: the partitions that the run is for.
        beside: by key, the keys of the other dimension that the run is for.
    """

    column: str
    definition: dg.PartitionsDefinition[Any]
    keys: tuple[str, ...]
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)
    _known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _windows(self) -> list[tuple[str, dg.TimeWindow]] | None:
        """The keys and their times, oldest first; None for keys that are no times."""
        definition = self.definition
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            return None
        windows = [(key, definition.time_window_for_partition_key(key)) for key in self.keys]
        return sorted(windows, key=lambda pair: pair[1].start.astimezone(UTC))

    def _ranges(self, kind: str) -> list[tuple[datetime, datetime, str]]:
        """Start, end and key of each partition, by the clock that a column of this type goes by."""
        if kind not in self._known:
            whole = self._by_clock.items() if kind == "timestamp_ntz" else self._windows or ()
            self._known[kind] = [(*self._bounds(window, kind), key) for key, window in whole]
        ranges: list[tuple[datetime, datetime, str]] = self._known[kind]
        return ranges

    @cached_property
    def _by_clock(self) -> Mapping[str, dg.TimeWindow]:
        """The keys and their times; those that the clock does not tell apart are one, with the first key."""
        whole, first = dict[str, dg.TimeWindow](), ""
        for key, window in self._windows or ():
            if whole and divides_repeated_time(window.start) and self.beside.get(first) == self.beside.get(key):
                before = whole[first]
                if before.end.astimezone(UTC) == window.start.astimezone(UTC):
                    whole[first] = dg.TimeWindow(before.start, window.end)
                    continue
            whole[key], first = window, key
        return whole

    def _bounds(self, window: dg.TimeWindow, kind: str) -> tuple[datetime, datetime]:
        start, end = window.start, window.end
        hours = end.astimezone(UTC) - start.astimezone(UTC) < _DAY / 2
        return clock_bounds(self.column, start, end, kind, hours=hours)

    def _spelled(self, kind: Any) -> dict[str, str]:
        """The key of each value that a column of this type may hold.

        Raises:
            ConfigError: two of the keys are one value.
        """
        name = str(kind)
        if name not in self._known:
            self._known[name] = key_by_text(self.column, {key: self._texts(key, kind) for key in self.keys}, kind)
        keys_by_text: dict[str, str] = self._known[name]
        return keys_by_text

    def _texts(self, key: str, kind: Any) -> set[str]:
        window = self._window_of.get(key)
        if window is not None and kind in INTEGERS and self._every == "hour" and not key.isdigit():
            whole = self._by_clock.get(key)
            if whole is None:
                return set()
            for bound in (whole.start, whole.end):
                require_once(self.column, bound, kind)
        if window is not None:
            return names_of(self.column, TimePartition(key, window.start, window.end), self._every, kind)
        return {text} if (text := value_text(key, kind)) else set()

    @cached_property
    def _window_of(self) -> Mapping[str, dg.TimeWindow]:
        return dict(self._windows or ())

    @property
    def _every(self) -> str | None:
        definition = self.definition
        assert isinstance(definition, dg.TimeWindowPartitionsDefinition)
        if _YEARLY.fullmatch(definition.cron_schedule or ""):
            return "year"
        return _LENGTHS.get(definition.schedule_type.name) if definition.schedule_type else None

    def key_of(self, value: str | None, kind: Any) -> str | None:
        """The partition among :attr:`keys` that a value, as Delta writes it, belongs to."""
        if value is None:
            return None
        if kind not in TIMES or self._windows is None:
            return self._spelled(kind).get(str(same_spelling(value, kind)))
        ranges = self._ranges(kind)
        moment = time_of(value)
        if moment is None:
            return None
        at = bisect_right(ranges, moment, key=lambda time_range: time_range[0]) - 1
        return ranges[at][2] if at >= 0 and moment < ranges[at][1] else None

    def values(self, kind: Any, keys: Iterable[str]) -> ColumnValues:
        """What a column of this type holds in the partitions ``keys``; neighbours are one range."""
        wanted = set(keys)
        if kind not in TIMES or self._windows is None:
            spelled = self._spelled(kind).items()
            return ColumnValues(single=tuple(sorted(text for text, key in spelled if key in wanted)))
        merged: list[tuple[datetime, datetime]] = []
        for start, end, key in self._ranges(kind):
            if key not in wanted:
                continue
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return ColumnValues(tuple((bound_text(start, kind), bound_text(end, kind)) for start, end in merged))


@dataclass(frozen=True)
class ChosenPartitions:
    """The partitions that a run is for.

    Attributes:
        keys: by dimension, as Dagster's keys; each once.
    """

    dimensions: tuple[Dimension, ...]
    keys: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, columns: Mapping[str, str], definition: dg.PartitionsDefinition[Any], keys: Iterable[str]
    ) -> ChosenPartitions:
        """The partitions ``keys`` of an asset.

        Args:
            columns: by dimension, the column that says to which partition a row belongs; the name of the dimension is
                empty for partitions of one.

        Raises:
            ConfigError: a dimension has no column.
        """
        if not isinstance(definition, dg.MultiPartitionsDefinition):
            single = tuple(sorted(map(str, keys)))
            if "" not in columns:
                raise _no_column([], columns)
            return cls((Dimension(columns[""], definition, single),), tuple((key,) for key in single))
        parts = definition.partitions_defs
        if {part.name for part in parts} != set(columns):
            raise _no_column([part.name for part in parts], columns)
        split = [definition.get_partition_key_from_str(str(key)).keys_by_dimension for key in keys]
        tuples = tuple(sorted(tuple(key_parts[part.name] for part in parts) for key_parts in split))
        dimensions = []
        for at, part in enumerate(parts):
            beside = defaultdict[str, set[str]](set)
            for key_tuple in tuples:
                beside[key_tuple[at]].add(key_tuple[1 - at])
            others = {key: frozenset(others) for key, others in beside.items()}
            dimensions.append(Dimension(columns[part.name], part.partitions_def, tuple(sorted(others)), others))
        return cls(tuple(dimensions), tuples)

    @property
    def texts(self) -> tuple[str, ...]:
        """Dagster's keys, in order."""
        return tuple("|".join(key) for key in self.keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say to which partition a row belongs."""
        return tuple(dimension.column for dimension in self.dimensions)

    def key_of(self, partition: PartitionValues, kinds: Mapping[str, Any]) -> str | None:
        """Dagster's key of a partition of the table, if the run is for it."""
        key_parts = tuple(
            dimension.key_of(partition.get(dimension.column), kinds.get(dimension.column))
            for dimension in self.dimensions
        )
        return "|".join(map(str, key_parts)) if key_parts in self._wanted else None

    @cached_property
    def _wanted(self) -> frozenset[tuple[str | None, ...]]:
        return frozenset(self.keys)

    def among(self, partitions: Iterable[PartitionValues], kinds: Mapping[str, Any]) -> list[PartitionValues]:
        """Those of a table's ``partitions`` that the run is for, each once, by these columns alone.

        Raises:
            ConfigError: a column does not say to which partition a row belongs.
        """
        distinct_values = {
            tuple(partition.get(column) for column in self.columns): None
            for partition in partitions
            if self.key_of(partition, kinds) is not None
        }
        return [dict(zip(self.columns, values, strict=True)) for values in distinct_values]

    def rows_by_key(
        self, rows: Iterable[tuple[PartitionValues, int]], kinds: Mapping[str, Any]
    ) -> Mapping[str | None, int]:
        """Rows of partitions of the table, counted by Dagster's key."""
        counts = Counter[str | None]()
        for partition, count in rows:
            counts[self.key_of(partition, kinds)] += count
        return counts

    def values(self, kinds: Mapping[str, Any]) -> list[Mapping[str, ColumnValues]]:
        """What the columns hold in these partitions: one of these, each column by what it is to hold."""
        if len(self.dimensions) == 1:
            (only,) = self.dimensions
            return [{only.column: only.values(kinds.get(only.column), only.keys)}] if only.keys else []
        first, second = self.dimensions
        seconds: dict[str, list[str]] = defaultdict(list)
        for first_key, second_key in self.keys:
            seconds[first_key].append(second_key)
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for first_key, second_keys in seconds.items():
            alike[tuple(sorted(second_keys))].append(first_key)
        return [
            {
                first.column: first.values(kinds.get(first.column), first_keys),
                second.column: second.values(kinds.get(second.column), second_keys),
            }
            for second_keys, first_keys in alike.items()
        ]

    def condition(self, rows: DataFrame, kinds: Mapping[str, Any]) -> Column:
        """Whether a row is in one of them."""

        def inside(name: str, values: ColumnValues) -> Column:
            kind, column = rows.schema[name].dataType, F.col(quoted(name))
            tests = [
                (column >= F.lit(start).cast(kind)) & (column < F.lit(end).cast(kind)) for start, end in values.ranges
            ]
            if values.single:
                tests.append(column.isin([F.lit(text).cast(kind) for text in values.single]))
            return _any(tests)

        return _any(
            [reduce(and_, (inside(name, values) for name, values in box.items())) for box in self.values(kinds)]
        )

    def predicates(self, kinds: Mapping[str, Any]) -> list[str]:
        """The same for deltalake, as SQL: each row is in none or one of them.

        One for all would end the process: deltalake goes down its terms by recursion.
        """
        boxes = []
        for box in self.values(kinds):
            pieces = [_tests(name, values, kinds.get(name)) for name, values in box.items()]
            boxes += [
                (" AND ".join(text for text, _ in tests), sum(map(itemgetter(1), tests))) for tests in product(*pieces)
            ]
        return [" OR ".join(f"({text})" for text in texts) for texts in _packed(boxes)] or ["1 = 0"]

    def __str__(self) -> str:
        shown = ", ".join(self.texts[:5])
        return f"{shown}, …" if len(self.texts) > 5 else shown or "none"


def _no_column(names: Sequence[str], columns: Mapping[str, str]) -> ConfigError:
    wanted = "{" + ", ".join(f'"{name}": "…"' for name in names) + "}" if names else '"day"'
    known = ", ".join(f"{name or 'one column'}: {column}" for name, column in columns.items())
    return ConfigError(
        f"`partition_column` ({known}) does not fit the partitions of the asset",
        fix=f'write it as the partitions are: metadata={{"partition_column": {wanted}}}',
    )


def _any(tests: Sequence[Column]) -> Column:
    """Whether one of the tests holds; a tree, because Spark goes down a chain of 10,000 by recursion."""
    half = len(tests) // 2
    if half == 0:
        return tests[0] if tests else F.lit(False)
    return _any(tests[:half]) | _any(tests[half:])


def _tests(name: str, values: ColumnValues, kind: Any) -> list[tuple[str, int]]:
    """What a column holds, as tests in SQL, each with its number of terms; a value fulfils none or one of them."""
    column = '"' + name.replace('"', '""') + '"'
    texts = [text if kind in {*INTEGERS, "boolean"} else _literal(text) for text in values.single]
    ranges = [f"({column} >= {_literal(start)} AND {column} < {_literal(end)})" for start, end in values.ranges]
    some_texts, some_ranges = (_packed((text, 1) for text in terms) for terms in (texts, ranges))
    return [(f"{column} IN ({', '.join(some)})", len(some)) for some in some_texts] + [
        (f"({' OR '.join(some)})", len(some)) for some in some_ranges
    ]


def _packed(tests: Iterable[tuple[str, int]]) -> list[list[str]]:
    """Tests in groups of no more than :data:`_MOST_TERMS` terms, as far as one test has no more."""
    groups, room = list[list[str]](), 0
    for text, terms in tests:
        if terms > room:
            groups.append([])
            room = _MOST_TERMS
        groups[-1].append(text)
        room -= terms
    return groups


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
