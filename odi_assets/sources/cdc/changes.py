"""The changes that a part of a database's log holds, column by column: where in its bytes each value's text lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odi_assets.errors import SourceError

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NULL, UNCHANGED, TEXT = ord("n"), ord("u"), ord("t")
"""Kinds of values."""
_BLOCK_BYTES = 8 << 20


class LoggedRelation(Protocol):
    """A table as a log describes it."""

    @property
    def table(self) -> str:
        """Its name with its schema."""

    @property
    def identity(self) -> str:
        """What the log has of a row before it was changed: ``f``: all of it; otherwise its key."""


@dataclass(frozen=True)
class Transactions:
    """The transactions of a window, in the order of their commits; an array has a number for each.

    Attributes:
        lsn: of the record that commits it.
        end: where that record ends: what is acknowledged to the server.
        xid: the number that the database gives it; of PostgreSQL, 32 bits of it.
        committed_us: microseconds since 1970, UTC.
    """

    lsn: Numbers
    end: Numbers
    xid: Numbers
    committed_us: Numbers

    def __len__(self) -> int:
        return len(self.lsn)

    def take(self, which: Any) -> Transactions:
        """Some of them."""
        return Transactions(self.lsn[which], self.end[which], self.xid[which], self.committed_us[which])


@dataclass(frozen=True)
class Values:
    """Values of changes, a row for each change and a column for each column of the relation: where their text lies in
    the window's bytes, and of what kind they are: text, NULL, or unchanged (the log does not have them)."""

    kind: npt.NDArray[np.uint8]
    start: Numbers
    length: Numbers

    @classmethod
    def none(cls, rows: int, columns: int) -> Values:
        """Values that are all NULL."""
        shape = (rows, columns)
        return cls(np.full(shape, NULL, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def put(self, rows: npt.NDArray[np.bool_], other: Values) -> None:
        """Set some of the rows."""
        self.kind[rows], self.start[rows], self.length[rows] = other.kind, other.start, other.length

    def take(self, rows: Any) -> Values:
        """Some of the rows."""
        return Values(self.kind[rows], self.start[rows], self.length[rows])

    def columns(self, which: Sequence[int]) -> Values:
        """Some of the columns."""
        return Values(self.kind[:, which], self.start[:, which], self.length[:, which])

    @property
    def unchanged(self) -> npt.NDArray[np.bool_]:
        """Which values the log does not have."""
        return np.equal(self.kind, UNCHANGED)

    def filled_from(self, other: Values, where: npt.NDArray[np.bool_]) -> Values:
        """These, with the values of ``other`` where a flag says so, one for each value."""
        pairs = ((self.kind, other.kind), (self.start, other.start), (self.length, other.length))
        return Values(*(np.where(where, theirs, ours) for ours, theirs in pairs))

    def replaced(self, rows: npt.NDArray[np.bool_], other: Values) -> Values:
        """These, with some rows of ``other``."""
        return self.filled_from(other, rows[:, None])

    def emptied(self, rows: npt.NDArray[np.bool_]) -> Values:
        """These, with NULL in all values of some rows."""
        return self.replaced(rows, Values.none(*self.kind.shape))

    def differs(self, other: Values, window: Bytes) -> npt.NDArray[np.bool_]:
        """Whether a row has other texts than the same row of ``other``."""
        texts = [values.texts(window).flatten() for values in (self, other)]
        same = pc.fill_null(pc.equal(*texts), fill_value=True).to_numpy(zero_copy_only=False).reshape(self.kind.shape)
        is_different: npt.NDArray[np.bool_] = ((self.kind != other.kind) | ~same).any(axis=1)
        return is_different

    def texts(self, window: Bytes, missing: npt.NDArray[np.bool_] | None = None) -> pa.ListArray:
        """The values as lists of text, one for each row; NULL where the log does not have the value.

        Args:
            missing: the rows that have no list.
        """
        rows, columns = self.kind.shape
        is_text = (self.kind == TEXT).ravel()
        lengths = np.where(is_text, self.length.ravel(), 0)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = gathered(window, self.start.ravel(), lengths, offsets)
        buffers = [bits(is_text), pa.py_buffer(offsets), pa.py_buffer(data)]
        texts = pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)
        edges = np.arange(rows + 1, dtype=np.int64) * columns
        flags = None if missing is None else pa.array(missing)
        return pa.LargeListArray.from_arrays(pa.array(edges), texts, mask=flags)


@dataclass(frozen=True)
class LogChanges:
    """The inserted, updated and deleted rows of one relation in a window; the arrays have an entry for each.

    Attributes:
        at: the number of the message: the order of the changes.
        transaction: the number of its transaction in the window.
        op: ``I``, ``U`` or ``D``.
        before: the row that was changed: all of it where the identity is all columns, else its key, where that changed
            or the row was deleted; NULL elsewhere.
        has_before: whether there is any of it.
        after: the row; NULL in a deletion.
    """

    relation: LoggedRelation
    at: Numbers
    transaction: Numbers
    op: npt.NDArray[np.uint8]
    before: Values
    has_before: npt.NDArray[np.bool_]
    after: Values

    def take(self, which: npt.NDArray[np.bool_]) -> LogChanges:
        """Some of the changes."""
        at, number, ops, has_before = self.at[which], self.transaction[which], self.op[which], self.has_before[which]
        return LogChanges(self.relation, at, number, ops, self.before.take(which), has_before, self.after.take(which))


@dataclass(frozen=True)
class Truncation:
    """Tables that a statement emptied.

    Attributes:
        at, transaction: as of :class:`LogChanges`.
        tables: by number.
    """

    at: int
    transaction: int
    tables: tuple[int, ...]


@dataclass(frozen=True)
class Restart:
    """A table of which only a new snapshot knows the rows, after a transaction.

    Attributes:
        transaction: as of :class:`LogChanges`.
    """

    transaction: int
    table: str


@dataclass(frozen=True)
class LogWindow:
    """What a part of the log says: whole transactions.

    Attributes:
        data: texts of values; :class:`Values` point into it.
        relations: the last description of each relation, by number.
        restarts: the tables that statements may have changed without a trace in the log.
        more: there are more transactions below the bound of the window.
        end: where the log goes on behind it; 0: not known.
    """

    data: Bytes
    transactions: Transactions
    changes: tuple[LogChanges, ...]
    truncations: tuple[Truncation, ...]
    relations: Mapping[int, LoggedRelation]
    restarts: tuple[Restart, ...] = ()
    more: bool = False
    end: int = 0


class TornLogError(SourceError):
    """A log says what no log of its kind says."""


def bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Flags as Arrow keeps them."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def gathered(data: Bytes, starts: Numbers, lengths: Numbers, offsets: Numbers) -> Bytes:
    """The pieces of ``data``, one behind the other: ``offsets`` are where each begins in the result, and its end."""
    pieces = np.empty(int(offsets[-1]), np.uint8)
    first = 0
    while first < len(lengths):
        # In blocks: the places of bytes take eight times as much as the bytes.
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _BLOCK_BYTES, "right")) - 1)
        begin, end = int(offsets[first]), int(offsets[last])
        shift = np.repeat(starts[first:last] - offsets[first:last], lengths[first:last])
        pieces[begin:end] = data[shift + np.arange(begin, end)]
        first = last
    return pieces
