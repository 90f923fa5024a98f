"""The columns of system tables: Python's values as Arrow, and back. Without pyarrow, whose import is slow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from arro3.core import Array, DataType, Field, RecordBatchReader, Table
from arro3.core import Schema as ArrowSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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

# arro3 makes no arrays of these from Python's own types, but of the numbers they are stored as.
_AS_NUMBERS: dict[Kind, tuple[DataType, Callable[[Any], int]]] = {
    "timestamp": (DataType.int64(), lambda moment: (moment - _EPOCH) // _MICROSECOND),
    "date": (DataType.int32(), lambda day: (day - _EPOCH.date()).days),
}


class Columns:
    """The columns of a system table, in order. All are nullable.

    Attributes:
        ours: those that Odibi's table of the same name lacks; none, if Odibi has no such table.
    """

    def __init__(self, kinds: Mapping[str, Kind], ours: Collection[str] = ()) -> None:
        self.kinds = kinds
        self.ours = frozenset(ours)
        self.schema = ArrowSchema([Field(name, _ARROW[kind], nullable=True) for name, kind in kinds.items()])

    def to_arrow(self, lists: Mapping[str, Sequence[Any]]) -> Table:
        """Lists of each column's values as an Arrow table of exactly this schema."""
        arrays = []
        for name, kind in self.kinds.items():
            items, (stored, number) = lists[name], _AS_NUMBERS.get(kind, (_ARROW[kind], None))
            if number is not None:
                items = [None if item is None else number(item) for item in items]
            arrays.append(Array(items, stored).cast(_ARROW[kind]))
        return Table.from_arrays(arrays, schema=self.schema)

    def lists(self, arrow_data: RecordBatchReader | Table) -> dict[str, list[Any]]:
        """Each column's values, in the order of the rows: moments in UTC, None where the table lacks a column."""
        table = Table.from_arrow(arrow_data)
        present = set(table.column_names)
        # pandas, which Odibi writes with, makes a column of ints and nulls one of floats.
        return {
            name: list(table.column(name).cast(_ARROW[kind]).to_pylist())
            if name in present
            else [None] * table.num_rows
            for name, kind in self.kinds.items()
        }

    def rows(self, arrow_data: RecordBatchReader | Table) -> list[dict[str, Any]]:
        """The same, row by row: for many rows dearer than :meth:`lists`."""
        return as_rows(self.lists(arrow_data))


def as_rows(lists: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Lists of each column's values as rows."""
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows, at least one, as lists of each column's values."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def micros(moment: datetime) -> int:
    """Microseconds since 1970, UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros_: int) -> datetime:
    """The moment that is this many microseconds after 1970 began, UTC."""
    return _EPOCH + timedelta(microseconds=micros_)
