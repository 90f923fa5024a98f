"""A MariaDB server with tables, writers, and a project that captures them."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql

from benchmarks.capture.postgres import PAUSE, SIZES
from benchmarks.capture.project import log_source
from benchmarks.kill_sweep.points import CAPTURE_POINTS
from odi_assets.sources.cdc.source import LogSource
from odi_assets_tests.sources.sql.servers import ADMIN, DATABASE, MariadbServer, MysqlServer, mariadb

TABLES = ("accounts", "documents", "whole")
POINTS = tuple(one for one in CAPTURE_POINTS if one.needs != "first")
"""Nothing is made at the server when a capture begins."""
_WRITERS = 3
_UNDONE = 0.1
"""How often a change follows that is rolled back to a savepoint."""
_XA_SHARE = 0.1
_OTHER_ENGINE = " ENGINE = MyISAM"
_SCHEMA = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int, note text)",
    "CREATE TABLE documents (id int PRIMARY KEY, body text, n int)",
    "CREATE TABLE whole (id int PRIMARY KEY, body text)",
    f"CREATE TABLE plain (id int){_OTHER_ENGINE}",
    "INSERT INTO accounts SELECT seq, 100, CONCAT('n', seq) FROM seq_1_to_1500",
    "INSERT INTO documents SELECT seq, REPEAT(MD5(seq), 100), seq FROM seq_1_to_300",
    "INSERT INTO whole SELECT seq, REPEAT('b', 5000) FROM seq_1_to_100",
)


@contextmanager
def started() -> Iterator[MariadbServer]:
    """A server of its own."""
    with tempfile.TemporaryDirectory(prefix="mariadb-") as folder, mariadb(Path(folder)) as server:
        yield server


def emptied(server: MariadbServer) -> None:
    """Drop what a life before has left, and make the tables."""
    with closing(server.connect(ADMIN)) as opened, opened.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        for (name,) in list(cursor.fetchall()):
            cursor.execute(f"DROP TABLE `{name}`")
        for statement in _SCHEMA:
            # With GTIDs, MySQL refuses transactions that change tables of several engines.
            cursor.execute(statement.removesuffix(_OTHER_ENGINE) if isinstance(server, MysqlServer) else statement)


def source(server: MariadbServer, folder: Path, tables: tuple[str, ...], rows: int) -> LogSource:
    """The source of a node that captures tables."""
    return log_source(server.connection, folder, ", ".join(f"{DATABASE}.{name}" for name in tables), rows)


def held(server: MariadbServer, table: str) -> dict[str, list[str | None]]:
    """The rows of a table, by key, as texts."""
    with closing(server.connect()) as opened, opened.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return {str(row[0]): [None if one is None else str(one) for one in row] for row in cursor.fetchall()}


def captured(table: str) -> str:
    """The name of a table in the change log."""
    return f"{DATABASE}.{table}"


@contextmanager
def written(server: MariadbServer, seed: int) -> Iterator[None]:
    """Writers at work: transactions of one to fifty changes, some rolled back, some by XA, with savepoints, changes
    of keys, files of the log that end, and a column that comes."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_write, args=(server, random.Random(f"{seed} {one}"), stop, one), daemon=True)
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


def _write(server: MariadbServer, chance: random.Random, stop: threading.Event, number: int) -> None:
    with closing(server.connect(ADMIN)) as opened:
        opened.autocommit(False)
        while not stop.is_set():
            try:
                _transaction(opened, chance, f"w{number}")
            except pymysql.Error:
                # Writers wait for one another, and one of them gives up; or the column is there already.
                _give_up(opened, f"w{number}")
            time.sleep(PAUSE)


def _transaction(opened: Any, chance: random.Random, name: str) -> None:
    with opened.cursor() as cursor:
        if chance.random() < 0.005:
            cursor.execute("FLUSH BINARY LOGS")
        if chance.random() < 0.0005:
            # Rarely: each makes the snapshot of the table begin again.
            cursor.execute("ALTER TABLE whole ADD extra int DEFAULT 1")
        is_xa = chance.random() < _XA_SHARE
        if is_xa:
            cursor.execute(f"XA START '{name}'")
        for _ in range(chance.choice(SIZES)):
            cursor.execute(_statement(chance, is_xa=is_xa))
            if not is_xa and chance.random() < _UNDONE:
                cursor.execute("SAVEPOINT undone")
                cursor.execute(_statement(chance, is_xa=is_xa))
                cursor.execute("ROLLBACK TO undone")
        ends = chance.random() < 0.15
        if is_xa:
            cursor.execute(f"XA END '{name}'")
            cursor.execute(f"XA PREPARE '{name}'")
            time.sleep(chance.random() / 20)
            cursor.execute(f"XA {'ROLLBACK' if ends else 'COMMIT'} '{name}'")
        else:
            cursor.execute("ROLLBACK" if ends else "COMMIT")


def _give_up(opened: Any, name: str) -> None:
    for statement in ("ROLLBACK", f"XA END '{name}'", f"XA ROLLBACK '{name}'"):
        try:
            with opened.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.Error:
            # It was in another state.
            continue


def _statement(chance: random.Random, *, is_xa: bool) -> str:
    table, most = chance.choice([("accounts", 1500), ("documents", 300), ("whole", 100)])
    key, other = chance.randint(1, most), chance.randint(1, 2 * most)
    other += other == key
    changes = {"accounts": "balance = balance + 1", "documents": "n = n + 1", "whole": "body = CONCAT('x', id)"}
    rows = {
        "accounts": "balance, note) VALUES (%s, 1, 'new')",
        "documents": "body, n) VALUES (%s, REPEAT('z', 4000), 0)",
    }
    rows["whole"] = "body) VALUES (%s, 'new')"
    found = [
        f"UPDATE {table} SET {changes[table]} WHERE id = {key}",
        f"UPDATE {table} SET {changes[table]} WHERE id BETWEEN {key} AND {key + chance.randint(0, 10)}",
        f"UPDATE IGNORE {table} SET id = {other} WHERE id = {key}",
        f"DELETE FROM {table} WHERE id = {key}",
        f"INSERT IGNORE INTO {table} (id, {rows[table] % key}",
    ]
    if not is_xa:
        found += ["SAVEPOINT here", "INSERT INTO plain VALUES (1)"]
    return chance.choice(found)
