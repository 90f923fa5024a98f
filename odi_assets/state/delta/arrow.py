"""Rows of the system tables to Arrow and back, without pyarrow: its import would cost more than a look-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

from arro3.core import Array, DataType, Field, RecordBatchReader, Schema, Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.date()
_MICROSECOND = timedelta(microseconds=1)


class Kind(Enum):
    """The types that system tables use."""

    STRING = "string"
    LONG = "long"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"
    BINARY = "binary"


_ARROW = {
    Kind.STRING: DataType.string(),
    Kind.LONG: DataType.int64(),
    Kind.BOOLEAN: DataType.bool(),
    Kind.TIMESTAMP: DataType.timestamp("us", tz="UTC"),
    Kind.DATE: DataType.date32(),
    Kind.BINARY: DataType.binary(),
}


@dataclass(frozen=True)
class Columns:
    """The columns of a system table, in order. All are nullable: Odibi leaves ours empty."""

    kinds: Mapping[str, Kind]

    @property
    def schema(self) -> Schema:
        return Schema([Field(name, _ARROW[kind], nullable=True) for name, kind in self.kinds.items()])

    def to_arrow(self, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Rows as an Arrow table of exactly this schema."""
        return self.table_of({name: [row[name] for row in rows] for name in self.kinds})

    def table_of(self, lists: Mapping[str, Sequence[Any]]) -> Table:
        """Lists of each column's values as an Arrow table of exactly this schema."""
        arrays = [_array(lists[name], kind) for name, kind in self.kinds.items()]
        return Table.from_arrays(arrays, schema=self.schema)

    def from_arrow(self, reader: RecordBatchReader) -> list[dict[str, Any]]:
        """Rows of Python values, with moments in UTC; columns that the table lacks are None."""
        return self.rows_of(reader.read_all())

    def rows_of(self, table: Table) -> list[dict[str, Any]]:
        """The rows of a table, as :meth:`from_arrow` gives them."""
        lists = self.lists_of(table).values()
        return [dict(zip(self.kinds, row, strict=True)) for row in zip(*lists, strict=True)]

    def lists_of(self, table: Table) -> dict[str, list[Any]]:
        """Each column's values, in the order of the rows: for many rows cheaper than :meth:`rows_of`."""
        present = set(table.column_names)
        return {
            name: _values(table.column(name), kind) if name in present else [None] * table.num_rows
            for name, kind in self.kinds.items()
        }


def micros(moment: datetime) -> int:
    """Microseconds since 1970, UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros_: int) -> datetime:
    """The moment of so many microseconds since 1970, UTC."""
    return _EPOCH + timedelta(microseconds=micros_)


def _array(items: Sequence[Any], kind: Kind) -> Array:
    if kind is Kind.TIMESTAMP:
        return Array(_each(micros, items), DataType.int64()).cast(_ARROW[kind])
    if kind is Kind.DATE:
        return Array([None if i is None else (i - _EPOCH_DAY).days for i in items], DataType.int32()).cast(_ARROW[kind])
    return Array(items, _ARROW[kind])


def _values(column: Any, kind: Kind) -> list[Any]:
    if kind is Kind.TIMESTAMP:
        stored = column.cast(DataType.timestamp("us", tz="UTC")).cast(DataType.int64()).to_pylist()
        return _each(moment, stored)
    if kind is Kind.DATE:
        days = column.cast(DataType.int32()).to_pylist()
        return [None if item is None else date.fromordinal(_EPOCH_DAY.toordinal() + item) for item in days]
    items: list[Any] = column.to_pylist()
    if kind is Kind.LONG and not DataType.is_integer(column.type):
        # pandas, which Odibi writes with, makes a column of ints and nulls one of floats.
        return [_whole(item) for item in items]
    return items


def _whole(item: Any) -> int | None:
    return item if item is None or isinstance(item, int) else None if math.isnan(item) else int(item)


def _each(convert: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Every item converted, None aside; rows that were written together share their moment."""
    converted = {item: None if item is None else convert(item) for item in set(items)}
    return [converted[item] for item in items]
