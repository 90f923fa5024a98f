"""Compares the values of a data file with the statistics that the table's log has of it.

A file that another one has replaced is whole, and may have the same size and as many rows. Only what cannot be a matter
of spelling is compared: NULLs of all columns that are not nested; bounds of integers, dates, times and text. Writers
cut bounds of text off, and times to milliseconds; floats have NaN, and decimals are written as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from odi_assets.delta.table import TableHandle

_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
_DAY = 86_400_000_000
_REBASED_BEFORE = -2_208_988_800_000_000
"""1900-01-01: writers may have earlier days in another calendar. Microseconds since 1970, as all times here."""
_CUT = 1000
"""Microseconds by which a bound of a time may be off."""


@dataclass(frozen=True)
class Described:
    """What the log says of one file, by column; None where it says nothing.

    Attributes:
        nulls: how many NULLs.
        least, most: the bounds; integers as they are, dates and times in microseconds since 1970, text.
        kinds: what the bounds are of: ``int``, ``day``, ``time`` or ``text``.
    """

    nulls: Mapping[str, int | None]
    least: Mapping[str, Any]
    most: Mapping[str, Any]
    kinds: Mapping[str, str]


@dataclass
class FileValues:
    """What is in a file, batch by batch.

    Attributes:
        described: what it is compared with.
    """

    described: Described
    _nulls: dict[str, int] = field(default_factory=dict)
    _least: dict[str, Any] = field(default_factory=dict)
    _most: dict[str, Any] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch`` into account."""
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if name not in self.described.nulls or pa.types.is_nested(values.type):
                continue
            self._nulls[name] = self._nulls.get(name, 0) + values.null_count
            if name not in self.described.kinds or name in self._unknown or values.null_count == len(values):
                continue
            if kind_of(values.type) != self.described.kinds[name]:
                # The table's column has gained another type since, or had another reading.
                self._unknown.add(name)
                continue
            bounds = pc.min_max(values)
            least, most = plain(bounds["min"]), plain(bounds["max"])
            if least is None or most is None:
                self._unknown.add(name)
                continue
            self._least[name] = min(least, self._least.get(name, least))
            self._most[name] = max(most, self._most.get(name, most))

    def difference(self) -> str | None:
        """How they differ from what the log says, completing "the file …"; None if they do not."""
        says = self.described
        for name, nulls in self._nulls.items():
            logged = says.nulls[name]
            if logged is not None and logged != nulls:
                return f"is not the one that the log describes: `{name}` is NULL in {nulls:,} rows, not in {logged:,}"
            kind, bounds = says.kinds.get(name), (says.least.get(name), says.most.get(name))
            if kind is None or None in bounds or name in self._unknown:
                continue
            actual = (self._least.get(name), self._most.get(name))
            if not _is_least(kind, *_pair(actual, bounds, 0)) or not _is_most(kind, *_pair(actual, bounds, 1)):
                return f"is not the one that the log describes: the bounds of `{name}` are others"
        return None


def _pair(actual: tuple[Any, Any], logged: tuple[Any, Any], at: int) -> tuple[Any, Any]:
    return actual[at], logged[at]


def _is_least(kind: str, actual: Any, logged: Any) -> bool:
    if actual is None:
        return False
    return actual.startswith(logged) if kind == "text" else _is_same(kind, actual, logged)


def _is_most(kind: str, actual: Any, logged: Any) -> bool:
    if actual is None:
        return False
    if kind == "text":
        # One that was cut off ends in a greater character.
        return bool(actual == logged or (actual < logged and actual.startswith(logged[:-1])))
    return _is_same(kind, actual, logged)


def _is_same(kind: str, actual: int, logged: int) -> bool:
    if kind == "int":
        return actual == logged
    if min(actual, logged) < _REBASED_BEFORE:
        return True
    return actual == logged if kind == "day" else abs(actual - logged) <= _CUT


def kind_of(type_: pa.DataType) -> str | None:
    """What the bounds of a type are compared as; None if they are not."""
    if pa.types.is_integer(type_):
        return "int"
    if pa.types.is_date32(type_):
        return "day"
    if pa.types.is_timestamp(type_):
        return "time"
    return "text" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else None


def plain(value: pa.Scalar) -> Any:
    """A bound as it is compared; None if it is not known, or cannot be read."""
    if not value.is_valid:
        return None
    if pa.types.is_date32(value.type):
        return value.value * _DAY
    if pa.types.is_timestamp(value.type):
        return value.value // 1000 if value.type.unit == "ns" else value.value * _UNITS[value.type.unit]
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return None


def descriptions(handle: TableHandle) -> list[Described]:
    """What the log says of each live file of a table, in their order."""
    actions = handle.add_actions
    names = [name for name in handle.columns if "." not in name and name not in handle.partition_columns]
    columns = {
        what: {
            name: actions[f"{what}.{name}"].combine_chunks()
            for name in names
            if f"{what}.{name}" in actions.column_names
        }
        for what in ("null_count", "min", "max")
    }
    kinds = {
        name: kind
        for name, values in columns["min"].items()
        if (kind := kind_of(values.type)) and name in columns["max"]
    }

    def of_file(row: int, what: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        return {name: plain(values[row]) for name, values in columns[what].items() if name in wanted}

    return [
        Described(
            of_file(row, "null_count", columns["null_count"]),
            of_file(row, "min", kinds),
            of_file(row, "max", kinds),
            kinds,
        )
        for row in range(actions.num_rows)
    ]
