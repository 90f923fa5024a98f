"""One step of a capture: what the log gained, and some rows of snapshots, in an order that gives the tables right.

A snapshot and the log are put together without a gap, without a repeat, and without writing at the source. A chunk is
read in one repeatable read, which knows the transactions that it sees. Then the log is read, at least to where
it ended after the chunk was read. In the change log, the changes that the chunk sees come first, then its rows, then
the changes that it does not see. A transaction that changes a row sees all earlier changes of the row, so no two
changes of a row change places. Transactions of earlier steps are all seen. If a commit still waits for a standby, the
log has it and no session sees it: such a transaction is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odi_assets.config.models import ChunksConfig
from odi_assets.sources.cdc.changes import NULL, LogChanges, LogWindow, Numbers, Restart
from odi_assets.sources.cdc.database import CapturedTable, DatabaseLog, SnapshotReader
from odi_assets.sources.cdc.log import SCHEMA, Op, Shape, numbered, rows_of, shape_row, truncation_row
from odi_assets.sources.cdc.mark import CaptureMark, TableMark
from odi_assets.sources.sql.chunks import Cutter, key_columns
from odi_assets.sources.sql.dialects import Dialect
from odi_assets.sources.sql.keys import keys_of
from odi_assets.sources.sql.statements import Relation
from odi_assets.tables.parts import TableParts

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_US = pa.timestamp("us", "UTC")
_KEYS_AT_ONCE = 1_000
"""Rows that are read by their keys in one step."""
Key = tuple[str, ...]
Renamed = tuple[Key, Key]
"""The key that a row had, and the one that it got."""
_FIRST, _READ, _LAST = 0, 1, 2
"""Phases of a step: changes that the chunk sees, its rows, all other changes."""


@dataclass(frozen=True)
class CaptureStep:
    """What one commit takes in.

    Attributes:
        rows: of the change log; if they are too many for memory, in parts.
        after: the mark once they are in it.
        more: there is more to read below the bound of the run.
    """

    rows: pa.Table | TableParts
    after: CaptureMark
    more: bool


@dataclass(frozen=True)
class Capture:
    """A capture that reads its server, with an open session.

    Attributes:
        tables: by name, what is captured.
        most: how many changes a step has, about; a transaction is never cut.
    """

    log: DatabaseLog
    dialect: Dialect
    label: str
    tables: dict[str, CapturedTable]
    chunks: ChunksConfig
    most: int

    def step(self, mark: CaptureMark, upto: int) -> CaptureStep:
        """The next step above ``mark``.

        Args:
            upto: where the log ended when the run began.
        """
        name = next(iter(mark.snapshots_left), None)
        if name is None or self.log.is_behind(mark, upto, self.most):
            # The log goes first: what the server holds of it does not grow with the snapshot.
            return self._of_log(mark, upto)
        with self.log.reading(mark) as reader:
            chunk = self._chunk(reader, self.tables[name], mark.tables[name])
            end = reader.log_end()
        (window,) = self.log.windows(mark, max(end, upto), None)
        return self._put_together(mark, window, chunk)

    def _of_log(self, mark: CaptureMark, upto: int) -> CaptureStep:
        """The step of a part of the log alone, however large its transactions are."""
        step: CaptureStep | None = None
        parts: TableParts | None = None
        for window in self.log.windows(mark, upto, self.most):
            if step is not None:
                parts = parts or TableParts(SCHEMA)
                parts.add(step.rows)
            # A transaction that was cut is new in each of its parts.
            before = mark if step is None else replace(step.after, lsn=mark.lsn)
            step = self._put_together(before, window, None)
        if step is None:
            return CaptureStep(SCHEMA.empty_table(), mark, bool(mark.snapshots_left))
        if parts is not None:
            parts.add(step.rows)
        return replace(step, rows=parts or step.rows)

    def _chunk(self, reader: SnapshotReader, table: CapturedTable, before: TableMark) -> _ChunkRead:
        """The rows of the next chunk of a table, and what is left of its snapshot."""
        shape = reader.shape(table)
        relation = Relation(self.dialect, table.quoted, f"{self.label} {table.name}", table.quoted, {})
        chunks, is_first = before.chunks, not before.is_cut
        if is_first:
            before = replace(before, published=reader.publishing(table))
            chunks = Cutter(relation, self.chunks, types_of(shape), reader.rows).chunks()
        remaining = replace(before, chunks=chunks, is_cut=True, layout=table.layout, rejoined=False)
        if chunks is not None:
            columns = key_columns(relation, chunks.by, types_of(shape), reader.rows)
            order, taken = tuple(column.order for column in columns), chunks.left[:1]
            if chunks.reordered(order):
                # Its bounds mean other rows now, and nobody can say which ones are left.
                return self._chunk(reader, table, before.begun_again)
            remaining = replace(remaining, chunks=replace(chunks, order=order).without(taken))
            where = keys_of(self.dialect).within(taken[0], columns)
        elif before.again:
            remaining = replace(remaining, again=before.again[_KEYS_AT_ONCE:])
            where = self._by_keys(relation, table, before.again[:_KEYS_AT_ONCE], shape, reader)
        else:
            return _ChunkRead(table.name, shape, [], reader, remaining, is_first)
        rows = self.rows_where(reader, relation, table, shape, where)
        return _ChunkRead(table.name, shape, [rows], reader, remaining, is_first)

    def _by_keys(
        self,
        relation: Relation,
        table: CapturedTable,
        wanted: Sequence[tuple[str, ...]],
        shape: Shape,
        reader: SnapshotReader,
    ) -> str:
        columns = key_columns(relation, table.key, types_of(shape), reader.rows)
        keys = keys_of(self.dialect)
        return " OR ".join(
            "("
            + " AND ".join(
                f"{column.sql} = {keys.constant(text, column)}" for column, text in zip(columns, key, strict=True)
            )
            + ")"
            for key in wanted
        )

    def rows_where(
        self, reader: SnapshotReader, relation: Relation, table: CapturedTable, shape: Shape, where: str
    ) -> pa.Table:
        """Rows of a table as the log has them."""
        data, values = reader.texts(relation.sql, shape, where)
        key = values.columns(shape.key_places).texts(data) if shape.key_places else None
        columns = {"after": values.texts(data), **({} if key is None else {"key": key})}
        return rows_of(table.name, Op.READ, shape, count=len(values.kind), **columns)

    def _put_together(self, mark: CaptureMark, window: LogWindow, chunk: _ChunkRead | None) -> CaptureStep:
        """The step of a part of the log, and of a chunk that was read before it."""
        new = window.transactions.lsn > mark.lsn
        tables, parts = dict(mark.tables), []
        incomplete: dict[str, list[Renamed]] = {}
        shapes: dict[str, dict[str, Shape]] = {}
        for changes in window.changes:
            name = changes.relation.table
            if name not in tables:
                continue
            is_new = new[changes.transaction]
            if not is_new.all():
                changes = changes.take(is_new)
            if not len(changes.at):
                continue
            shape = self.log.shape_of(changes.relation, self.tables[name])
            shapes.setdefault(name, {})[shape.id] = shape
            logged = log_rows(changes, shape, window)
            phases = self._phases(name, changes.transaction[logged.of], window, chunk)
            parts.append(_Part(logged.rows, phases, logged.at))
            tables[name] = replace(tables[name], shape=shape.id, key=shape.key)
            incomplete.setdefault(name, []).extend(logged.incomplete)
        parts.extend(self._emptied(window, new, tables, shapes, chunk))
        if chunk is not None:
            shapes.setdefault(chunk.table, {})[chunk.shape.id] = chunk.shape
            parts.extend(_of_chunk(mark, chunk))
            now, before = tables[chunk.table], mark.tables[chunk.table]
            last = (now.shape, now.key) if now.shape != before.shape else (chunk.shape.id, chunk.shape.key)
            tables[chunk.table] = replace(chunk.remaining, shape=last[0], key=last[1])
        for name in _not_in_snapshots(mark, tables, shapes, window, chunk):
            rekeyed = mark.tables[name].shape and tables[name].key != mark.tables[name].key
            tables[name] = replace(tables[name].begun_again, rejoined=bool(rekeyed) or tables[name].rejoined)
        for name, renamed in incomplete.items():
            tables[name] = replace(tables[name], again=_read_again(mark.tables[name], tables[name], renamed))
        described = [
            shape_row(name, table_shape, int(mark.lsn))
            for name, by_id in shapes.items()
            for table_shape in by_id.values()
        ]
        rows = numbered([*described, _in_order(parts)], mark.next_n)
        after = replace(
            mark,
            lsn=max(mark.lsn, int(window.transactions.lsn[-1]) if len(window.transactions) else 0),
            end=max(mark.end, window.end),
            next_n=mark.next_n + rows.num_rows,
            tables=tables,
            pending=self.log.pending(mark, window.transactions.take(new)),
            xid=int(window.transactions.xid[-1]) if len(new) and new[-1] else mark.xid,
        )
        return CaptureStep(rows, self.log.noted(after), window.more or bool(after.snapshots_left))

    def _emptied(
        self,
        window: LogWindow,
        new: npt.NDArray[np.bool_],
        tables: Mapping[str, TableMark],
        shapes: dict[str, dict[str, Shape]],
        chunk: _ChunkRead | None,
    ) -> Iterator[_Part]:
        """The rows that say which tables statements emptied; ``shapes`` gains their columns.

        Args:
            new: by transaction, whether it is above the mark.
        """
        for truncation in window.truncations:
            for oid in truncation.tables if new[truncation.transaction] else ():
                name = window.relations[oid].table
                if name in tables:
                    shape = self.log.shape_of(window.relations[oid], self.tables[name])
                    shapes.setdefault(name, {})[shape.id] = shape
                    number = np.array([truncation.transaction])
                    row = truncation_row(name, *_transaction(window, truncation.transaction))
                    yield _Part(row, self._phases(name, number, window, chunk), np.array([[truncation.at, 0]]))

    @staticmethod
    def _phases(name: str, transactions: Numbers, window: LogWindow, chunk: _ChunkRead | None) -> Numbers:
        if chunk is None or chunk.table != name:
            return np.full(len(transactions), _LAST)
        return np.where(chunk.reader.sees(window.transactions.take(transactions)), _FIRST, _LAST)


@dataclass(frozen=True)
class _ChunkRead:
    """Rows of a snapshot.

    Attributes:
        reader: the read of them, which knows the transactions that it saw.
        remaining: what is left of the table's snapshot.
        is_first: the snapshot began with them.
    """

    table: str
    shape: Shape
    rows: Sequence[pa.Table]
    reader: SnapshotReader
    remaining: TableMark
    is_first: bool


@dataclass(frozen=True)
class _Part:
    """Rows of the change log, and where they belong in a step: in which phase, and after which message."""

    rows: pa.Table
    phase: Numbers
    at: Numbers


def _of_chunk(mark: CaptureMark, chunk: _ChunkRead) -> Iterator[_Part]:
    """The rows of a chunk, and before the first ones of a table that was not captured, the row that empties it."""
    if mark.tables[chunk.table].rejoined:
        # What was deleted while nobody captured the table goes before its rows come, and so do rows with other keys.
        row = truncation_row(chunk.table, mark.lsn, None, None)
        yield _Part(row, np.array([_READ]), np.array([[-1, 0]]))
    for index, read in enumerate(chunk.rows):
        at = np.stack([np.full(read.num_rows, index), np.arange(read.num_rows)], axis=1)
        yield _Part(read, np.full(read.num_rows, _READ), at)


@dataclass(frozen=True)
class LogRows:
    """Changes as rows of the change log.

    Attributes:
        of: the number of the change of each row: a changed key makes two rows.
        at: the order of the rows: the number of the message, and which of its rows.
        incomplete: the rows whose key changed, and which have values that the log does not have.
    """

    rows: pa.Table
    of: Numbers
    at: Numbers
    incomplete: tuple[Renamed, ...]


def log_rows(changes: LogChanges, shape: Shape, window: LogWindow) -> LogRows:
    """The changes of a relation as rows of the change log. A row whose key changed is deleted, and made again."""
    places = shape.key_places
    of_all = changes.relation.identity == "f"
    after, before = changes.after, changes.before
    if of_all:
        # The row as it was is whole.
        after = after.filled_from(before, after.unchanged & changes.has_before[:, None])
    else:
        # A key that lies apart from its row is unchanged too; the log has it as the key of before.
        after = after.filled_from(before, after.unchanged & (before.kind != NULL))
    deleted = changes.op == _DELETE
    old_key, new_key = before.columns(places), after.columns(places)
    moved = (changes.op == _UPDATE) & changes.has_before
    moved[moved] = old_key.take(moved).differs(new_key.take(moved), window.data)
    keys = new_key.replaced(deleted, old_key)
    ops = np.select(
        [deleted, moved, changes.op == _INSERT], [Op.DELETE.value, Op.CREATE.value, Op.CREATE.value], Op.UPDATE.value
    )
    # A row that is deleted before it is made again comes first.
    count = len(changes.at)
    of = np.concatenate([np.arange(count), np.flatnonzero(moved)])
    extra = np.concatenate([np.zeros(count, bool), np.ones(int(moved.sum()), bool)])
    all_keys = keys.take(of).replaced(extra, old_key.take(of))
    values = after.take(of).emptied(extra)
    numbers = changes.transaction[of]
    transactions = window.transactions
    nothing = extra | (ops[of] == Op.DELETE.value)
    rows = rows_of(
        changes.relation.table,
        pa.array(np.where(extra, Op.DELETE.value, ops[of])),
        shape,
        count=len(of),
        lsn=pa.array(transactions.lsn[numbers]),
        xid=pa.array(transactions.xid[numbers]),
        committed_at=pa.array(transactions.committed_us[numbers]).cast(_US),
        after=values.texts(window.data, nothing),
        **({"key": all_keys.texts(window.data)} if places else {}),
        # Of a row whose key changed, the key that it had; where the identity is all columns, the whole row.
        before=before.take(of).texts(window.data, extra | ~(moved | (changes.has_before & of_all))[of]),
        unchanged=_unchanged(values.unchanged),
    )
    lacking = moved & after.unchanged.any(axis=1)
    pairs = [key.take(lacking).texts(window.data).to_pylist() if places else [] for key in (old_key, new_key)]
    renamed = tuple((tuple(old), tuple(new)) for old, new in zip(*pairs, strict=True))
    return LogRows(rows, of, np.stack([changes.at[of], np.where(extra, 0, 1)], axis=1), renamed)


def _not_in_snapshots(
    mark: CaptureMark,
    tables: Mapping[str, TableMark],
    shapes: Iterable[str],
    window: LogWindow,
    chunk: _ChunkRead | None,
) -> Iterator[str]:
    """The tables whose columns changed in a window, or of which it does not have all changes.

    Args:
        tables: as they are at its end.
        shapes: the tables that have rows in it.
    """
    for name in shapes:
        shape_before = chunk.shape.id if chunk is not None and chunk.table == name else mark.tables[name].shape
        if shape_before and tables[name].shape != shape_before:
            yield name
    for restart in window.restarts:
        is_new = window.transactions.lsn[restart.transaction] > mark.lsn
        if is_new and restart.table in tables and not _knows(chunk, restart, window):
            yield restart.table


def _knows(chunk: _ChunkRead | None, restart: Restart, window: LogWindow) -> bool:
    """Whether the snapshot of a chunk began after what makes a new one necessary."""
    if chunk is None or chunk.table != restart.table or not chunk.is_first:
        return False
    return bool(chunk.reader.sees(window.transactions.take(np.array([restart.transaction])))[0])


def _read_again(before: TableMark, after: TableMark, renamed: Sequence[Renamed]) -> tuple[Key, ...]:
    """The keys of rows of a table that have to be read once more.

    A row that got another key has values that the log does not have. The row with the former key has them.
    Nobody knows them if that row was in a chunk that was not read before, or if it has to be read again itself.
    """
    has_chunks = before.chunks is not None or not before.is_cut
    unknown, again = {*before.again, *after.again}, dict.fromkeys(after.again)
    for old, new in renamed:
        if has_chunks or old in unknown:
            unknown.add(new)
            again[new] = None
    return tuple(again)


def _unchanged(flags: npt.NDArray[np.bool_]) -> pa.Array:
    """The places of the values that the log does not have, for each row; NULL where it has all."""
    places = np.nonzero(flags)[1].astype(np.int32)
    edges = np.concatenate([[0], np.cumsum(flags.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(edges), pa.array(places), mask=pa.array(~flags.any(axis=1)))


def _transaction(window: LogWindow, number: int) -> tuple[int, int, int]:
    transactions = window.transactions
    return int(transactions.lsn[number]), int(transactions.xid[number]), int(transactions.committed_us[number])


def _in_order(parts: Sequence[_Part]) -> pa.Table:
    if not parts:
        return SCHEMA.empty_table()
    rows = pa.concat_tables([part.rows for part in parts])
    phase = np.concatenate([part.phase for part in parts])
    at = np.concatenate([part.at for part in parts])
    order = np.lexsort((at[:, 1], at[:, 0], phase))
    return rows if (order == np.arange(len(order))).all() else rows.take(pa.array(order))


def types_of(shape: Shape) -> dict[str, str]:
    """Types as chunks are cut by them: whole numbers are cut evenly."""
    whole = {"smallint": "short", "integer": "integer", "bigint": "long"}
    return {column.name: whole.get(column.type, "string") for column in shape.columns}
