"""Debezium's envelopes as changes of the change log: one message after the other of a stream whose order counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.debezium.columns import UNTYPED, EnvelopeColumn, Raw, named, of_schema
from odi_assets.sources.cdc.debezium.placeholders import Placeholders
from odi_assets.sources.cdc.debezium.settings import DebeziumRead
from odi_assets.sources.cdc.log import Op, Shape, ShapeColumn
from odi_assets.sources.cdc.patterns import TablePatterns
from odi_assets.sources.cdc.patterns import named as named_by

_log = logging.getLogger(__name__)

Texts = list[str | None]
_OPS = {"r": Op.READ, "c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "t": Op.TRUNCATE}
_NO_ROWS = frozenset({"ddl", "tableChanges", "status"})
"""Keys of messages that Debezium writes beside changes: of schemas, and of the borders of transactions."""
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
"""What heartbeats have."""
_JSON = json.JSONDecoder(parse_float=Raw, parse_constant=Raw)
_OLD_KEY = "__debezium.oldkey"
_BAD = (ValueError, TypeError, KeyError, OverflowError)


@dataclass(frozen=True)
class LoggedTable:
    """What a mark keeps of a table of the log.

    Attributes:
        key: the columns that identify its rows; empty if it has no key, None before one of them has come.
        origin: Debezium's name of the server, and the database.
    """

    key: tuple[str, ...] | None
    origin: str


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
    """

    rules: EnvelopeRules
    tables: dict[str, LoggedTable]
    binlog: str = ""
    _known: dict[tuple[str, str], _Table] = field(default_factory=dict)
    _wanted: dict[str, bool] = field(default_factory=dict)
    _deletes: set[tuple[str, int]] = field(default_factory=set)
    _halves: dict[tuple[str, int], str] = field(default_factory=dict)
    _met: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
            found = _Message.of(message, key, headers)
            self._where = where
            return [] if found is None else self._changes(found, stream)
        except _Refused as error:
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
        missing = self._halves.keys() - self._deletes
        if missing:
            first = min(missing, key=lambda at: at[1])
            raise SourceError(
                f"{self.rules.label}: {self._halves[first]} gives a row of {first[0]} another key, and the message "
                "that takes out the row with the former key is not there yet",
                fix="run the node again once it is: nothing was written",
                path=self._halves[first],
            )

    def _changes(self, message: _Message, stream: str) -> list[RowChange]:
        value, read = message.value, self.rules.read
        op = value.get("op")
        if op is None:
            if value.keys() & _NO_ROWS or value.keys() <= _TIMES:
                return []
            raise _Refused(
                f"is no envelope of Debezium: it has no `op`, but {', '.join(list(value)[:6])}",
                "leave the transform `ExtractNewRecordState` out of the connector; rows without envelopes are read "
                "with `format: json`",
            )
        if op == "m":
            return []
        source = value.get("source")
        if op not in _OPS or not isinstance(source, dict) or not source.get("table"):
            what = f"has `op: {op}`" if op not in _OPS else "has no `source.table`"
            raise _Refused(f"{what}, which no change of a table has", "see which connector writes it")
        table = f"{source.get('schema') or source.get('db')}.{source['table']}"
        if not self._is_wanted(table):
            return []
        self._require_origin(table, source)
        facts = (self._position(source), _whole(source.get("txId")), _committed(source))
        known = self._known.setdefault((stream, table), _Table())
        if op == "t":
            known.deleted = None
            return [RowChange(table, Op.TRUNCATE, *facts)]
        row = value.get("after") if op != "d" else value.get("before")
        if not isinstance(row, dict) and not (op == "d" and message.key):
            raise _Refused(
                f"has `op: {op}` and {'its `after`' if op != 'd' else 'its `before`, and its key,'} is no row",
                "a source whose rows are no structures, as MongoDB's documents, is not read",
            )
        self._shaped(known, table, message, row if isinstance(row, dict) else message.key or {}, read)
        return list(self._rows(known, _OPS[op], table, message, facts))

    def _is_wanted(self, table: str) -> bool:
        if table not in self._wanted:
            patterns = TablePatterns.of(self.rules.read.tables)
            wanted = not patterns.wanted or any(named_by(pattern, [table]) for pattern in patterns.wanted)
            self._wanted[table] = wanted and bool(patterns.kept([table]))
        return self._wanted[table]

    def _require_origin(self, table: str, source: Mapping[str, Any]) -> None:
        origin = "/".join(str(source[name]) for name in ("name", "db") if source.get(name))
        known = self.tables.get(table)
        if known is None:
            self.tables[table] = LoggedTable(None, origin)
        elif known.origin != origin:
            raise _Refused(
                f"is a change of {table} of {origin}, and the log has {table} of {known.origin}",
                f"read each server with a node of its own; or, if the connector has another name now: "
                f"{self.rules.again}, with a `path` or `topics` of it alone",
            )

    def _position(self, source: Mapping[str, Any]) -> int | None:
        base, _, number = str(source.get("file") or "").rpartition(".")
        place = _whole(source.get("pos"))
        if number.isdecimal() and place is not None:
            self.binlog = base
            return _in_64_bits(int(number) << 32 | place)
        scn = source.get("scn")
        found = _whole(source.get("lsn"))
        return _in_64_bits(int(scn) if found is None and isinstance(scn, str) and scn.isdecimal() else found)

    # -- columns -------------------------------------------------------------------------------------------------------

    def _shaped(self, known: _Table, table: str, message: _Message, row: Mapping[str, Any], read: DebeziumRead) -> None:
        """Set the columns of ``known`` to those of a message."""
        names = tuple(message.key) if message.key and table not in read.keys else ()
        fields = message.fields if message.fields is not None else list(row)
        if known.shape is not None and known.key == names and known.fields == fields:
            return
        types = read.types.get(table, {})
        columns: list[tuple[str, EnvelopeColumn]] = []
        for one in fields:
            name = str(one["field"] if isinstance(one, dict) else one)
            try:
                given = types.get(name)
                column = named(given) if given else of_schema(one) if isinstance(one, dict) else UNTYPED
            except _BAD as error:
                text = f"has a schema of {table} whose column `{name}` is no type that Kafka Connect has"
                raise _Refused(text, "let Kafka's JsonConverter write it") from error
            columns.append((name, column))
        key = set(read.keys.get(table, names))
        there = [name for name, _ in columns]
        if lacking := sorted(key - {*there}):
            raise _Refused(
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
            self.tables[table] = LoggedTable(key, before.origin)
        elif set(before.key) != set(key):
            now, then = (", ".join(one) or "no key" for one in (key, before.key))
            raise _Refused(
                f"is a change of {table} by {now}, and the log has its changes by {then}",
                f"name the key of all its changes in `read.keys`, as in `keys: {{{table}: [id]}}`, and make the log "
                f"again: {self.rules.again}",
            )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(
        self, known: _Table, op: Op, table: str, message: _Message, facts: tuple[int | None, int | None, int | None]
    ) -> Iterable[RowChange]:
        shape = known.shape
        assert shape is not None
        before, lacks_before = self._texts(known, message.value.get("before"))
        after, lacks = self._texts(known, message.value.get("after"))
        places = shape.key_places
        position, xid, _ = facts
        deleted, known.deleted = known.deleted, None
        old = None if before is None or lacks_before else [before[place] for place in places]
        if op is Op.DELETE:
            if old is None or None in old:
                old = self._key_texts(known, message.key)
            if places and (old is None or None in old):
                raise _Refused("takes a row out, and says no key of it", "name the table's key in `read.keys`")
            if position is not None and old:
                known.deleted = (position, xid, [*old])
                self._deletes.add((table, position))
            yield RowChange(table, op, *facts, shape, old if places else None)
            return
        assert after is not None
        key = [after[place] for place in places] if places else None
        if key is not None and None in key:
            raise _Refused(f"has a row of {table} without a value of its key", "correct `keys` of the node")
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
        for place, (name, column) in enumerate(known.columns):
            value = row.get(name)
            if value is not None and self._placeholders.stands_for(value):
                lacks.append(place)
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
        return [values.get(place) for place in range(len(known.columns))]

    def _unknown(self, known: _Table, table: str, lacks: Sequence[int]) -> _Refused:
        names = ", ".join(known.columns[place][0] for place in lacks)
        return _Refused(
            f"makes a row of {table} without the value of {names}, and does not say which row had it before",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL, and let Debezium make a new snapshot of it, before it comes "
            "once more",
        )


@dataclass(frozen=True)
class _Message:
    """A message, taken apart.

    Attributes:
        value: the envelope.
        fields: the schemas of the row's columns; None without a schema.
        key: of the row.
        old_key: that the row had before, if the message says so.
    """

    value: Mapping[str, Any]
    fields: list[Mapping[str, Any]] | None
    key: Mapping[str, Any] | None
    old_key: Mapping[str, Any] | None

    @classmethod
    def of(cls, text: bytes, key: bytes | None, headers: Iterable[Any]) -> _Message | None:
        value, beside = _loaded(text), _key(key)
        if isinstance(value, dict) and "op" not in value:
            # A message with its key beside it, as kcat and sinks write it.
            name = next((one for one in ("value", "payload") if one in value and "schema" not in value), None)
            if name is not None:
                beside, headers = _key(value.get("key")), value.get("headers") or ()
                value = _loaded(value[name])
        schema = value.get("schema") if isinstance(value, dict) and "payload" in value else None
        value = _payload(value)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _Refused("is no object of JSON", "land one envelope a line; an array of envelopes is none")
        if isinstance(headers, dict):
            headers = headers.items()
        pairs = (next(iter(one.items())) if isinstance(one, dict) else one for one in headers)
        old = next((found for name, found in pairs if name == _OLD_KEY), None)
        return cls(value, _fields(schema), _row(_payload(beside)), _row(_payload(_key(old))))


def _key(text: Any) -> Any:
    """A key, loaded; None for one that another converter wrote: `keys` of the node names its columns."""
    try:
        return _loaded(text)
    except _Refused:
        return None


def _row(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def _payload(value: Any) -> Any:
    return value["payload"] if isinstance(value, dict) and {"schema", "payload"} <= value.keys() else value


def _fields(schema: Any) -> list[Mapping[str, Any]] | None:
    """The schemas of the columns, of the schema of an envelope."""
    if not isinstance(schema, dict):
        return None
    parts = schema.get("fields") or ()
    rows = (one for one in parts if isinstance(one, dict) and one.get("field") in ("after", "before"))
    return next((one["fields"] for one in rows if isinstance(one.get("fields"), list)), None)


def _loaded(text: Any) -> Any:
    """JSON in text or bytes; what is neither is loaded already."""
    if not isinstance(text, str | bytes):
        return text
    try:
        return _JSON.decode(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except ValueError as error:
        raise _Refused(
            f"is no JSON: {error}",
            "land one envelope a line, as Kafka's JsonConverter writes it; `incremental: {mode: files, settle: 1m}` "
            "leaves files alone that are still written",
        ) from error


def _text(column: EnvelopeColumn, name: str, value: Any) -> str:
    try:
        return column.text(value)
    except _BAD as error:
        raise _Refused(
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


class _Refused(Exception):
    """What is wrong with a message, behind the words that name it, and what to do."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.fix = fix
