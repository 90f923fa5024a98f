"""Rows of the binary log, column by column.

An event has rows one behind the other, and where a row begins is known once the row before it is read. So numpy follows
the fields of the first rows of all events of a table at the same time, then the second rows, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from odi_assets.sources.cdc.binlog.events import ChangedRows
from odi_assets.sources.cdc.binlog.tables import BinlogTable
from odi_assets.sources.cdc.binlog.texts import Charsets, TextPool, written
from odi_assets.sources.cdc.binlog.wire import PADDING, little
from odi_assets.sources.cdc.changes import NULL, TEXT, Bytes, LogChanges, Numbers, TornLogError, Values
from odi_assets.sources.cdc.log import Shape


@dataclass(frozen=True)
class Walk:
    """Where the values of rows are.

    Attributes:
        event: the number of the event that each row is of.
        images: where values begin and how long they are, a row for each row and a column for each column; a length of
            -1 is NULL. Changed rows have two: as they were, and as they are.
    """

    event: Numbers
    images: tuple[tuple[Numbers, Numbers], ...]


def walked(data: Bytes, starts: Numbers, ends: Numbers, table: BinlogTable, images: int) -> Walk:
    """Walk through the rows of events of one table, all of one kind.

    Args:
        data: with some bytes behind the last event.

    Raises:
        TornLogError: an event ends in the middle of a row.
    """
    alive, positions = np.arange(len(starts)), starts.copy()
    events: list[Numbers] = []
    values_by_image: list[list[tuple[Numbers, Numbers]]] = [[] for _ in range(images)]
    while len(alive):
        for image in range(images):
            values, positions = _image(data, positions, table)
            values_by_image[image].append(values)
        events.append(alive)
        if (positions > ends[alive]).any():
            raise TornLogError(f"an event of {table.table} ends in the middle of a row")
        goes_on = positions < ends[alive]
        alive, positions = alive[goes_on], positions[goes_on]
    event = np.concatenate(events)
    # The rows of an event lie side by side.
    order = np.argsort(event, kind="stable")
    pairs = [tuple(np.concatenate(part)[order] for part in zip(*image, strict=True)) for image in values_by_image]
    return Walk(event[order], tuple((begin, length) for begin, length in pairs))


def _image(data: Bytes, positions: Numbers, table: BinlogTable) -> tuple[tuple[Numbers, Numbers], Numbers]:
    """Where the values of one row of each event are, and where these rows end."""
    count = len(table.columns)
    flags = data[positions[:, None] + np.arange(table.bitmap_bytes)]
    nulls = np.unpackbits(flags, axis=1, bitorder="little")[:, :count].astype(bool)
    start, length = np.empty((len(positions), count), np.int64), np.empty((len(positions), count), np.int64)
    positions = positions + table.bitmap_bytes
    for number, column in enumerate(table.columns):
        is_null = nulls[:, number]
        if column.prefix:
            # Behind the last row there is nothing to say a size.
            size = np.where(is_null, 0, little(data, np.minimum(positions, len(data) - len(PADDING)), column.prefix))
            skipped = np.where(is_null, 0, column.prefix)
        else:
            size, skipped = np.where(is_null, 0, column.size), np.zeros(len(positions), np.int64)
        start[:, number] = positions + skipped
        length[:, number] = np.where(is_null, -1, size)
        positions = np.minimum(positions + skipped + size, len(data))
    return (start, length), positions


@dataclass(frozen=True)
class RowEvents:
    """Events of one table and one kind.

    Attributes:
        number: of each event among the entries of the window.
        transaction: of each event.
    """

    table: BinlogTable
    op: str
    number: Numbers
    transaction: Numbers
    walk: Walk

    @property
    def rows_of(self) -> tuple[Numbers, Numbers]:
        """The numbers of the events, and how many rows each has."""
        return self.number, np.bincount(self.walk.event, minlength=len(self.number))


def joined(events: Sequence[ChangedRows]) -> tuple[Bytes, Numbers]:
    """The bytes of events, and where each ends."""
    data = np.frombuffer(b"".join([event.rows for event in events]) + PADDING, np.uint8)
    return data, np.cumsum(np.fromiter((len(event.rows) for event in events), np.int64, len(events)))


def grouped(
    events: Sequence[ChangedRows], numbers: Numbers, transactions: Numbers, data: Bytes, ends: Numbers
) -> list[RowEvents]:
    """The events by table and kind, with the places of their values.

    Args:
        numbers, transactions: of each event.
        data, ends: as :func:`joined` gives them.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    for index, event in enumerate(events):
        groups.setdefault((id(event.table), event.op), []).append(index)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
    row_events = []
    for (_, op), listed in groups.items():
        at, table = np.array(listed), events[listed[0]].table
        walk = walked(data, starts[at], ends[at], table, 2 if op == "U" else 1)
        row_events.append(RowEvents(table, op, numbers[at], transactions[at], walk))
    return row_events


def changes_of(
    group: RowEvents,
    pool: TextPool,
    first_row: Numbers,
    shape_of: Callable[[BinlogTable], Shape],
    charsets: Charsets,
) -> LogChanges:
    """The changes of events, with their texts.

    Args:
        first_row: of each event, the number that its first row has in the window.
    """
    table, walk, shape = group.table, group.walk, shape_of(group.table)
    count = len(walk.event)
    begins = np.searchsorted(walk.event, walk.event)
    nothing = Values.none(count, len(table.columns))
    has_before = group.op != "I"
    before = _texts(pool, walk.images[0], table, shape, charsets, table.key_places) if has_before else nothing
    after = nothing if group.op == "D" else _texts(pool, walk.images[-1], table, shape, charsets)
    return LogChanges(
        table,
        first_row[group.number][walk.event] + np.arange(count) - begins,
        group.transaction[walk.event],
        np.full(count, ord(group.op), np.uint8),
        before,
        np.full(count, has_before),
        after,
    )


def _texts(
    pool: TextPool,
    image: tuple[Numbers, Numbers],
    table: BinlogTable,
    shape: Shape,
    charsets: Charsets,
    places: Sequence[int] | None = None,
) -> Values:
    """The texts of rows; NULL in columns other than ``places``."""
    start, length = image
    values = Values.none(*start.shape)
    for index in range(len(table.columns)) if places is None else places:
        has: npt.NDArray[np.bool_] = length[:, index] >= 0
        if not has.any():
            continue
        begin, size = start[:, index], length[:, index]
        is_all = has.all()
        texts = written(
            pool,
            begin if is_all else begin[has],
            size if is_all else size[has],
            table.columns[index],
            shape.columns[index].type,
            charsets,
        )
        values.kind[:, index] = np.where(has, TEXT, NULL)
        values.start[has, index], values.length[has, index] = texts
    return values
