"""Changes as rows of the change log, numbered in the order in which the database made them.

Messages of one stream (a file, a partition of a topic) are in order. Streams are put together by the places that
changes have in the database's log: so a key whose changes lie in several files is right, whatever the files' times are.
A stream that goes back, as after a restart of Debezium, keeps its own order.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odi_assets.sources.cdc.debezium.envelopes import RowChange
from odi_assets.sources.cdc.log import SCHEMA, Op, Shape, numbered, shape_row
from odi_assets.sources.cdc.mark import PARTITION
from odi_assets.tables.parts import TableParts

_AT_ONCE = 50_000
"""Rows that are held as Python's objects."""
_NAMES = (PARTITION, "op", "lsn", "xid", "committed_at", "key", "before", "after", "unchanged", "shape")


@dataclass
class NumberedRows:
    """Rows of the change log as they come.

    Attributes:
        first: the number of the first one.
    """

    first: int
    _columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _NAMES})
    _parts: list[pa.Table] = field(default_factory=list)
    _spilled: TableParts | None = None
    _places: array[int] = field(default_factory=lambda: array("q"))
    _phases: array[int] = field(default_factory=lambda: array("b"))
    _reached: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    _shapes: dict[tuple[str, int], tuple[Shape, int]] = field(default_factory=dict)

    def add(self, change: RowChange, stream: str) -> None:
        """A change, behind those of its stream."""
        columns, at = self._columns, (stream, change.table)
        # A row with another key comes behind the change that takes it out, which may lie in another stream.
        is_moved = change.op is Op.CREATE and change.before is not None
        reached = max(
            self._reached.get(at, (-1, False)), (-1 if change.position is None else change.position, is_moved)
        )
        self._reached[at] = reached
        shape = change.shape
        if shape is not None and (change.table, id(shape)) not in self._shapes:
            self._shapes[change.table, id(shape)] = (shape, len(self._places))
        self._places.append(reached[0])
        self._phases.append(reached[1])
        values = (
            change.table,
            change.op.value,
            change.position,
            change.xid,
            change.committed_us,
            change.key,
            change.before,
            change.after,
            change.unchanged,
            None if shape is None else shape.id,
        )
        for name, value in zip(_NAMES, values, strict=True):
            columns[name].append(value)
        if len(columns["op"]) >= _AT_ONCE:
            self._flush()

    def __len__(self) -> int:
        return len(self._places)

    def finished(self) -> pa.Table | TableParts:
        """All rows, with the rows that describe their columns in front."""
        self._flush()
        order = np.lexsort((np.array(self._phases, np.int8), np.array(self._places, np.int64)))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        described = self._described(ranks)
        begin = self.first + described.num_rows
        if self._spilled is None:
            return pa.concat_tables([described, *self._numbered(self._parts, ranks, begin)])
        parts = TableParts(SCHEMA)
        parts.add(described)
        for part in self._numbered(self._spilled, ranks, begin):
            parts.add(part)
        return parts

    def _described(self, ranks: npt.NDArray[np.int64]) -> pa.Table:
        """A row for each shape, in the order in which they are met."""
        met: dict[tuple[str, str], tuple[int, Shape]] = {}
        for (table, _), (shape, at) in self._shapes.items():
            rank = int(ranks[at])
            if rank < met.get((table, shape.id), (rank + 1, shape))[0]:
                met[table, shape.id] = (rank, shape)
        listed = sorted((rank, table, shape) for (table, _), (rank, shape) in met.items())
        return numbered([shape_row(table, shape, 0) for _, table, shape in listed], self.first)

    @staticmethod
    def _numbered(parts: Any, ranks: npt.NDArray[np.int64], begin: int) -> Any:
        at = 0
        for part in parts:
            numbers = pa.array(ranks[at : at + part.num_rows] + begin)
            at += part.num_rows
            yield part.set_column(0, "n", numbers)

    def _flush(self) -> None:
        columns = self._columns
        count = len(columns["op"])
        if not count:
            return
        arrays = [_array(columns, schema_field, count) for schema_field in SCHEMA]
        part = pa.Table.from_arrays(arrays, schema=SCHEMA)
        for values in columns.values():
            values.clear()
        if self._spilled is None and self._parts:
            self._spilled = TableParts(SCHEMA)
            for before in self._parts:
                self._spilled.add(before)
            self._parts = []
        if self._spilled is None:
            self._parts.append(part)
        else:
            self._spilled.add(part)


def _array(columns: Mapping[str, list[Any]], wanted: pa.Field, count: int) -> pa.Array:
    if wanted.name not in columns:
        return pa.nulls(count, wanted.type)
    if wanted.name == "committed_at":
        return pa.array(columns[wanted.name], pa.int64()).cast(wanted.type)
    return pa.array(columns[wanted.name], wanted.type)
