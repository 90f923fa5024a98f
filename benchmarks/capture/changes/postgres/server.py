"""A PostgreSQL server in hand."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.capture.changes.oracle import DatabaseTable, Rows
from benchmarks.capture.changes.server import ServerInHand
from benchmarks.capture.postgres import POINTS, opened
from odi_assets_tests.sources.sql.servers import DATABASE, PostgresServer, Server, postgres, postgres_again

SLOT = "odi_sweep"
_SETTINGS = "SET intervalstyle = 'iso_8601'; SET extra_float_digits = 1; SET bytea_output = 'hex'"
_SCHEMA = """
DROP SCHEMA IF EXISTS other CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;
CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (x int, y text); CREATE DOMAIN small AS int;
CREATE TABLE a (id int PRIMARY KEY, n int, m mood, at timestamptz);
CREATE TABLE b (id int PRIMARY KEY, t text NOT NULL UNIQUE, d numeric(10,2), s small);
CREATE TABLE c (id int, k text, body text, p pair, PRIMARY KEY (k, id));
ALTER TABLE c ALTER body SET STORAGE EXTERNAL;
INSERT INTO a SELECT g, g, 'low', '2024-01-01Z' FROM generate_series(1, 30) g;
INSERT INTO b SELECT g, 't' || g, g / 4.0, g FROM generate_series(1, 20) g;
INSERT INTO c SELECT g, 'k' || g, repeat(md5(g::text), 100), ROW(g, 'y')::pair FROM generate_series(1, 10) g
"""


class PostgresInHand(ServerInHand):
    server: PostgresServer

    schema = "public"
    log = f", log: {{slot: {SLOT}, create: true}}"
    points = POINTS
    # As `pg_ctl stop -m fast` and `-m immediate` do it.
    stops = (signal.SIGINT, signal.SIGQUIT)
    refusal = psycopg.DatabaseError
    process_file = "data/postmaster.pid"

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        return opened(self.server, autocommit=autocommit)

    def execute(self, *statements: str) -> None:
        with self.connect() as database:
            for statement in statements:
                database.execute(statement.encode())

    def again(self) -> AbstractContextManager[Server]:
        return postgres_again(self.folder, self.server.port)

    def empty(self) -> None:
        with self.connect() as database:
            # What waits for a transaction that is open is refused.
            database.execute(f"ALTER DATABASE {DATABASE} SET lock_timeout = '300ms'")
            for (name,) in database.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                database.execute(f"ROLLBACK PREPARED '{name}'")
            database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            for (name,) in database.execute("SELECT pubname FROM pg_publication").fetchall():
                database.execute(f'DROP PUBLICATION "{name}"')
            database.execute(_SCHEMA)

    def captured(self) -> list[str]:
        with self.connect() as database:
            return captured(database)

    def existing(self) -> list[str]:
        with self.connect() as database:
            return existing(database)

    def table(self, name: str) -> DatabaseTable:
        with self.connect() as database:
            return table_of(database, name)

    def end_prepared(self, chosen: Callable[[list[str]], str]) -> str:
        with self.connect() as database:
            names = [str(one) for (one,) in database.execute("SELECT gid FROM pg_prepared_xacts ORDER BY 1").fetchall()]
            ended = [f"{chosen(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'" for name in names]
            for statement in ended:
                database.execute(statement.encode())
        return "; ".join(ended) or "nothing"


@contextmanager
def started(folder: Path) -> Iterator[PostgresInHand]:
    """A server of its own, with its data in ``folder``."""
    with ExitStack() as running:
        yield PostgresInHand(folder, running.enter_context(postgres(folder)), running)


def captured(database: psycopg.Connection[Any]) -> list[str]:
    """The tables whose changes a log can have, with their schemas."""
    found = database.execute(
        "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND NOT c.relispartition "
        "AND n.nspname IN ('public', 'other') AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) "
        "ORDER BY 1"
    ).fetchall()
    return [str(name) for (name,) in found]


def existing(database: psycopg.Connection[Any]) -> list[str]:
    """All tables of `public`, in the order of their names."""
    found = database.execute("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
    return [str(name) for (name,) in found]


def columns(database: psycopg.Connection[Any], name: str) -> dict[str, str]:
    """The columns of a table that the log has, with their types."""
    found = database.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        [name],
    ).fetchall()
    return {str(name): str(kind) for name, kind in found}


def table_of(database: psycopg.Connection[Any], name: str) -> DatabaseTable:
    """What a table holds, of its published columns."""
    kinds = columns(database, name)
    published = database.execute(
        "SELECT t.attnames::text[] FROM pg_publication_tables t JOIN pg_class c ON c.oid = %s::regclass AND "
        "c.relname = t.tablename AND c.relnamespace = t.schemaname::regnamespace WHERE t.pubname = %s",
        [name, SLOT],
    ).fetchone()
    # Columns that a publication does not list are not captured, and runs say so.
    kinds = {one: kind for one, kind in kinds.items() if published is None or one in published[0]}
    key = database.execute(
        "SELECT a.attname::text FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND CASE c.relreplident "
        "WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END CROSS JOIN LATERAL unnest(i.indkey::int2[]) k(n) "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.n WHERE c.oid = %s::regclass ORDER BY a.attnum",
        [name],
    ).fetchall()
    database.execute(_SETTINGS)
    listed = ", ".join(f'"{one}"' for one in kinds) or "NULL"
    result = database.execute(f"SELECT {listed} FROM {name}".encode()).pgresult
    if result is None:
        raise AssertionError("the database answers")
    rows: Rows = {}
    for number in range(result.ntuples):
        texts = [result.get_value(number, place) for place in range(len(kinds))]
        row = {name: None if one is None else one.decode() for name, one in zip(kinds, texts, strict=True)}
        rows[tuple(row[column] for (column,) in key) if key else (str(number),)] = row
    return DatabaseTable(kinds, rows, bool(key))
