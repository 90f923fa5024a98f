"""A session of a server whose binary log is captured: what the server is, its files, its tables, and reads of both.

The log is read as `mysqlbinlog` reads it: from a position to the end that it has then, without waiting, and without a
number of its own unless one is given. The server keeps nothing for such a reader, and no replica is disturbed: it is
replicas with one number that drive each other out. All values are written by sessions with fixed settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from odi_assets.errors import ConfigError, IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.tables import listed_type, remedy, why_not_exact
from odi_assets.sources.cdc.binlog.texts import ALIKE, UNICODE, TextPool, as_in_log
from odi_assets.sources.cdc.binlog.wire import dumped, selected
from odi_assets.sources.cdc.changes import TEXT, Values
from odi_assets.sources.cdc.database import CapturedTable
from odi_assets.sources.cdc.log import Shape, ShapeColumn
from odi_assets.sources.cdc.patterns import TablePatterns, named
from odi_assets.sources.sql.dialects import Dialect
from odi_assets.sources.sql.errors import database_error
from odi_assets.sources.sql.keys import utf8_text
from odi_assets.util.lazy import pymysql

_DENIED = (1227, 1142, 1044, 1045, 1401)
_PURGED, _KILLED = 1236, (1927, 1053)
_UNREADABLE = (1142, 1143)
"""Errors of a table, or of columns of it, that the user may not read."""
_SYSTEM_DATABASES = "'mysql', 'information_schema', 'performance_schema', 'sys'"


@dataclass(frozen=True)
class ServerTable(CapturedTable):
    """A table of the server that can be captured.

    Attributes:
        database: where it is.
        refused: why the log does not have all of its changes, and what to do about it; None if it has.
    """

    database: str
    refused: tuple[str, str] | None


class BinlogSession(ABC):
    """A connection with fixed settings; MariaDB and MySQL each have their words for what is asked."""

    SETTINGS: ClassVar[tuple[str, ...]]
    """What such a session sets first."""
    SECTION: ClassVar[str]
    """The part of the server's settings that is its own."""
    BEFORE_DUMP: ClassVar[str]
    """What is said before the log is read: or the server would leave out the numbers of transactions, or checksums."""
    REPLICAS: ClassVar[str]
    """The statement that lists who reads the log."""
    PREPARED: ClassVar[str]
    """The statement that lists the transactions that XA has prepared."""
    RIGHTS: ClassVar[str]
    """The rights to read the log."""
    RIGHTS_OF_REPLICAS: ClassVar[str]
    """The right to see who else reads it."""
    ROW_SETTINGS: ClassVar[Mapping[str, str]] = {
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
    }
    """What the log has whole rows with the names of their columns with."""

    def __init__(self, opened: Any, dialect: Dialect, label: str) -> None:
        self.opened, self.dialect, self.label = opened, dialect, label

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query."""
        with closing(self.opened.cursor()) as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]

    @cached_property
    def shown_version(self) -> str:
        return str(self.rows("SELECT VERSION()")[0][0])

    @cached_property
    def version(self) -> tuple[int, ...]:
        """Its three numbers."""
        return tuple(int(part) for part in self.shown_version.partition("-")[0].split(".")[:3])

    def variable(self, name: str) -> str:
        """A setting of the whole server; empty if it has none of this name."""
        rows = self.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name = {utf8_text(name)}")
        return str(rows[0][1]) if rows else ""

    # What the server is

    @property
    @abstractmethod
    def status_query(self) -> str:
        """The statement that says where the log ends."""

    @property
    @abstractmethod
    def why_too_old(self) -> str | None:
        """Why the server's log cannot be captured, in words; None if it can."""

    @property
    @abstractmethod
    def is_replica(self) -> bool:
        """Whether the server takes over what another one does."""

    @abstractmethod
    def system(self) -> str:
        """What identifies the server's data."""

    def require_version(self) -> None:
        """Raises SourceError if the server is none whose log is captured."""
        if self.why_too_old is not None:
            raise SourceError(
                f"{self.label}: {self.why_too_old}",
                fix="read its tables with `format: sql` and a cursor",
                label=self.label,
            )

    def require_rows(self) -> None:
        """Raises SourceError if the server's log does not hold what a capture needs."""
        self.require_version()
        for what, fix in self.lacking():
            raise SourceError(f"{self.label}: {what}", fix=fix, label=self.label)

    def lacking(self) -> Iterator[tuple[str, str]]:
        """What the server lacks before its log can be captured, each with the statement or the line that gives it."""
        if self.variable("log_bin") != "ON":
            yield (
                "the server keeps no binary log",
                f"start it with `log_bin = binlog`, `binlog_format = ROW` and `binlog_row_metadata = FULL` under "
                f"[{self.SECTION}] in its settings",
            )
        for name, wanted in self.ROW_SETTINGS.items():
            setting = self.variable(name)
            if setting != wanted:
                yield (
                    f"the server's `{name}` is {setting}, and its log does not have whole rows with the names of their "
                    "columns",
                    f"SET GLOBAL {name} = {wanted}; and the same in the server's settings. Sessions that are open go "
                    "on as before: let them end",
                )
        passed_on = self.variable("log_replica_updates") or self.variable("log_slave_updates")
        if passed_on != "ON" and self.is_replica:
            yield (
                "the server is a replica, and its log does not have what it takes over (`log_slave_updates` is OFF)",
                "start it with `log_slave_updates = ON`; or capture the primary",
            )

    def why_unreadable(self, table: str) -> str | None:
        """Why the user may not read a table, given in SQL, with the statement that lets it; None if it may."""
        try:
            self.rows(f"SELECT 1 FROM {table} LIMIT 0")
        except pymysql.Error as error:
            if not error.args or error.args[0] not in _UNREADABLE:
                raise
            return f"its user may not read it: GRANT SELECT ON {table} TO {self.user}"
        return None

    # Its log

    def status(self) -> tuple[str, int, str, str]:
        """The file that the log is written to, where it ends, and the databases that are left in and out of it."""
        with self._as_reader():
            rows = self.rows(self.status_query)
        file, offset, kept, left_out = rows[0][:4]
        return str(file), int(offset), str(kept), str(left_out)

    def files(self) -> dict[str, int]:
        """The files of the log, and how long each is."""
        with self._as_reader():
            return {str(row[0]): int(row[1]) for row in self.rows("SHOW BINARY LOGS")}

    def leaving_out(self, database: str) -> str | None:
        """The setting that keeps a database out of the log; None if the log has it."""
        _, _, kept, left_out = self.status()
        if kept and database not in kept.split(","):
            return "binlog_do_db"
        return "binlog_ignore_db" if database in left_out.split(",") else None

    @contextmanager
    def _as_reader(self) -> Iterator[None]:
        """Says which rights are missing."""
        try:
            yield
        except pymysql.Error as error:
            code = error.args[0] if error.args else 0
            if code not in _DENIED:
                raise
            raise SourceError(
                f"{self.label}: the user {self.user} may not read the server's log: {error.args[1]}",
                fix=f"GRANT {self.RIGHTS} ON *.* TO {self.user}",
                label=self.label,
            ) from None

    @cached_property
    def user(self) -> str:
        """The user that the server takes it for, as statements name it."""
        name, _, host = str(self.rows("SELECT CURRENT_USER()")[0][0]).rpartition("@")
        return f"'{name}'@'{host}'"

    def events(self, file: str, offset: int, server_id: int, again: str) -> Generator[bytes]:
        """The events of the log from a position on. The session is of no use for anything else then.

        Args:
            again: the command that captures everything again, and what it does.
        """
        if server_id:
            self.require_unused(server_id)
        self.rows(self.BEFORE_DUMP)
        try:
            with self._as_reader():
                yield from dumped(self.opened, file, offset, server_id)
        except pymysql.Error as error:
            raise self._stopped(error, file, offset, server_id, again) from None

    def _stopped(self, error: Any, file: str, offset: int, server_id: int, again: str) -> Exception:
        code, text = (*error.args, 0, "")[:2]
        if code == _PURGED:
            return IdentityMismatchError(
                f"{self.label}: the server does not give its log from {file}:{offset} on: {text}",
                fix=again,
            )
        if code in _KILLED and server_id:
            return SourceError(
                f"{self.label}: the server ended the read of its log: somebody else reads it as server {server_id}",
                fix="give each reader a number of its own (`log.server_id`), or leave it out",
                label=self.label,
            )
        return database_error(f"{type(error).__name__}: {error}", self.dialect, self.label)

    def require_unused(self, server_id: int) -> None:
        """Raises SourceError if another reader of the log has this number: the server would end its connection."""
        try:
            used = {int(row[0]) for row in self.rows(self.REPLICAS)} | {int(self.variable("server_id"))}
        except pymysql.Error as error:
            raise SourceError(
                f"{self.label}: whether a replica reads the log as server {server_id} too is not known: {error}",
                fix=f"GRANT {self.RIGHTS_OF_REPLICAS} ON *.* TO {self.user}; or leave out `log.server_id`: then the "
                "log is read without a number, and no replica is disturbed",
                label=self.label,
            ) from None
        if server_id in used:
            raise SourceError(
                f"{self.label}: server {server_id} is there already: the server would end the connection of the one "
                "that reads its log first",
                fix="give the capture a number of its own (`log.server_id`), or leave it out",
                label=self.label,
            )

    def has_prepared(self) -> bool:
        """Whether XA has prepared transactions since the server was started, or there are some from before."""
        (row,) = self.rows("SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'")
        return int(row[1]) > 0 or bool(self.prepared())

    def prepared(self) -> set[str]:
        """The transactions that XA has prepared, and that have not ended."""
        with self._as_reader():
            return {str(row[3]) for row in self.rows(self.PREPARED)}

    # Its tables

    def tables(self, patterns: Sequence[str], known: Collection[str] = ()) -> list[ServerTable]:
        """The tables that ``patterns`` name: ``shop.orders``, ``shop.customer*``; ``!shop.audit_*`` leaves some out.

        Args:
            known: the tables that are captured already.

        Raises:
            ConfigError: a pattern names no table, or one that the log has no more.
        """
        listed = self.rows(
            "SELECT table_schema, table_name, table_type, COALESCE(engine, '') FROM information_schema.tables "
            f"WHERE table_schema NOT IN ({_SYSTEM_DATABASES}) ORDER BY 1, 2"
        )
        rows = {f"{row[0]}.{row[1]}": row for row in listed}
        chosen = TablePatterns.of(patterns)
        chosen.require([*rows], known, self.label)
        kept_names = chosen.kept([*rows])
        tables_by_name: dict[str, ServerTable] = {}
        for pattern in chosen.wanted:
            matched = [(name, rows[name]) for name in named(pattern, kept_names)]
            kept = [(name, row) for name, row in matched if row[2] == "BASE TABLE"]
            left = [pair for pair in matched if pair not in kept and pair[0] in known]
            if not kept or left:
                raise _no_table(pattern, left or matched, self)
            for name, (database, table, _, engine) in kept:
                if name not in tables_by_name:
                    tables_by_name[name] = self._table(name, str(database), str(table), str(engine))
        return [tables_by_name[name] for name in sorted(tables_by_name)]

    def _table(self, name: str, database: str, table: str, engine: str) -> ServerTable:
        where = f"table_schema = {utf8_text(database)} AND table_name = {utf8_text(table)}"
        key = self.rows(
            f"SELECT column_name FROM information_schema.key_column_usage WHERE constraint_name = 'PRIMARY' AND {where}"
        )
        of_key = {str(row[0]) for row in key}
        # In the order of the table's columns, as the log has them.
        columns = tuple(name for name in self.types(name) if name in of_key)
        quoted = ".".join(map(self.dialect.quoted, (database, table)))
        return ServerTable(
            name, quoted, columns, "", database, self._why_refused(name, database, table, engine, columns)
        )

    def _why_refused(
        self, name: str, database: str, table: str, engine: str, key: Sequence[str]
    ) -> tuple[str, str] | None:
        leave = "or leave it out of `tables`"
        if "." in table or "." in database:
            return "has a point in its name, which divides databases and tables here", f"rename it; {leave}"
        if engine != "InnoDB":
            return (
                f"is a table of {engine}, and it is not known which part of the log a snapshot of it sees",
                f"ALTER TABLE {name} ENGINE = InnoDB; {leave}",
            )
        if not key:
            return "has no primary key, so it is not known which row was changed", f"give it one; {leave}"
        where = f"constraint_schema = {utf8_text(database)} AND table_name = {utf8_text(table)}"
        cascades = self.rows(
            "SELECT constraint_name, CASE WHEN delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') "
            "THEN CONCAT('ON DELETE ', delete_rule) ELSE CONCAT('ON UPDATE ', update_rule) END "
            f"FROM information_schema.referential_constraints WHERE {where} AND (delete_rule IN "
            "('CASCADE', 'SET NULL', 'SET DEFAULT') OR update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))"
        )
        if cascades:
            constraint, rule = cascades[0]
            return (
                f"has the foreign key `{constraint}` with {rule}: what InnoDB changes by it is not in the log",
                f"make the key again with ON DELETE RESTRICT ON UPDATE RESTRICT; {leave}",
            )
        for column, kind, charset, most in self.rows(
            "SELECT column_name, column_type, COALESCE(c.character_set_name, ''), COALESCE(s.maxlen, 1) "
            "FROM information_schema.columns c LEFT JOIN information_schema.character_sets s "
            f"ON s.character_set_name = c.character_set_name WHERE table_schema = {utf8_text(database)} "
            f"AND table_name = {utf8_text(table)} ORDER BY ordinal_position"
        ):
            why = why_not_exact(str(kind))
            if why is None and int(most) > 1 and charset not in ALIKE | UNICODE.keys():
                why = f"is of the character set {charset}"
            if why is not None:
                return f"has the column `{column}`, which {why}: the log does not tell its values", remedy(column)
        return None

    def shapes(self, tables: Sequence[CapturedTable]) -> dict[str, Shape]:
        """By table, its columns as the log has them, in its order."""
        shapes = {}
        for table in tables:
            types = self.types(table.name)
            shapes[table.name] = Shape(
                tuple(ShapeColumn(name, kind, name in table.key) for name, kind in types.items())
            )
        return shapes

    def types(self, table: str) -> dict[str, str]:
        """The columns of a table now, and the names of their types."""
        database, _, name = table.partition(".")
        of_numbers = ("numeric_precision", "numeric_scale")
        asked = ("data_type", "column_type", *of_numbers, "datetime_precision", "character_maximum_length")
        rows = self.rows(
            f"SELECT column_name, {', '.join(asked)} FROM information_schema.columns WHERE table_schema = "
            f"{utf8_text(database)} AND table_name = {utf8_text(name)} ORDER BY ordinal_position"
        )
        return {str(row[0]): listed_type(dict(zip(asked, row[1:], strict=True))) for row in rows}

    # Characters

    @cached_property
    @abstractmethod
    def charsets(self) -> dict[int, str]:
        """By collation, its character set."""

    def _charsets_in(self, view: str) -> dict[int, str]:
        rows = self.rows(f"SELECT id, character_set_name FROM information_schema.{view}")
        return {int(row[0]): str(row[1]) for row in rows if row[0] is not None and row[1] is not None}

    @cached_property
    def bytes_of(self) -> dict[int, int]:
        """By collation, the most bytes that a character has."""
        most = dict(self.rows("SELECT character_set_name, maxlen FROM information_schema.character_sets"))
        return {collation: int(most[name]) for collation, name in self.charsets.items() if name in most}

    def byte_texts(self, charset: str) -> list[bytes] | None:
        """The text of each byte in a character set, as the server has it; None if it has characters of more bytes."""
        most = self.rows(
            f"SELECT maxlen FROM information_schema.character_sets WHERE character_set_name = {utf8_text(charset)}"
        )
        if not most or int(most[0][0]) != 1:
            return None
        asked = ", ".join(f"HEX(CONVERT(_{charset} X'{byte:02x}' USING utf8mb4))" for byte in range(256))
        return [bytes.fromhex(text) for text in self.rows(f"SELECT {asked}")[0]]

    # Chunks

    def texts(self, relation: str, shape: Shape, where: str) -> tuple[Any, Values]:
        """The rows of a table, each value as the change log has it: the bytes, and where in them the values are."""
        asked = ", ".join(_asked(self.dialect.quoted(column.name), column.type) for column in shape.columns)
        data, values = selected(self.opened, f"SELECT {asked} FROM {relation} WHERE {where}", len(shape.columns))
        pool = TextPool(data)
        for index, column in enumerate(shape.columns):
            has = values.kind[:, index] == TEXT
            texts = as_in_log(pool, values.start[has, index], values.length[has, index], column.type)
            values.start[has, index], values.length[has, index] = texts
        return pool.joined(), values


def _asked(column: str, kind: str) -> str:
    """What a chunk asks for, so that the value has its text whatever is set for the column."""
    bare = kind.partition("(")[0]
    if bare in ("float", "double"):
        # A float is written with six digits, and one with a fixed scale is rounded.
        return f"CAST({column} AS DOUBLE)"
    if bare == "bit":
        return f"CAST({column} AS UNSIGNED)"
    if bare == "decimal":
        # Without the zeros that ZEROFILL puts in front.
        return f"CAST({column} AS {kind})"
    if bare.endswith("int unsigned"):
        return f"CAST({column} AS UNSIGNED)"
    return column


def _no_table(pattern: str, matched: Sequence[tuple[str, Any]], session: BinlogSession) -> ConfigError:
    kinds = {
        "VIEW": "a view",
        "SYSTEM VERSIONED": "a table that keeps its own history, whose deletions are none in the log",
        "SEQUENCE": "a sequence",
    }
    if not matched:
        return ConfigError(
            f"{session.label}: no table that its user may read is named `{pattern}`; tables are named with their "
            "database",
            fix="correct `tables`, or take it out",
        )
    listed = ", ".join(f"{name} is {kinds.get(row[2], row[2].lower())}" for name, row in matched)
    name = matched[0][0]
    leave = f"take it out of `tables`{'' if name == pattern else ': name the others there'}"
    is_versioned = matched[0][1][2] == "SYSTEM VERSIONED"
    return ConfigError(
        f"{session.label}: `{pattern}` names what the log has no changes of: {listed}",
        fix=f"{leave}; or ALTER TABLE {name} DROP SYSTEM VERSIONING" if is_versioned else leave,
    )
