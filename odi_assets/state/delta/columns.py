"""The columns of system tables: Python rows to Arrow and back, without pyarrow, whose import is slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from arro3.core import Array, DataType, Field, RecordBatchReader, Schema, Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.date()
_MICROSECOND = timedelta(microseconds=1)

Kind = Literal["string", "long", "boolean", "timestamp", "date", "binary"]
"""The types that system tables use."""
_ARROW: dict[Kind, DataType] = {
    "string": DataType.string(),
    "long": DataType.int64(),
    "boolean": DataType.bool(),
    "timestamp": DataType.timestamp("us", tz="UTC"),
    "date": DataType.date32(),
    "binary": DataType.binary(),
}


@dataclass(frozen=True)
class Columns:
    """The columns of a system table, in order. All are nullable: Odibi leaves ours empty."""

    kinds: Mapping[str, Kind]

    @property
    def schema(self) -> Schema:
        return Schema([Field(name, _ARROW[kind], nullable=True) for name, kind in self.kinds.items()])

    def to_arrow(self, lists: Mapping[str, Sequence[Any]]) -> Table:
        """Lists of each column's values as an Arrow table of exactly this schema."""
        arrays = [_array(lists[name], kind) for name, kind in self.kinds.items()]
        return Table.from_arrays(arrays, schema=self.schema)

    def rows(self, found: RecordBatchReader | Table) -> list[dict[str, Any]]:
        """Rows of Python values, with moments in UTC; columns that the table lacks are None."""
        lists = self.lists(found).values()
        return [dict(zip(self.kinds, row, strict=True)) for row in zip(*lists, strict=True)]

    def lists(self, found: RecordBatchReader | Table) -> dict[str, list[Any]]:
        """Each column's values, in the order of the rows: for many rows cheaper than :meth:`rows`."""
        table = Table.from_arrow(found)
        present = set(table.column_names)
        return {
            name: _values(table.column(name), kind) if name in present else [None] * table.num_rows
            for name, kind in self.kinds.items()
        }


def by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows, at least one, as lists of each column's values."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def micros(moment: datetime) -> int:
    """Microseconds since 1970, UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros_: int) -> datetime:
    """The moment of so many microseconds since 1970, UTC."""
    return _EPOCH + timedelta(microseconds=micros_)


def _array(items: Sequence[Any], kind: Kind) -> Array:
    if kind == "timestamp":
        return Array(_each(micros, items), DataType.int64()).cast(_ARROW[kind])
    if kind == "date":
        return Array([None if i is None else (i - _EPOCH_DAY).days for i in items], DataType.int32()).cast(_ARROW[kind])
    return Array(items, _ARROW[kind])


def _values(column: Any, kind: Kind) -> list[Any]:
    if kind == "timestamp":
        stored = column.cast(_ARROW[kind]).cast(DataType.int64()).to_pylist()
        return _each(moment, stored)
    if kind == "date":
        days = column.cast(DataType.int32()).to_pylist()
        return [None if item is None else date.fromordinal(_EPOCH_DAY.toordinal() + item) for item in days]
    items: list[Any] = column.to_pylist()
    if kind == "long" and not DataType.is_integer(column.type):
        # pandas, which Odibi writes with, makes a column of ints and nulls one of floats.
        return [_whole(item) for item in items]
    return items


def _whole(item: Any) -> int | None:
    return item if item is None or isinstance(item, int) else None if math.isnan(item) else int(item)


def _each(convert: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Every item converted, None aside; rows that were written together share their moment."""
    converted = {item: None if item is None else convert(item) for item in set(items)}
    return [converted[item] for item in items]
