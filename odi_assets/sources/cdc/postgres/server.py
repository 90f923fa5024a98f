"""A PostgreSQL server whose log is captured: its slot, its publication, its tables, and reads of both.

The log is peeked at through SQL, up to a bound, and the slot is moved after the commit that holds what was read. So the
server keeps nothing open between two runs, and a run that dies leaves the slot where it was. All values are written by
one session with fixed settings, in the log and in snapshots alike: the same value has the same text in both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from odi_assets.config.models.databases import ServerConnection
from odi_assets.errors import ConfigError, SourceError
from odi_assets.sources.cdc.changes import Values
from odi_assets.sources.cdc.log import Shape, ShapeColumn
from odi_assets.sources.cdc.mark import lsn_of
from odi_assets.sources.cdc.patterns import TablePatterns, named
from odi_assets.sources.cdc.postgres.peek import COMMAND_OK, COPY_OUT, as_error, identifier, peeked
from odi_assets.sources.cdc.postgres.pgoutput import row_values
from odi_assets.sources.cdc.postgres.tables import ListedTable, PostgresTable, no_table, why_not_logged
from odi_assets.sources.cdc.postgres.visible import Visible
from odi_assets.sources.cdc.postgres.waiting import SlotTakenError, reaches, wait, when_free
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.dialects import Dialect
from odi_assets.sources.sql.errors import database_error
from odi_assets.util.extras import install_command
from odi_assets.util.lazy import psycopg

_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmlbinary": "hex",
    "lc_monetary": "C",
    # A policy that hides rows from the user is an error, and not a snapshot with fewer rows.
    "row_security": "off",
    "statement_timeout": "0",
}
"""All settings that texts of values depend on. Nobody knows how long a peek takes."""
_MARGIN = 0.2
"""Seconds beyond the time in which a server writes its log to the disk."""
_NAMES_COLUMNS = 150_000
"""The version from which a publication may name columns and rows."""
_PUBLISHES_GENERATED = 180_000
"""The version from which a publication may have columns that the database generates."""


@dataclass(frozen=True)
class Slot:
    """A replication slot as the server shows it.

    Attributes:
        confirmed: up to where changes are acknowledged.
        behind_bytes: of log that the server keeps for it.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``.
        why_lost: the server's word for it, from PostgreSQL 17 on; else empty.
    """

    name: str
    plugin: str
    database: str
    active_pid: int | None
    confirmed: int
    behind_bytes: int
    wal_status: str
    why_lost: str = ""


class ServerSession:
    """A connection with fixed settings; see :func:`connected`."""

    def __init__(self, opened: Any, label: str) -> None:
        self.opened = opened
        self.label = label

    def rows(self, query: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small query."""
        with closing(self.opened.cursor()) as cursor:
            cursor.execute(query, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def one(self, query: str, parameters: Sequence[Any] | None = None) -> Any:
        """The first value of a small query; None without a row."""
        rows = self.rows(query, parameters)
        return rows[0][0] if rows else None

    # What the server is

    def system(self) -> str:
        """What identifies the server's data and the database in it."""
        number, database = self.rows(
            "SELECT system_identifier::text, (SELECT oid::text FROM pg_database WHERE datname = current_database()) "
            "FROM pg_control_system()"
        )[0]
        return f"{number}/{database}"

    def timeline(self) -> int:
        """The timeline of the server's log: a standby that is promoted begins another one."""
        file = str(self.one("SELECT pg_walfile_name(pg_current_wal_lsn())"))
        return int(file[:8], 16)

    def require_logical(self) -> None:
        """Raises SourceError if the server's log does not hold what a capture needs, or the user may not read it."""
        for what, fix in self.lacking():
            raise SourceError(f"{self.label}: {what}", fix=fix, label=self.label)

    def lacking(self) -> Iterator[tuple[str, str]]:
        """What the server or the user lacks before the log can be captured, each with the statement that gives it."""
        if self.one("SELECT pg_is_in_recovery()"):
            yield (
                "the server is a standby, which has no log of its own",
                "name the primary in the connection; or, if this one is to take its place, SELECT pg_promote()",
            )
        level = self.one("SHOW wal_level")
        if level != "logical":
            yield (
                f"the server's `wal_level` is `{level}`, and its log has no changes of rows",
                "ALTER SYSTEM SET wal_level = logical; then restart the server",
            )
        if not self.one("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"):
            user = self.one("SELECT quote_ident(current_user)")
            yield f"the user {user} may not read the server's log", f"ALTER ROLE {user} REPLICATION"

    def slot(self, name: str) -> Slot | None:
        """The slot of this name; None if there is none."""
        rows = self.rows(
            "SELECT slot_name, plugin, database, active_pid, confirmed_flush_lsn::text, "
            "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, wal_status, "
            "to_jsonb(s) ->> 'invalidation_reason' FROM pg_replication_slots s WHERE slot_name = %s",
            [name],
        )
        if not rows:
            return None
        slot, plugin, database, pid, confirmed, behind, status, why = rows[0]
        lsn = lsn_of(confirmed or "0/0")
        return Slot(slot, plugin, database or "", pid, lsn, int(behind or 0), status or "lost", why or "")

    def create_slot(self, name: str) -> int:
        """Make a slot, and return where it begins: all transactions that commit later are in it."""
        return lsn_of(self.one("SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [name]))

    def advance(self, name: str, lsn: str) -> None:
        """Acknowledge the log up to ``lsn``. The server keeps what is above it."""

        def advanced() -> Iterator[None]:
            try:
                self.rows("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [name, lsn])
            except psycopg.errors.ObjectInUse as error:
                raise SlotTakenError(f"{self.label}: {error}") from error
            except psycopg.errors.ObjectNotInPrerequisiteState as error:
                raise SourceError(
                    f"{self.label}: another run has captured the log beyond {lsn}",
                    fix="nothing is lost: the next run goes on from where that one stopped",
                ) from error
            yield None

        deque(when_free(advanced), 0)

    def log_end(self) -> int:
        """Where the log ends on the server's disk: all transactions that anybody sees now are below it.

        A commit that did not wait for the disk is there after three delays of the WAL writer. What is not there then is
        of open transactions, and may stay in memory for long on a quiet server.
        """
        end = lsn_of(self.one("SELECT pg_current_wal_insert_lsn()::text"))
        if self._flushed() < end:
            milliseconds = self.one("SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay'")
            reaches(lambda: self._flushed() >= end, 3 * int(milliseconds) / 1000 + _MARGIN)
        return min(end, self._flushed())

    def await_flushed(self, lsn: int) -> None:
        """Wait until the log up to ``lsn`` is on the server's disk, as it is unless the server was started again."""
        wait(self.label, lambda: self._flushed() >= lsn, "the server's log does not reach its disk")

    def _flushed(self) -> int:
        return lsn_of(self.one("SELECT pg_current_wal_flush_lsn()::text"))

    def snapshot(self) -> Visible:
        """The transactions that this session sees; in a repeatable read, as long as it lasts."""
        return Visible.of(self.one("SELECT pg_current_snapshot()::text"))

    # Its tables

    def listed(self, *, partitions: bool = False) -> list[ListedTable]:
        """All tables of the database, and what looks like tables, in the order of their names.

        Args:
            partitions: whether partitions of other tables are among them.
        """
        kept = "" if partitions else "AND NOT c.relispartition "
        listed = self.rows(
            "SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text, c.relkind::text, "
            "c.relpersistence::text, "
            "ARRAY(SELECT a.attname::text FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) "
            "  WITH ORDINALITY k(attnum, place) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum "
            "  WHERE i.indrelid = c.oid AND k.place <= i.indnkeyatts "
            "  AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END "
            "  ORDER BY k.attnum), "
            "(SELECT string_agg(a.attnum::text, ',' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid "
            "  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''), "
            "EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid), "
            "ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 "
            "  AND NOT a.attisdropped AND a.attgenerated <> '' ORDER BY a.attnum), "
            "c.relispartition "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') {kept}"
            "AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY n.nspname || '.' || c.relname"
        )
        return [
            ListedTable(
                str(schema),
                PostgresTable(
                    f"{schema}.{name}",
                    quoted_table(schema, name),
                    tuple(key),
                    layout or "",
                    int(oid),
                    str(identity),
                    generated=tuple(generated),
                ),
                why_not_logged(str(kind), str(persistence), bool(inherited), bool(of_other)),
            )
            for oid, schema, name, identity, kind, persistence, key, layout, inherited, generated, of_other in listed
        ]

    def tables(self, patterns: Sequence[str], known: Collection[str] = ()) -> list[PostgresTable]:
        """The tables that ``patterns`` name: ``public.orders``, ``public.customer*``, without those that
        ``!public.audit_*`` leaves out. What is the name of a table names that table alone.

        Args:
            known: the tables that are captured already.

        Raises:
            ConfigError: a pattern names no table, or one whose changes the log does not have, or has no more.
        """
        chosen, listed = TablePatterns.of(patterns), self.listed(partitions=True)
        names = [entry.table.name for entry in listed]
        chosen.require(names, known, self.label)
        kept_names = chosen.kept(names)
        tables_by_name: dict[str, PostgresTable] = {}
        for pattern in chosen.wanted:
            of_pattern = set(named(pattern, kept_names))
            matched = [entry for entry in listed if entry.table.name in of_pattern]
            kept = [entry.table for entry in matched if entry.why_not is None]
            left = next((entry for entry in matched if entry.why_not is not None and entry.table.name in known), None)
            if not kept or left is not None:
                raise no_table(pattern, matched if left is None else [left], self.label)
            tables_by_name |= {table.name: table for table in kept}
        return [tables_by_name[name] for name in sorted(tables_by_name)]

    def shapes(self, tables: Sequence[PostgresTable], publication: str) -> dict[str, Shape]:
        """By table, its columns as the log has them, in its order."""
        listed = self.rows(
            "SELECT a.attrelid::bigint, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '' "
            "FROM pg_attribute a WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped "
            "ORDER BY a.attrelid, a.attnum",
            [[table.oid for table in tables]],
        )
        published = self._published_columns(publication)
        names = {table.oid: table for table in tables}
        columns: dict[str, list[ShapeColumn]] = {table.name: [] for table in tables}
        for oid, name, kind, is_generated in listed:
            table = names[int(oid)]
            logged = published.get(table.name)
            is_named = name in logged if logged is not None else not is_generated
            # Before PostgreSQL 18, the log has no generated column, and the list of all columns has them.
            if is_named and (not is_generated or self.opened.info.server_version >= _PUBLISHES_GENERATED):
                columns[table.name].append(ShapeColumn(str(name), str(kind), name in table.key))
        return {name: Shape(tuple(table_columns)) for name, table_columns in columns.items()}

    def _published_columns(self, publication: str) -> dict[str, set[str]]:
        """By table of a publication, the columns that it names; before PostgreSQL 15 it cannot name columns."""
        if self.opened.info.server_version < _NAMES_COLUMNS:
            return {}
        rows = self.rows(
            "SELECT schemaname || '.' || tablename, attnames::text[] FROM pg_publication_tables WHERE pubname = %s",
            [publication],
        )
        return {str(name): set(columns) for name, columns in rows if columns is not None}

    def columns_left_out(self, publication: str) -> dict[str, list[str]]:
        """By table of a publication, the columns that its list does not name."""
        if self.opened.info.server_version < _NAMES_COLUMNS:
            return {}
        rows = self.rows(
            "SELECT t.schemaname || '.' || t.tablename, array_agg(a.attname::text ORDER BY a.attnum) "
            "FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            "AND a.attgenerated = '' AND a.attname <> ALL(t.attnames) WHERE t.pubname = %s GROUP BY 1",
            [publication],
        )
        return {str(name): list(columns) for name, columns in rows}

    def require_all_published(self, publication: str, tables: Mapping[str, Sequence[str]]) -> None:
        """Raises SourceError if a publication leaves out operations, rows of tables, or columns of their keys.

        Args:
            tables: by name, the columns of their keys.
        """
        kinds = ("insert", "update", "delete", "truncate")
        (flags,) = self.rows(
            f"SELECT {', '.join(f'pub{kind}' for kind in kinds)} FROM pg_publication WHERE pubname = %s", [publication]
        )
        left_out = [kind for kind, flag in zip(kinds, flags, strict=True) if not flag]
        if left_out:
            raise SourceError(
                f"{self.label}: the publication `{publication}` leaves out {', '.join(left_out)}",
                fix=f"ALTER PUBLICATION {publication} SET (publish = '{', '.join(kinds)}')",
                label=self.label,
            )
        if self.opened.info.server_version < _NAMES_COLUMNS:
            return
        filtered = self.rows(
            "SELECT schemaname || '.' || tablename, rowfilter FROM pg_publication_tables "
            "WHERE pubname = %s AND rowfilter IS NOT NULL AND schemaname || '.' || tablename = ANY(%s)",
            [publication, list(tables)],
        )
        lacking = [(str(name), f"rows of {name}: it has those with {condition}") for name, condition in filtered]
        for name, columns in self.columns_left_out(publication).items():
            of_key = [column for column in columns if column in tables.get(name, ())]
            lacking += [(name, f"{column} of {name}, a column of its key") for column in of_key]
        for name, what in lacking:
            alter = f"ALTER PUBLICATION {publication}"
            raise SourceError(
                f"{self.label}: the publication `{publication}` leaves out {what}",
                fix=f"{alter} DROP TABLE {name}; {alter} ADD TABLE {name}",
                label=self.label,
            )

    def type_names(self, kinds: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """The names of types, by OID and modifier."""
        wanted = sorted(set(kinds))
        rows = self.rows(
            "SELECT oid, modifier, format_type(oid::oid, modifier) "
            "FROM unnest(%s::bigint[], %s::int[]) t(oid, modifier)",
            [[oid for oid, _ in wanted], [modifier for _, modifier in wanted]],
        )
        return {(int(oid), int(modifier)): str(name) for oid, modifier, name in rows}

    # Its publication

    def published(self, publication: str) -> set[str] | None:
        """The tables of a publication; None if there is none of this name."""
        if self.one("SELECT 1 FROM pg_publication WHERE pubname = %s", [publication]) is None:
            return None
        rows = self.rows(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s", [publication]
        )
        return {str(name) for (name,) in rows}

    def publishing(self, publication: str) -> dict[str, str]:
        """By table of a publication, what names the table, its place in the publication, and the publication's last
        change: others mean that it was made again or published again, or that operations may be missing."""
        schema, join = "0", ""
        if self.opened.info.server_version >= _NAMES_COLUMNS:
            schema = "COALESCE(s.oid, 0)"
            join = "LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = n.oid "
        rows = self.rows(
            "SELECT t.schemaname || '.' || t.tablename, c.oid::text || '/' || p.oid || '/' || COALESCE(r.oid, 0) "
            f"|| '/' || p.xmin || '/' || {schema} "
            "FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname "
            "JOIN pg_namespace n ON n.nspname = t.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
            f"LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid {join}WHERE t.pubname = %s",
            [publication],
        )
        return {str(name): str(published) for name, published in rows}

    def publish(self, publication: str, tables: Sequence[PostgresTable], *, new: bool) -> None:
        """Make a publication of tables, or add tables to one."""
        sql = psycopg.sql
        listed = sql.SQL(", ").join(sql.SQL(table.quoted) for table in tables)
        name = sql.Identifier(publication)
        with closing(self.opened.cursor()) as cursor:
            if new:
                options = sql.SQL(" WITH (publish_via_partition_root = true)")
                cursor.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}").format(name, listed, options))
            else:
                cursor.execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, listed))

    # Reads

    def peek(
        self, slot: str, publication: str, upto: int, most: int | None, seconds: float | None = None
    ) -> Iterator[list[bytes]]:
        """Messages of whole transactions that the slot has not acknowledged, in the order of their commits.

        They come in parts of about 4 MB, which may end within a transaction. While another session looks at the slot,
        as a sensor does for a moment, it is waited for.

        Args:
            upto: a position of the log: transactions that commit above it are left out.
            most: stops after the transaction with which there are as many changes; None: all.
            seconds: how long it may take; None: as long as it does.

        Raises:
            SlotTakenError: another session keeps on reading the slot.
            LookTooLongError: it takes longer than ``seconds``.
        """
        yield from when_free(lambda: peeked(self, slot, publication, upto, most, seconds))

    def texts(self, relation: str, columns: Sequence[str], where: str) -> tuple[Any, Values]:
        """The rows of a table, each value as the log would have it: the bytes, and where in them the values are."""
        connection = self.opened.pgconn
        quoted = [identifier(name) for name in columns]
        # The output function of the type, as in the log; a cast to text is another one for some types.
        asked = ", ".join(f"CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END" for name in quoted)
        query = f"COPY (SELECT {asked or 'NULL'} FROM {relation} WHERE {where}) TO STDOUT (FORMAT BINARY)"
        result = connection.exec_(query.encode())
        if result.status != COPY_OUT:
            raise as_error(result)
        rows: list[Any] = []
        take = connection.get_copy_data
        while True:
            size, data = take(0)
            if size < 0:
                break
            rows.append(data)
        while (end := connection.get_result()) is not None:
            if end.status != COMMAND_OK:
                raise as_error(end)
        return row_values(rows, len(columns))


def quoted_table(schema: str, name: str) -> str:
    """A table in SQL."""
    return f"{identifier(schema)}.{identifier(name)}"


@contextmanager
def connected(dialect: Dialect, label: str) -> Iterator[ServerSession]:
    """A session of the database whose log is captured.

    Raises:
        ConfigError: the driver is not installed.
        SourceError: the server cannot be reached, or refuses what is asked of it.
    """
    if plain.installed_driver(dialect) is None:
        raise ConfigError(f"{label}: its log is read with psycopg", fix=f"run: {install_command('postgres')}")
    connection = dialect.connection
    if not isinstance(connection, ServerConnection):
        raise AssertionError("logs are captured from servers")
    try:
        with closing(plain.postgres_connection(psycopg, connection, _SETTINGS)) as opened:
            yield ServerSession(opened, label)
    except psycopg.Error as error:
        raise database_error(f"{type(error).__name__}: {error}", dialect, label) from None
