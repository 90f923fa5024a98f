"""A PostgreSQL server with tables, writers, and a project that captures them."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.capture.project import log_source
from benchmarks.kill_sweep.points import CAPTURE_POINTS
from odi_assets.sources.cdc.source import LogSource
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, PostgresServer, postgres

TABLES = ("accounts", "documents", "whole")
POINTS = CAPTURE_POINTS
SIZES = (1, 2, 3, 5, 8, 50)
"""Changes of a transaction."""
PAUSE = 0.02
"""Seconds between two transactions of a writer."""
_WRITERS = 3
_UNDONE = 0.1
"""How often a change follows that is rolled back to a savepoint."""
_SCHEMA = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int, note text)",
    "CREATE TABLE documents (id int PRIMARY KEY, body text, n int)",
    "ALTER TABLE documents ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE whole (id int PRIMARY KEY, body text)",
    "ALTER TABLE whole ALTER body SET STORAGE EXTERNAL",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "INSERT INTO accounts SELECT g, 100, 'n' || g FROM generate_series(1, 1500) g",
    "INSERT INTO documents SELECT g, repeat(md5(g::text), 100), g FROM generate_series(1, 300) g",
    "INSERT INTO whole SELECT g, repeat('b', 5000) FROM generate_series(1, 100) g",
)


def opened(server: PostgresServer, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """A connection of psycopg."""
    place = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "dbname": DATABASE}
    options = "-c datestyle=ISO -c timezone=UTC -c standard_conforming_strings=on"
    return psycopg.connect(**place, autocommit=autocommit, options=options)  # type: ignore[arg-type]


@contextmanager
def started() -> Iterator[PostgresServer]:
    """A server of its own."""
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder, postgres(Path(folder)) as server:
        yield server


def emptied(server: PostgresServer) -> None:
    """Drop what a life before has left, and make the tables."""
    with opened(server) as database:
        for (name,) in database.execute("SELECT slot_name FROM pg_replication_slots").fetchall():
            database.execute("SELECT pg_drop_replication_slot(%s)", [name])
        for (name,) in database.execute("SELECT pubname FROM pg_publication").fetchall():
            database.execute(f'DROP PUBLICATION "{name}"')
        database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        for statement in _SCHEMA:
            database.execute(statement)


def source(server: PostgresServer, folder: Path, tables: tuple[str, ...], rows: int) -> LogSource:
    """The source of a node that captures tables."""
    connection = server.connection.rstrip().removesuffix("}") + ", log: {slot: odi_benchmark, create: true}}"
    return log_source(connection, folder, ", ".join(map(captured, tables)), rows)


def held(server: PostgresServer, table: str) -> dict[str, list[str | None]]:
    """The rows of a table, by key, as texts."""
    with opened(server) as database:
        return {
            str(row[0]): [None if one is None else str(one) for one in row]
            for row in database.execute(f"SELECT * FROM {table}")
        }


def captured(table: str) -> str:
    """The name of a table in the change log."""
    return f"public.{table}"


@contextmanager
def written(server: PostgresServer, seed: int) -> Iterator[None]:
    """Writers at work: transactions of one to fifty changes, some rolled back, with savepoints and changes of keys."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_write, args=(server, random.Random(f"{seed} {one}"), stop), daemon=True)
        for one in range(_WRITERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _write(server: PostgresServer, chance: random.Random, stop: threading.Event) -> None:
    with opened(server, autocommit=False) as writer:
        while not stop.is_set():
            try:
                for _ in range(chance.choice(SIZES)):
                    writer.execute(_statement(chance))
                    if chance.random() < _UNDONE:
                        writer.execute("SAVEPOINT undone")
                        writer.execute(_statement(chance))
                        writer.execute("ROLLBACK TO undone")
                (writer.rollback if chance.random() < 0.15 else writer.commit)()
            except psycopg.Error:
                writer.rollback()
            time.sleep(PAUSE)


def _statement(chance: random.Random) -> str:
    table, most = chance.choice([("accounts", 1500), ("documents", 300), ("whole", 100)])
    key, other = chance.randint(1, most), chance.randint(1, 2 * most)
    other += other == key
    changes = {"accounts": "balance = balance + 1", "documents": "n = n + 1", "whole": "body = 'x' || id"}
    rows = {"accounts": f"({key}, 1, 'new')", "documents": f"({key}, repeat('z', 4000), 0)", "whole": f"({key}, 'new')"}
    return chance.choice(
        [
            f"UPDATE {table} SET {changes[table]} WHERE id = {key}",
            f"UPDATE {table} SET {changes[table]} WHERE id = {key}",
            f"UPDATE {table} SET id = {other} WHERE id = {key}",
            f"DELETE FROM {table} WHERE id = {key}",
            f"INSERT INTO {table} VALUES {rows[table]} ON CONFLICT DO NOTHING",
            "SAVEPOINT here",
        ]
    )
