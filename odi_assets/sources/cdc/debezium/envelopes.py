"""Debezium's envelopes as changes of the change log: one message after the other of a stream whose order counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.debezium.columns import UNTYPED, EnvelopeColumn, named, of_schema
from odi_assets.sources.cdc.debezium.messages import EnvelopeMessage, RefusedMessage
from odi_assets.sources.cdc.debezium.placeholders import Placeholders
from odi_assets.sources.cdc.debezium.settings import DebeziumRead
from odi_assets.sources.cdc.log import Op, Shape, ShapeColumn
from odi_assets.sources.cdc.patterns import TablePatterns
from odi_assets.sources.cdc.patterns import named as named_by
from odi_assets.util.words import counted

_log = logging.getLogger(__name__)

Texts = list[str | None]
_OPS = {"r": Op.READ, "c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "t": Op.TRUNCATE}
_NO_ROWS = frozenset({"ddl", "tableChanges", "status"})
"""Keys of messages that Debezium writes beside changes: of schemas, and of the borders of transactions."""
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
"""What heartbeats have."""
_BAD = (ValueError, TypeError, KeyError, OverflowError)


@dataclass(frozen=True)
class LoggedTable:
    """What a mark keeps of a table of the log.

    Attributes:
        key: the columns that identify its rows; empty if it has no key, None before one of them has come.
        origin: Debezium's name of the server, and the database.
        position: the last place of a change of it in the database's log; None if places are not known.
    """

    key: tuple[str, ...] | None
    origin: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of the change log, without its number.

    Attributes:
        position: where the database's log has it; None if that is not known.
        committed_us: microseconds since 1970, UTC; None if that is not known.
        unchanged: the places of the values that the log does not have.
    """

    table: str
    op: Op
    position: int | None
    xid: int | None
    committed_us: int | None
    shape: Shape | None = None
    key: Texts | None = None
    before: Texts | None = None
    after: Texts | None = None
    unchanged: list[int] | None = None


@dataclass(frozen=True)
class EnvelopeRules:
    """What the project file says of messages.

    Attributes:
        label: of the source, for messages.
        node: who reads, as ``pipeline.node``.
    """

    read: DebeziumRead
    label: str
    node: str

    @property
    def again(self) -> str:
        """The command that makes the change log again."""
        return f"odi run {self.node.replace('.', ' --node ')} --full-refresh --yes"


@dataclass
class _Table:
    """What is known of a table as its messages go by.

    Attributes:
        fields: the schema that :attr:`columns` were made of, or the names.
        deleted: the last change, if it took a row out: its position, its transaction and the row's key.
    """

    key: tuple[str, ...] | None = None
    fields: Any = None
    columns: tuple[tuple[str, EnvelopeColumn], ...] = ()
    shape: Shape | None = None
    deleted: tuple[int, int | None, Texts] | None = None


@dataclass
class EnvelopeReader:
    """Reads the messages of a run.

    Attributes:
        tables: the tables of the log; it gains those that messages bring.
        binlog: what the names of the binary log's files begin with, if changes are of one.
        patterns: what `tables` was in the runs that made the log.
    """

    rules: EnvelopeRules
    tables: dict[str, LoggedTable]
    binlog: str = ""
    patterns: tuple[tuple[str, ...], ...] = ()
    _known: dict[tuple[str, str], _Table] = field(default_factory=dict)
    _wanted: dict[str, bool] = field(default_factory=dict)
    _deletes: set[tuple[str, int]] = field(default_factory=set)
    _halves: dict[tuple[str, int], str] = field(default_factory=dict)
    _met: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = {name: table.position for name, table in self.tables.items() if table.position is not None}
        self._below: Counter[str] = Counter()
        self._placeholders = Placeholders(self.rules.read.unavailable)
        self._where = ""

    def changes(
        self, message: bytes, stream: str, where: str, key: bytes | None = None, headers: Iterable[Any] = ()
    ) -> list[RowChange]:
        """What a message says; nothing for a tombstone, a heartbeat, and what else is no change of a row.

        Args:
            stream: messages of one stream come in order.
            where: the place of the message, for messages: a file and a line, or a partition and an offset.
            key: of a message of Kafka.
            headers: pairs of a name and bytes.

        Raises:
            SourceError: it is no envelope, or has values that its types do not hold; or it is of another table or
                server than the log has under this name.
        """
        try:
            envelope = EnvelopeMessage.of(message, key, headers)
            self._where = where
            return [] if envelope is None else self._changes(envelope, stream)
        except RefusedMessage as error:
            raise SourceError(f"{self.rules.label}: {where} {error}", fix=error.fix, path=where) from error.__cause__

    def require_whole(self) -> None:
        """Look whether all that belongs together has come, once all messages of a run are read.

        Raises:
            SourceError: a row got another key, and the message that takes the row with the former key out, in another
                stream, has not come: what that stream has of the row is not known yet.
        """
        for table, columns in self._met.items():
            if unknown := sorted(self.rules.read.types.get(table, {}).keys() - columns):
                text = "%s: `types` names %s of %s, and no message that was read has such a column"
                _log.warning(text, self.rules.node, ", ".join(unknown), table)
        for table, count in (+self._below).items():
            text = "%s: %s of %s lie before what the log has of it: Debezium repeated them, or they came late. If they "
            text += "came late, older values replace newer ones: %s puts all in order"
            _log.warning(text, self.rules.node, counted(count, "change"), table, self.rules.again)
        missing = self._halves.keys() - self._deletes
        if missing:
            first = min(missing, key=lambda at: at[1])
            raise SourceError(
                f"{self.rules.label}: {self._halves[first]} gives a row of {first[0]} another key, and the message "
                "that takes out the row with the former key is not there yet",
                fix="run the node again once it is: nothing was written. If it was read in an earlier run: "
                f"{self.rules.again}",
                path=self._halves[first],
            )

    def _changes(self, message: EnvelopeMessage, stream: str) -> list[RowChange]:
        value, read = message.value, self.rules.read
        op = value.get("op")
        if op is None:
            if value.keys() & _NO_ROWS or value.keys() <= _TIMES:
                return []
            raise RefusedMessage(
                f"is no envelope of Debezium: it has no `op`, but {', '.join(list(value)[:6])}",
                "leave the transform `ExtractNewRecordState` out of the connector; rows without envelopes are read "
                "with `format: json`",
            )
        if op == "m":
            return []
        source = value.get("source")
        if op not in _OPS or not isinstance(source, dict) or not source.get("table"):
            what = f"has `op: {op}`" if op not in _OPS else "has no `source.table`"
            raise RefusedMessage(f"{what}, which no change of a table has", "see which connector writes it")
        table = f"{source.get('schema') or source.get('db')}.{source['table']}"
        if not self._is_wanted(table):
            return []
        self._require_origin(table, source)
        facts = (self._position(source), _whole(source.get("txId")), _committed(source))
        self._note_place(table, facts[0])
        known = self._known.setdefault((stream, table), _Table())
        if op == "t":
            known.deleted = None
            return [RowChange(table, Op.TRUNCATE, *facts)]
        row = value.get("after") if op != "d" else value.get("before")
        if not isinstance(row, dict) and not (op == "d" and message.key):
            raise RefusedMessage(
                f"has `op: {op}` and {'its `after`' if op != 'd' else 'its `before`, and its key,'} is no row",
                "a source whose rows are no structures, as MongoDB's documents, is not read",
            )
        self._shaped(known, table, message, row if isinstance(row, dict) else message.key or {}, read)
        return list(self._rows(known, _OPS[op], table, message, facts))

    def _is_wanted(self, table: str) -> bool:
        if table not in self._wanted:
            is_wanted = _takes(self.rules.read.tables, table)
            if is_wanted and not all(_takes(patterns, table) for patterns in self.patterns):
                raise RefusedMessage(
                    f"is a change of {table}, which `tables` did not take when the messages before it were read",
                    f"{self.rules.again} reads them all again; or let a node of its own make a log of {table}, which "
                    "begins at the first message",
                )
            self._wanted[table] = is_wanted
        return self._wanted[table]

    @property
    def all_patterns(self) -> tuple[tuple[str, ...], ...]:
        """What `tables` was in all runs, this one included."""
        return tuple(dict.fromkeys((*self.patterns, tuple(self.rules.read.tables))))

    def _require_origin(self, table: str, source: Mapping[str, Any]) -> None:
        origin = "/".join(str(source[name]) for name in ("name", "db") if source.get(name))
        known = self.tables.get(table)
        if known is None:
            self.tables[table] = LoggedTable(None, origin)
        elif known.origin != origin:
            raise RefusedMessage(
                f"is a change of {table} of {origin}, and the log has {table} of {known.origin}",
                f"read each server with a node of its own; or, if the connector has another name now: "
                f"{self.rules.again}, with a `path` or `topics` of it alone",
            )

    def _note_place(self, table: str, position: int | None) -> None:
        if position is None:
            return
        before, known = self._began.get(table), self.tables[table]
        self._below[table] += before is not None and position < before
        if known.position is None or position > known.position:
            self.tables[table] = replace(known, position=position)

    def _position(self, source: Mapping[str, Any]) -> int | None:
        base, _, number = str(source.get("file") or "").rpartition(".")
        offset = _whole(source.get("pos"))
        if number.isdecimal() and offset is not None:
            self.binlog = base
            return _in_64_bits(int(number) << 32 | offset)
        scn = source.get("scn")
        lsn = _whole(source.get("lsn"))
        return _in_64_bits(int(scn) if lsn is None and isinstance(scn, str) and scn.isdecimal() else lsn)

    # -- columns -------------------------------------------------------------------------------------------------------

    def _shaped(
        self, known: _Table, table: str, message: EnvelopeMessage, row: Mapping[str, Any], read: DebeziumRead
    ) -> None:
        """Set the columns of ``known`` to those of a message."""
        names = tuple(message.key) if message.key and table not in read.keys else ()
        fields = message.fields if message.fields is not None else list(row)
        if known.shape is not None and known.key == names and known.fields == fields:
            return
        types = read.types.get(table, {})
        columns: list[tuple[str, EnvelopeColumn]] = []
        for schema in fields:
            name = str(schema["field"] if isinstance(schema, dict) else schema)
            try:
                type_name = types.get(name)
                column = named(type_name) if type_name else of_schema(schema) if isinstance(schema, dict) else UNTYPED
            except _BAD as error:
                text = f"has a schema of {table} whose column `{name}` is no type that Kafka Connect has"
                raise RefusedMessage(text, "let Kafka's JsonConverter write it") from error
            columns.append((name, column))
        key = set(read.keys.get(table, names))
        there = [name for name, _ in columns]
        if lacking := sorted(key - {*there}):
            raise RefusedMessage(
                f"has the columns {', '.join(there)} of {table}, and not {', '.join(lacking)}",
                "correct `keys` of the node",
            )
        self._met.setdefault(table, set()).update(there)
        shape = Shape(tuple(ShapeColumn(name, column.type, name in key) for name, column in columns))
        self._require_key(table, shape.key)
        known.key, known.fields, known.columns, known.shape = names, fields, tuple(columns), shape

    def _require_key(self, table: str, key: tuple[str, ...]) -> None:
        before = self.tables[table]
        if before.key is None:
            self.tables[table] = replace(before, key=key)
        elif set(before.key) != set(key):
            now, then = (", ".join(columns) or "no key" for columns in (key, before.key))
            raise RefusedMessage(
                f"is a change of {table} by {now}, and the log has its changes by {then}",
                f"name the key of all its changes in `read.keys`, as in `keys: {{{table}: [id]}}`, and make the log "
                f"again: {self.rules.again}",
            )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(
        self,
        known: _Table,
        op: Op,
        table: str,
        message: EnvelopeMessage,
        facts: tuple[int | None, int | None, int | None],
    ) -> Iterable[RowChange]:
        shape = known.shape
        assert shape is not None
        before, lacks_before = self._texts(known, message.value.get("before"))
        after, lacks = self._texts(known, message.value.get("after"))
        places = shape.key_places
        position, xid, _ = facts
        deleted, known.deleted = known.deleted, None
        old = None if before is None or lacks_before else [before[index] for index in places]
        if op is Op.DELETE:
            if old is None or None in old:
                old = self._key_texts(known, message.key)
            if places and (old is None or None in old):
                raise RefusedMessage("takes a row out, and says no key of it", "name the table's key in `read.keys`")
            if position is not None and old:
                known.deleted = (position, xid, [*old])
                self._deletes.add((table, position))
            yield RowChange(table, op, *facts, shape, old if places else None)
            return
        assert after is not None
        key = [after[index] for index in places] if places else None
        if key is not None and None in key:
            raise RefusedMessage(f"has a row of {table} without a value of its key", "correct `keys` of the node")
        former: Texts | None = None
        if op is Op.CREATE:
            if deleted is not None and deleted[:2] == (position, xid):
                # An update of a key is two messages of one place of the log.
                former = deleted[2]
            elif message.old_key is not None:
                former = self._key_texts(known, message.old_key)
                if lacks and position is not None:
                    self._halves[table, position] = self._where
            before = self._only_key(known, former)
            if lacks and before is None:
                raise self._unknown(known, table, lacks)
        elif op is Op.UPDATE and key is not None and old is not None and None not in old and old != key:
            yield RowChange(table, Op.DELETE, *facts, shape, old)
            op = Op.CREATE
        yield RowChange(table, op, *facts, shape, key, before, after, lacks or None)

    def _texts(self, known: _Table, row: Any) -> tuple[Texts | None, list[int]]:
        """The values of a row, and the places of those that the log does not have."""
        if not isinstance(row, dict):
            return None, []
        texts: Texts = []
        lacks: list[int] = []
        for index, (name, column) in enumerate(known.columns):
            value = row.get(name)
            if value is not None and self._placeholders.stands_for(value):
                lacks.append(index)
                value = None
            texts.append(None if value is None else _text(column, name, value))
        return texts, lacks

    @staticmethod
    def _key_texts(known: _Table, key: Mapping[str, Any] | None) -> Texts | None:
        if key is None or known.shape is None:
            return None
        columns = dict(known.columns)
        values = [(name, key.get(name)) for name in known.shape.key]
        return [None if value is None else _text(columns[name], name, value) for name, value in values]

    def _only_key(self, known: _Table, key: Texts | None) -> Texts | None:
        if key is None or known.shape is None:
            return None
        values = dict(zip(known.shape.key_places, key, strict=True))
        return [values.get(index) for index in range(len(known.columns))]

    def _unknown(self, known: _Table, table: str, lacks: Sequence[int]) -> RefusedMessage:
        names = ", ".join(known.columns[index][0] for index in lacks)
        return RefusedMessage(
            f"makes a row of {table} without the value of {names}, and does not say which row had it before",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL, and let Debezium make a new snapshot of it, before it comes "
            "once more",
        )


def _takes(tables: Sequence[str], table: str) -> bool:
    patterns = TablePatterns.of(tables)
    wanted = not patterns.wanted or any(named_by(pattern, [table]) for pattern in patterns.wanted)
    return wanted and bool(patterns.kept([table]))


def _text(column: EnvelopeColumn, name: str, value: Any) -> str:
    try:
        return column.text(value)
    except _BAD as error:
        raise RefusedMessage(
            f"has a column `{name}` that is {str(value)[:60]!r}, which {error} ({column.type})",
            "correct `types` of the node, or the converter of the connector",
        ) from error


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _in_64_bits(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 1 << 63 else None


def _committed(source: Mapping[str, Any]) -> int | None:
    us, ms = _whole(source.get("ts_us")), _whole(source.get("ts_ms"))
    return us if us is not None else None if ms is None else ms * 1_000
