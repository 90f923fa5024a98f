"""Decodes what PostgreSQL's plugin ``pgoutput`` writes of a log: messages of protocol version 1, column by column.

A Python loop over changes would cost more than everything else a capture does. So the messages of a window are joined,
and numpy follows the fields of all changes of a relation at the same time. Only relations, truncations and transactions
that truncate are looked at one by one.

The format: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from odi_assets.sources.cdc.changes import (
    NULL,
    TEXT,
    UNCHANGED,
    Bytes,
    LogChanges,
    LogWindow,
    Numbers,
    TornLogError,
    Transactions,
    Truncation,
    Values,
)

_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970: the times of the log count from there."""
_COPY_HEADER, _COPY_NULL = 19, 0xFFFFFFFF


@dataclass(frozen=True)
class LogRelationColumn:
    """A column of a relation: its name, the OID of its type, and the type's modifier."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True)
class LogRelation:
    """A table as the log describes it, before its first change and after each change of its columns.

    Attributes:
        identity: ``d`` (the primary key), ``i`` (an index), ``f`` (all columns), ``n`` (nothing).
    """

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[LogRelationColumn, ...]

    @property
    def table(self) -> str:
        return f"{self.namespace}.{self.name}"

    def renamed(self, table: str | None) -> LogRelation:
        """The relation under another name, with its schema; None: a name that no table has."""
        namespace, _, name = (table or "").partition(".")
        return replace(self, namespace=namespace, name=name)


def completed(parts: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Parts of a log, each of whole transactions: a transaction that was cut begins and ends in each of its parts."""
    begun: bytes | None = None
    for part in parts:
        messages = part if begun is None else [begun, *part]
        edge = next(message for message in reversed(messages) if message[:1] in (b"B", b"C"))
        begun = edge if edge[:1] == b"B" else None
        # The end of the commit's record comes with the last part; until then it is where the record begins.
        yield messages if begun is None else [*messages, b"C\0" + begun[1:9] + begun[1:9] + begun[9:17]]
    if begun is not None:
        raise TornLogError("a transaction without its end")


def decode(messages: Sequence[bytes | memoryview], known: Mapping[int, LogRelation] | None = None) -> LogWindow:
    """Decode the messages of whole transactions.

    Args:
        known: descriptions of relations from before this window. A session of the server describes each relation
            again, so none are needed for messages that one session wrote from the beginning.

    Raises:
        TornLogError: they are no messages of ``pgoutput``, of version 1.
    """
    data = np.frombuffer(b"".join(messages), np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    starts = np.cumsum(lengths) - lengths
    kinds = data[starts] if len(messages) else np.zeros(0, np.uint8)
    begins = starts[kinds == ord("B")]
    commits = starts[kinds == ord("C")]
    if len(begins) != len(commits):
        raise TornLogError("a transaction without its end")
    transactions = Transactions(
        _int64(data, begins + 1),
        _int64(data, commits + 10),
        _int32(data, begins + 17),
        _int64(data, begins + 9) + _EPOCH_US,
    )
    number = np.cumsum(kinds == ord("B")) - 1
    described: dict[int, list[tuple[int, LogRelation]]] = {
        oid: [(-1, known_relation)] for oid, known_relation in (known or {}).items()
    }
    for at in np.flatnonzero(kinds == ord("R")).tolist():
        relation = _relation(bytes(messages[at]))
        described.setdefault(relation.oid, []).append((at, relation))
    truncations = tuple(
        Truncation(at, int(number[at]), _truncated(bytes(messages[at])))
        for at in np.flatnonzero(kinds == ord("T")).tolist()
    )
    changes = tuple(_changes(data, starts, kinds, number, described))
    return LogWindow(data, transactions, changes, truncations, {oid: all_[-1][1] for oid, all_ in described.items()})


@dataclass(frozen=True)
class BegunTransaction:
    """A transaction of the log.

    Attributes:
        lsn: the record that commits it.
        committed_us: microseconds since 1970.
        xid: its number, 32 bits.
    """

    lsn: int
    committed_us: int
    xid: int


def begun(messages: Iterable[bytes]) -> Iterator[BegunTransaction]:
    """The transactions that begin in some messages."""
    for message in messages:
        if message[:1] == b"B":
            committed = int.from_bytes(message[9:17], "big", signed=True) + _EPOCH_US
            yield BegunTransaction(
                int.from_bytes(message[1:9], "big"), committed, int.from_bytes(message[17:21], "big")
            )


@dataclass
class Counted:
    """The messages of some parts of a log, and how many were taken so far."""

    parts: Iterable[Sequence[bytes]]
    count: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            self.count += len(part)
            yield from part


def first_of(messages: Iterable[bytes], above: int, tables: Collection[int] | None) -> BegunTransaction | None:
    """The first transaction that commits above a position and changes one of some tables; None if there is none.

    Args:
        messages: of whole transactions.
        tables: their numbers; None: any.
    """
    transaction: BegunTransaction | None = None
    for message in messages:
        kind = message[:1]
        if kind == b"B":
            (transaction,) = begun([message])
        elif transaction is None or transaction.lsn <= above:
            continue
        elif kind in (b"I", b"U", b"D"):
            if tables is None or int.from_bytes(message[1:5], "big") in tables:
                return transaction
        elif kind == b"T" and (tables is None or not set(_truncated(message)).isdisjoint(tables)):
            return transaction
    return None


def _changes(
    data: Bytes, starts: Numbers, kinds: Bytes, number: Numbers, described: dict[int, list[tuple[int, LogRelation]]]
) -> Iterator[LogChanges]:
    """The changes, by description of a relation."""
    rows = np.flatnonzero((kinds == ord("I")) | (kinds == ord("U")) | (kinds == ord("D")))
    oids = _int32(data, starts[rows] + 1)
    for oid in np.unique(oids):
        of_relation = rows[oids == oid]
        shapes = described.get(int(oid))
        if shapes is None:
            raise TornLogError(f"a change of relation {oid}, which no message describes")
        shape_of = np.searchsorted([at for at, _ in shapes], of_relation) - 1
        for index in np.unique(shape_of):
            at = of_relation[shape_of == index]
            yield _of_shape(data, starts[at], kinds[at], at, number[at], shapes[int(index)][1])


def _of_shape(
    data: Bytes, starts: Numbers, ops: Bytes, at: Numbers, number: Numbers, relation: LogRelation
) -> LogChanges:
    columns = len(relation.columns)
    marker = data[starts + 5]
    has_before = (marker == ord("K")) | (marker == ord("O"))
    before, after = Values.none(len(at), columns), Values.none(len(at), columns)
    # After the marker of a row that was there comes the marker of the new one, but for a deletion.
    positions = starts + 5
    if has_before.any():
        old, end = _tuples(data, positions[has_before] + 1, columns)
        before.put(has_before, old)
        positions = positions.copy()
        positions[has_before] = end
    has_after = ops != ord("D")
    if has_after.any():
        if not (data[positions[has_after]] == ord("N")).all():
            raise TornLogError(f"a change of {relation.table} without a new row")
        new, _ = _tuples(data, positions[has_after] + 1, columns)
        after.put(has_after, new)
    return LogChanges(relation, at, number, ops, before, has_before, after)


def _tuples(data: Bytes, positions: Numbers, columns: int) -> tuple[Values, Numbers]:
    """The values of the rows that begin at ``positions``, and where they end."""
    if not (_int16(data, positions) == columns).all():
        raise TornLogError("a row has another number of columns than its relation")
    values = Values.none(len(positions), columns)
    positions = positions + 2
    for column in range(columns):
        kind = data[positions]
        is_text = kind == TEXT
        length = np.where(is_text, _int32(data, np.where(is_text, positions + 1, 0)), 0)
        values.kind[:, column], values.start[:, column], values.length[:, column] = kind, positions + 5, length
        positions = positions + np.where(is_text, length + 5, 1)
    is_known = (values.kind == TEXT) | (values.kind == NULL) | (values.kind == UNCHANGED)
    if not is_known.all():
        raise TornLogError("a value that is neither text nor NULL nor unchanged")
    return values, positions


def row_values(rows: Sequence[bytes | memoryview], columns: int) -> tuple[Bytes, Values]:
    """The values of rows that ``COPY … (FORMAT BINARY)`` wrote, whose columns are texts.

    Args:
        rows: what COPY sent: a header, the rows, an end.

    Raises:
        TornLogError: the rows have other columns.
    """
    parts = [bytes(row) for row in rows]
    if parts and parts[0].startswith(b"PGCOPY"):
        parts[0] = parts[0][_COPY_HEADER:]
    parts = [part for part in parts if part not in (b"", b"\xff\xff")]
    data = np.frombuffer(b"".join(parts), np.uint8)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    positions = np.cumsum(lengths) - lengths
    values = Values.none(len(parts), columns)
    if not (_int16(data, positions) == columns).all():
        raise TornLogError("a row has another number of columns than was asked for")
    positions = positions + 2
    for column in range(columns):
        length = _int32(data, positions)
        is_null = length == _COPY_NULL
        values.kind[:, column] = np.where(is_null, NULL, TEXT)
        values.start[:, column] = positions + 4
        values.length[:, column] = np.where(is_null, 0, length)
        positions = positions + 4 + values.length[:, column]
    return data, values


def _relation(message: bytes) -> LogRelation:
    oid = int.from_bytes(message[1:5])
    namespace, offset = _string(message, 5)
    name, offset = _string(message, offset)
    identity = chr(message[offset])
    count = int.from_bytes(message[offset + 1 : offset + 3])
    offset += 3
    columns = []
    for _ in range(count):
        is_key = bool(message[offset] & 1)
        column, offset = _string(message, offset + 1)
        kind = int.from_bytes(message[offset : offset + 4])
        modifier = int.from_bytes(message[offset + 4 : offset + 8], signed=True)
        columns.append(LogRelationColumn(column, kind, modifier, is_key))
        offset += 8
    # Tables of the catalog have an empty namespace.
    return LogRelation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def _truncated(message: bytes) -> tuple[int, ...]:
    count = int.from_bytes(message[1:5])
    return tuple(int.from_bytes(message[6 + 4 * i : 10 + 4 * i]) for i in range(count))


def _string(message: bytes, offset: int) -> tuple[str, int]:
    end = message.index(0, offset)
    return message[offset:end].decode(), end + 1


def _int16(data: Bytes, positions: Numbers) -> Numbers:
    return data[positions].astype(np.int64) << 8 | data[positions + 1]


def _int32(data: Bytes, positions: Numbers) -> Numbers:
    return _int16(data, positions) << 16 | _int16(data, positions + 2)


def _int64(data: Bytes, positions: Numbers) -> Numbers:
    return _int32(data, positions) << 32 | _int32(data, positions + 4)
