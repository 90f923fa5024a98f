"""Events of a binary log, put together to the transactions that committed.

A Python loop passes all events, so it looks at few bytes of each; rows stay as they are for :mod:`rows`. Events of a
transaction count where it commits. What it did after a savepoint that it went back to does not count, nor does a
transaction that was rolled back, which the log has if it changed tables that have no transactions. The changes of a
transaction that was prepared by XA are kept until it commits.

MariaDB and MySQL have the same events but for those that begin a transaction, and for XA, which MariaDB notes there and
MySQL in statements. The numbers of events differ, so one reader takes both.

The formats: https://mariadb.com/docs/server/reference/clientserver-protocol/replication-protocol and
https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication.html
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import pyarrow as pa

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.binlog.statements import Statement, statement_of
from odi_assets.sources.cdc.binlog.tables import BinlogTable, table_of
from odi_assets.sources.cdc.binlog.wire import counted_number
from odi_assets.sources.cdc.changes import TornLogError

_QUERY, _ROTATE, _FORMAT, _XID, _LOAD, _TABLE, _INCIDENT = 2, 4, 15, 16, 18, 19, 26
_XA_PREPARE, _QUERY_COMPRESSED, _PARTIAL_ROWS, _PAYLOAD = 38, 165, 39, 40
_ROWS = {**dict.fromkeys((23, 30, 166), "I"), **dict.fromkeys((24, 31, 167), "U"), **dict.fromkeys((25, 32, 168), "D")}
_COMPRESSED, _WITH_EXTRAS = frozenset({166, 167, 168}), frozenset({30, 31, 32})
_IGNORED = frozenset({3, 5, 9, 11, 13, 14, 17, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164})
"""STOP, INTVAR, blocks of LOAD DATA, RAND, USER_VAR, heartbeats, annotations, checkpoints, lists of GTIDs, groups."""
_IGNORABLE = 0x80
_STANDALONE, _PREPARED, _COMPLETED, _HAS_GROUP = 0x01, 0x40, 0x80, 0x02
_HEADER = struct.Struct("<xIBIIIH")
_BODY = 20
_CHECKSUM_BYTES = 4
_PACKED_BY, _UNPACKED_SIZE, _BY_ZSTD, _BY_NOTHING = 2, 3, 0, 255


class ChangedRows:
    """An event with rows of one table that a statement changed.

    Attributes:
        op: ``I``, ``U`` or ``D``.
        rows: their bytes.
    """

    __slots__ = ("op", "rows", "table")

    def __init__(self, table: BinlogTable, op: str, rows: bytes) -> None:
        self.table, self.op, self.rows = table, op, rows


LogEntry = ChangedRows | Statement


@dataclass(frozen=True)
class Committed:
    """A transaction of the log.

    Attributes:
        position: where it ends in the log.
        gtid: names it, as in ``0-1-42``.
        sequence: the last number of that.
        committed_us: when it was committed, in microseconds since 1970; of MariaDB, whole seconds.
        began: where its changes begin in the log.
        entries: what it did, in order.
        xa: the name that XA gave it, as MariaDB's `XA RECOVER FORMAT='SQL'` lists it; empty for any other.
    """

    position: int
    began: int
    gtid: str
    sequence: int
    committed_us: int
    entries: list[LogEntry]
    xa: str = ""


@dataclass
class _Open:
    """The transaction that the log is in.

    Attributes:
        is_alone: it is one statement, and ends with it.
        prepared, completes: the name that XA gives a transaction which begins here, and ends later; or which ends here.
    """

    gtid: str
    sequence: int
    is_alone: bool
    began: int
    prepared: str | None = None
    completes: str | None = None
    committed_us: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)


@dataclass
class EventReader:
    """Reads the events of a log from a place on.

    Attributes:
        label: the source in words.
        again: the command that captures everything again, and what it does.
        wanted: the names of the tables whose changes count.
        base: what the names of the log's files begin with.
        file: the number of the file that the reader is in.
        offset: where the last event ended in it; 0 before the first one.
        created: by file, when it was made, in seconds since 1970.
        prepared: by the name that XA gives it, the transactions that have neither committed nor rolled back yet.
    """

    label: str
    again: str
    wanted: frozenset[str]
    base: str
    file: int
    offset: int = 0
    created: dict[int, int] = field(default_factory=dict)
    prepared: dict[str, _Open] = field(default_factory=dict)
    _checksum: int = 0
    _of_mysql: bool = False
    _open: _Open | None = None
    _tables: dict[bytes, BinlogTable | None] = field(default_factory=dict)
    _known: dict[bytes, BinlogTable | None] = field(default_factory=dict)

    @property
    def position(self) -> int:
        """Where the last event ended."""
        return self.file << 32 | self.offset

    @property
    def whole(self) -> int:
        """Where the last event ended that is not of a transaction which goes on."""
        return self.position if self._open is None else self._open.began

    def committed(self, events: Iterable[bytes]) -> Iterator[Committed]:
        """The transactions of a log, in the order of their commits.

        Raises:
            TornLogError: the log is damaged, or has events that are not known.
            SourceError: it lacks what a capture needs.
        """
        for event in events:
            second, kind, _, _, end, _ = _HEADER.unpack_from(event)
            if kind == _ROTATE:
                self._rotated(event)
                continue
            if kind == _FORMAT:
                self._described(event, second)
                continue
            if self._checksum:
                if zlib.crc32(event[1:-_CHECKSUM_BYTES]) != int.from_bytes(event[-_CHECKSUM_BYTES:], "little"):
                    raise TornLogError(f"{self.label}: the event that ends at {end} of file {self.file} is damaged")
                event = event[:-_CHECKSUM_BYTES]
            before = self.offset
            if end:
                if end < before:
                    self._too_long()
                self.offset = end
            inner = _unpacked(event) if kind == _PAYLOAD else (event,)
            for one in inner:
                transaction = self._taken(one, before)
                if transaction is not None:
                    yield transaction

    def _taken(self, event: bytes, before: int) -> Committed | None:
        """Take an event in, without its checksum; the transaction that ends with it.

        Args:
            before: where the event begins.
        """
        second, kind, server, _, _, flags = _HEADER.unpack_from(event)
        opened = self._open
        if kind == _TABLE:
            self._table(event)
        elif kind in _ROWS:
            self._rows(event, kind)
        elif kind == _PARTIAL_ROWS:
            self._require_other(event)
        elif kind in _BEGINS:
            self._open = _BEGINS[kind](event, server, self.file << 32 | before)
        elif opened is None:
            self._require_harmless(kind, flags)
        elif kind == _XID:
            return self._ended(opened, second)
        elif kind == _XA_PREPARE:
            return self._prepare(opened, event, second)
        elif kind in (_QUERY, _QUERY_COMPRESSED, _LOAD):
            return self._statement(opened, event, kind, second)
        else:
            self._require_harmless(kind, flags)
        return None

    def _rotated(self, event: bytes) -> None:
        """Go to the file that follows. What the file itself says at its end is left over: the server says it again."""
        if int.from_bytes(event[14:18], "little"):
            return
        # A checksum may stand behind the name.
        name, number = event[_BODY + 8 :], self.file if self.offset == 0 else self.file + 1
        if not name.startswith(f"{self.base}.{number:06d}".encode()):
            raise TornLogError(f"{self.label}: the log goes on with another file than {self.base}.{number:06d}")
        self.file, self.offset = number, int.from_bytes(event[_BODY : _BODY + 8], "little")
        self._known.clear()

    def _described(self, event: bytes, second: int) -> None:
        self.created[self.file] = second
        self._of_mysql = b"mariadb" not in event[_BODY + 2 : _BODY + 52].lower()
        self._checksum = event[-_CHECKSUM_BYTES - 1]
        if self._checksum not in (0, 1):
            raise TornLogError(f"{self.label}: the log has checksums of kind {self._checksum}, which is not known")

    def _table(self, event: bytes) -> None:
        body = event[_BODY + 6 :]
        if body not in self._tables:
            self._tables[body] = table_of(body, self.wanted, self.label, self.again, of_mysql=self._of_mysql)
        self._known[event[_BODY : _BODY + 6]] = self._tables[body]

    def _rows(self, event: bytes, kind: int) -> None:
        number = event[_BODY : _BODY + 6]
        if number not in self._known:
            if number == b"\xff\xff\xff\x00\x00\x00":
                return
            raise TornLogError(f"{self.label}: the log has rows of a table that it does not describe")
        table = self._known[number]
        if table is None:
            return
        if self._open is None:
            raise TornLogError(f"{self.label}: the log has rows outside of a transaction")
        extras = int.from_bytes(event[_BODY + 8 : _BODY + 10], "little") if kind in _WITH_EXTRAS else 0
        width, offset = counted_number(event, _BODY + 8 + extras)
        op = _ROWS[kind]
        for _ in range(2 if op == "U" else 1):
            present = int.from_bytes(event[offset : offset + table.bitmap_bytes], "little")
            offset += table.bitmap_bytes
            if width != len(table.columns) or present & table.all_bits != table.all_bits:
                raise SourceError(
                    f"{self.label}: the log has changes of {table.table} without all columns of their rows: somebody "
                    "changed it in a session whose `binlog_row_image` is not FULL",
                    fix=f"have that session leave `binlog_row_image` as it is; then {self.again}",
                    label=self.label,
                )
        rows = event[offset:]
        if kind in _COMPRESSED:
            rows = _uncompressed(rows)
        if rows:
            self._open.entries.append(ChangedRows(table, op, rows))

    def _statement(self, opened: _Open, event: bytes, kind: int, second: int) -> Committed | None:
        text, database = _query(event, kind)
        if opened.is_alone and (text == "BEGIN" or text.startswith("XA ")):
            # MySQL's: what begins a transaction says no more than its name.
            verb, _, name = text.partition(" X'")
            if verb not in ("XA COMMIT", "XA ROLLBACK"):
                opened.is_alone = False
                return None
            opened.completes = f"X'{name}"
        if opened.completes is not None:
            self._open = None
            known = self.prepared.pop(opened.completes, None)
            if not text.startswith("XA COMMIT"):
                return None
            # One that is not known changed no table that is captured.
            if known is not None:
                opened.entries, opened.began = known.entries, known.began
            return self._ended(opened, second)
        if not opened.is_alone:
            if text == "COMMIT":
                return self._ended(opened, second)
            if text == "ROLLBACK":
                self._open = None
                return None
            if text.startswith("ROLLBACK TO "):
                del opened.entries[opened.savepoints.get(text[text.find("`") :], len(opened.entries)) :]
                return None
            if text.startswith("SAVEPOINT "):
                opened.savepoints[text[text.find("`") :]] = len(opened.entries)
                return None
            if text == "BEGIN" or text.startswith("XA "):
                return None
        statement = statement_of(text, database, self.wanted)
        if statement is not None:
            opened.entries.append(statement)
        return self._ended(opened, second) if opened.is_alone else None

    def _prepare(self, opened: _Open, event: bytes, second: int) -> Committed | None:
        if event[_BODY]:
            # It is prepared and committed at once.
            return self._ended(opened, second)
        name = opened.prepared or _prepared_name(event)
        if opened.entries:
            self.prepared[name] = opened
        self._open = None
        return None

    def _ended(self, opened: _Open, second: int) -> Committed:
        self._open = None
        moment = opened.committed_us or second * 1_000_000
        name = opened.completes or ""
        return Committed(self.position, opened.began, opened.gtid, opened.sequence, moment, opened.entries, name)

    def _require_other(self, event: bytes) -> None:
        """Raises SourceError if an event with parts of JSON values is of a table that is captured."""
        table = self._known.get(event[_BODY : _BODY + 6])
        if table is not None:
            raise SourceError(
                f"{self.label}: the log has changed JSON of {table.table} without the whole values: somebody made the "
                "changes in a session whose `binlog_row_value_options` is PARTIAL_JSON",
                fix=f"have that session leave `binlog_row_value_options` empty; then {self.again}",
                label=self.label,
            )

    def _require_harmless(self, kind: int, flags: int) -> None:
        """Raises an error for events that a capture may not pass."""
        if kind == _INCIDENT:
            raise SourceError(
                f"{self.label}: the server notes in its log, before {self.offset} of file {self.file}, that events are "
                "missing there",
                fix=self.again,
                label=self.label,
            )
        if kind not in _IGNORED and not flags & _IGNORABLE:
            raise TornLogError(f"{self.label}: the log has events of kind {kind}, which is not known")

    def _too_long(self) -> NoReturn:
        raise SourceError(
            f"{self.label}: file {self.file} of the log is longer than 4 GB, and has no positions behind that",
            fix=f"{self.again}; smaller transactions make smaller files",
            label=self.label,
        )


def _begun_in_mariadb(event: bytes, server: int, began: int) -> _Open:
    sequence, domain, flags = struct.unpack_from("<QIB", event, _BODY)
    opened = _Open(f"{domain}-{server}-{sequence}", sequence, bool(flags & _STANDALONE), began)
    if flags & (_PREPARED | _COMPLETED):
        name = event[_BODY + 13 + (8 if flags & _HAS_GROUP else 0) :]
        listed = _listed(int.from_bytes(name[:4], "little"), name[6 : 6 + name[4]], name[6 + name[4] :][: name[5]])
        if flags & _PREPARED:
            opened.prepared = listed
        else:
            opened.completes = listed
    return opened


def _begun_in_mysql(event: bytes, server: int, began: int) -> _Open:
    del server
    number = int.from_bytes(event[_BODY + 17 : _BODY + 25], "little")
    # The highest bit says that the time of the server where it was made follows.
    moment = int.from_bytes(event[_BODY + 42 : _BODY + 49], "little") & (1 << 55) - 1
    return _Open(f"{uuid.UUID(bytes=event[_BODY + 1 : _BODY + 17])}:{number}", number, True, began, committed_us=moment)


def _begun_with_tag(event: bytes, server: int, began: int) -> _Open:
    """What MySQL 8.3 and later write where a GTID has a tag: fields, each behind its number."""
    del server
    _, offset = _varying(event, _BODY, 3)
    _, offset = _varying(event, offset, 2)
    (_, *source), offset = _varying(event, offset, 17)
    (_, number, _, length), offset = _varying(event, offset, 4)
    tag, offset = event[offset : offset + length].decode(), offset + length
    (*_, moment), offset = _varying(event, offset, 6)
    # A number with a sign has it in its last bit; numbers of transactions have none.
    gtid = f"{uuid.UUID(bytes=bytes(source))}:{tag}:{number // 2}"
    return _Open(gtid, number // 2, True, began, committed_us=moment)


def _varying(event: bytes, offset: int, count: int) -> tuple[list[int], int]:
    """Numbers whose first byte says how long they are, by the ones that it ends with; and where the last one ends."""
    numbers = []
    for _ in range(count):
        first = event[offset]
        more = (~first & (first + 1)).bit_length() - 1
        rest = int.from_bytes(event[offset + 1 : offset + 1 + more], "little")
        numbers.append(first >> (more + 1) | rest << max(0, 7 - more))
        offset += 1 + more
    return numbers, offset


def _prepared_name(event: bytes) -> str:
    """The name of a transaction that MySQL's XA prepares."""
    kind, first, last = struct.unpack_from("<III", event, _BODY + 1)
    name = event[_BODY + 13 :]
    return _listed(kind, name[:first], name[first : first + last])


def _listed(kind: int, first: bytes, last: bytes) -> str:
    """The name of a transaction of XA as servers write it."""
    return f"X'{first.hex()}',X'{last.hex()}',{kind}"


def _unpacked(event: bytes) -> Iterator[bytes]:
    """The events that MySQL's `binlog_transaction_compression` packed into one, each behind a byte 0."""
    fields: dict[int, int] = {}
    offset = _BODY
    while event[offset]:
        kind, offset = counted_number(event, offset)
        size, offset = counted_number(event, offset)
        fields[kind], _ = counted_number(event, offset)
        offset += size
    data = event[offset + 1 :]
    if fields.get(_PACKED_BY, _BY_NOTHING) == _BY_ZSTD:
        data = pa.Codec("zstd").decompress(data, fields[_UNPACKED_SIZE], asbytes=True)
    offset = 0
    while offset < len(data):
        size = int.from_bytes(data[offset + 9 : offset + 13], "little")
        yield b"\0" + data[offset : offset + size]
        offset += size


def _query(event: bytes, kind: int) -> tuple[str, str]:
    """The text of a statement, and the database that it ran in."""
    length = event[_BODY + 8]
    settings = int.from_bytes(event[_BODY + 11 : _BODY + 13], "little")
    offset = _BODY + 13 + (13 if kind == _LOAD else 0) + settings
    database, text = event[offset : offset + length], event[offset + length + 1 :]
    if kind == _QUERY_COMPRESSED:
        text = _uncompressed(text)
    return text.decode("utf-8", "replace"), database.decode("utf-8", "replace")


def _uncompressed(data: bytes) -> bytes:
    """What `log_bin_compress` packed: a byte that says how long the length is, the length, and what zlib made."""
    if data[0] & 0x70:
        raise TornLogError("the log is compressed in a way that is not known")
    return zlib.decompress(data[1 + (data[0] & 0x07) :])


_BEGINS: Mapping[int, Callable[[bytes, int, int], _Open]] = {
    162: _begun_in_mariadb,
    33: _begun_in_mysql,
    42: _begun_with_tag,
}
"""By number of an event that begins a transaction, what reads it."""
