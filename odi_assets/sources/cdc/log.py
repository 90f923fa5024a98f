"""The change log: one table with the changes of all captured tables, in an order that counts.

``n`` grows with each row of the log. Whoever applies rows in the order of ``n`` gets the tables as the database has
them. Values are the database's own texts, in the order of the columns that ``shape`` names; the row ``s`` in which a
shape appears first lists them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from odi_assets.sources.cdc.mark import PARTITION

COLUMNS = pa.list_(pa.struct([("name", pa.string()), ("type", pa.string()), ("key", pa.bool_())]))
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        (PARTITION, pa.string()),
        ("op", pa.string()),
        ("lsn", pa.int64()),
        ("xid", pa.int64()),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("key", pa.list_(pa.string())),
        ("before", pa.list_(pa.string())),
        ("after", pa.list_(pa.string())),
        ("unchanged", pa.list_(pa.int32())),
        ("shape", pa.string()),
        ("columns", COLUMNS),
    ]
)


class Op(StrEnum):
    """What a row of the log says of a table."""

    READ = "r"
    """A row as a snapshot found it."""
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"
    """All rows are gone."""
    SHAPE = "s"
    """The columns of the rows that follow."""


@dataclass(frozen=True)
class ShapeColumn:
    """A column of a captured table: its name, its type as the database writes it, and whether it is of the key."""

    name: str
    type: str
    key: bool


@dataclass(frozen=True)
class Shape:
    """The columns of a captured table, in the order in which the log has their values."""

    columns: tuple[ShapeColumn, ...]

    @property
    def id(self) -> str:
        """A short name that other columns, types or keys do not have."""
        text = json.dumps([[column.name, column.type, column.key] for column in self.columns])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.key)

    @property
    def key_places(self) -> list[int]:
        return [index for index, column in enumerate(self.columns) if column.key]


def shape_row(table: str, shape: Shape, lsn: int) -> pa.Table:
    """The row that lists the columns of a shape; ``n`` is set later."""
    listed = [{"name": column.name, "type": column.type, "key": column.key} for column in shape.columns]
    row = {"n": 0, PARTITION: table, "op": Op.SHAPE.value, "lsn": lsn, "shape": shape.id, "columns": listed}
    return pa.Table.from_pylist([row], schema=SCHEMA)


def truncation_row(table: str, lsn: int, xid: int | None, committed_us: int | None) -> pa.Table:
    """The row that says that a table was emptied."""
    row = {"n": 0, PARTITION: table, "op": Op.TRUNCATE.value, "lsn": lsn, "xid": xid}
    made = pa.Table.from_pylist([row], schema=SCHEMA)
    times = pa.array([committed_us], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return made.set_column(made.schema.get_field_index("committed_at"), "committed_at", times)


def numbered(parts: Iterable[pa.Table], first: int) -> pa.Table:
    """The rows of ``parts``, in this order, with their numbers from ``first`` on."""
    rows = pa.concat_tables([SCHEMA.empty_table(), *parts])
    numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return rows.set_column(0, "n", numbers)


def rows_of(table: str, ops: pa.Array | Op, shape: Shape, *, count: int, **columns: pa.Array) -> pa.Table:
    """Rows of one table and one shape. Columns that are not given are NULL; ``n`` is set later.

    Args:
        ops: what each row says, or all of them.
    """
    arrays_by_name = {
        "n": pa.nulls(count, pa.int64()),
        PARTITION: pa.repeat(table, count),
        "op": pa.repeat(ops.value, count) if isinstance(ops, Op) else ops,
        "shape": pa.repeat(shape.id, count),
        **columns,
    }
    arrays = [
        arrays_by_name[field.name].cast(field.type) if field.name in arrays_by_name else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
