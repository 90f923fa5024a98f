"""A MariaDB server whose binary log is captured: what it is, its files, its tables, and reads of both.

The log is read as `mysqlbinlog` reads it: from a position to the end that it has then, without waiting, and without a
number of its own unless one is given. The server keeps nothing for such a reader, and no replica is disturbed: it is
replicas with one number that drive each other out. All values are written by sessions with fixed settings.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from odi_assets.config.models.databases import ServerConnection
from odi_assets.errors import ConfigError, IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.tables import listed_type, remedy, why_not_exact
from odi_assets.sources.cdc.binlog.texts import ALIKE, UNICODE, TextPool, as_in_log
from odi_assets.sources.cdc.binlog.wire import dumped, selected
from odi_assets.sources.cdc.changes import TEXT, Values
from odi_assets.sources.cdc.database import CapturedTable
from odi_assets.sources.cdc.log import Shape, ShapeColumn
from odi_assets.sources.cdc.patterns import TablePatterns, named
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.dialects import Dialect
from odi_assets.sources.sql.errors import database_error
from odi_assets.sources.sql.keys import utf8_text
from odi_assets.util.extras import install_command
from odi_assets.util.lazy import pymysql

_SETTINGS = (
    "SET time_zone = '+00:00', sql_mode = '', max_statement_time = 0, net_write_timeout = 600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_SILENCE_SECONDS = 600.0
_OLDEST = (10, 5)
"""Since this version, the log may name columns, and a right of its own lets users see where it stands."""
_DENIED = (1227, 1142, 1044, 1045)
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


class BinlogSession:
    """A connection with fixed settings; see :func:`connected`."""

    def __init__(self, opened: Any, dialect: Dialect, label: str) -> None:
        self.opened, self.dialect, self.label = opened, dialect, label

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query."""
        with closing(self.opened.cursor()) as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]

    @cached_property
    def version(self) -> tuple[int, ...]:
        text = str(self.rows("SELECT VERSION()")[0][0])
        if "mariadb" not in text.lower():
            return ()
        return tuple(int(part) for part in text.partition("-")[0].split(".")[:2])

    def variable(self, name: str) -> str:
        """A setting of the whole server; empty if it has none of this name."""
        rows = self.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name = {utf8_text(name)}")
        return str(rows[0][1]) if rows else ""

    # What the server is

    def require_version(self) -> None:
        """Raises SourceError if the server is none whose log is captured."""
        if self.version >= _OLDEST:
            return
        shown = self.rows("SELECT VERSION()")[0][0]
        what = "is no MariaDB" if not self.version else "is too old"
        raise SourceError(
            f"{self.label}: the server {what} ({shown}), and the log of MariaDB is captured, from version "
            f"{'.'.join(map(str, _OLDEST))} on: another does not tell which position of its log a snapshot sees, "
            "or what its columns are called",
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
                "start it with `log_bin = mariadb-bin`, `binlog_format = ROW` and `binlog_row_metadata = FULL` under "
                "[mariadbd] in its settings",
            )
        for name, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")):
            setting = self.variable(name)
            if setting != wanted:
                yield (
                    f"the server's `{name}` is {setting}, and its log does not have whole rows with the names of their "
                    "columns",
                    f"SET GLOBAL {name} = {wanted}; and the same in the server's settings. Sessions that are open go "
                    "on as before: let them end",
                )
        (running,) = (int(row[1]) for row in self.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'"))
        if running and self.variable("log_slave_updates") != "ON":
            yield (
                "the server is a replica, and its log does not have what it takes over (`log_slave_updates` is OFF)",
                "start it with `log_slave_updates = ON`; or capture the primary",
            )

    def system(self) -> str:
        """What identifies the server's data."""
        return self.variable("server_uid") or f"server_id {self.variable('server_id')}"

    def why_unreadable(self, table: str) -> str | None:
        """Why the user may not read a table, given in SQL, with the statement that lets it; None if it may."""
        try:
            self.rows(f"SELECT 1 FROM {table} LIMIT 0")
        except pymysql.Error as error:
            if not error.args or error.args[0] not in _UNREADABLE:
                raise
            return f"its user may not read it: GRANT SELECT ON {table} TO {self._user()}"
        return None

    # Its log

    def status(self) -> tuple[str, int, str, str]:
        """The file that the log is written to, where it ends, and the databases that are left in and out of it."""
        with self._as_reader():
            rows = self.rows("SHOW MASTER STATUS")
        file, offset, kept, left_out = rows[0]
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
                f"{self.label}: the user {self._user()} may not read the server's log: {error.args[1]}",
                fix=f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {self._user()}",
                label=self.label,
            ) from None

    def _user(self) -> str:
        name, _, host = str(self.rows("SELECT CURRENT_USER()")[0][0]).rpartition("@")
        return f"'{name}'@'{host}'"

    def events(self, file: str, offset: int, server_id: int, again: str) -> Generator[bytes]:
        """The events of the log from a position on, over a connection of their own.

        Args:
            again: the command that captures everything again, and what it does.
        """
        with connected(self.dialect, self.label) as reader:
            if server_id:
                reader.require_unused(server_id)
            # Without them the server would leave out the numbers of transactions, or checksums.
            reader.rows("SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@global.binlog_checksum")
            try:
                with self._as_reader():
                    yield from dumped(reader.opened, file, offset, server_id)
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
            used = {int(row[0]) for row in self.rows("SHOW SLAVE HOSTS")} | {int(self.variable("server_id"))}
        except pymysql.Error as error:
            raise SourceError(
                f"{self.label}: whether a replica reads the log as server {server_id} too is not known: {error}",
                fix=f"GRANT REPLICATION MASTER ADMIN ON *.* TO {self._user()}; or leave out `log.server_id`: then the "
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
        return {str(row[3]) for row in self.rows("XA RECOVER FORMAT='SQL'")}

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
    def charsets(self) -> dict[int, str]:
        """By collation, its character set."""
        source = "collation_character_set_applicability" if self.version >= (10, 10) else "collations"
        rows = self.rows(f"SELECT id, character_set_name FROM information_schema.{source}")
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


@contextmanager
def connected(dialect: Dialect, label: str) -> Iterator[BinlogSession]:
    """A session of the server whose log is captured.

    Raises:
        ConfigError: the driver is not installed.
        SourceError: the server cannot be reached, or refuses what is asked of it.
    """
    if plain.installed_driver(dialect) is None:
        raise ConfigError(f"{label}: its log is read with PyMySQL", fix=f"run: {install_command('mysql')}")
    connection = dialect.connection
    if not isinstance(connection, ServerConnection):
        raise AssertionError("logs are captured from servers")
    try:
        with closing(plain.mysql_connection(pymysql, connection, _SILENCE_SECONDS)) as opened:
            session = BinlogSession(opened, dialect, label)
            for setting in _SETTINGS if session.version else ():
                session.rows(setting)
            yield session
    except (pymysql.Error, OSError) as error:
        raise database_error(f"{type(error).__name__}: {error}", dialect, label) from None
