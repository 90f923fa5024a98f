"""A MariaDB server in hand."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql

from benchmarks.capture.changes.oracle import DatabaseTable
from benchmarks.capture.changes.server import ServerInHand
from benchmarks.capture.mariadb import POINTS
from benchmarks.capture.mysql import require_mysql
from odi_assets_tests.sources.sql.servers import (
    ADMIN,
    DATABASE,
    USER,
    MariadbServer,
    Server,
    mariadb,
    mariadb_again,
    mysql,
    mysql_again,
)

_MADE = (
    "CREATE TABLE a (id int PRIMARY KEY, n int, m enum('low', 'high'), at datetime)",
    "CREATE TABLE b (id int PRIMARY KEY, t varchar(40) NOT NULL UNIQUE, d decimal(10,2))",
    "CREATE TABLE c (id int, k varchar(40), body longtext, PRIMARY KEY (k, id))",
    "INSERT INTO a SELECT seq, seq, 'low', '2024-01-01' FROM seq_1_to_30",
    "INSERT INTO b SELECT seq, CONCAT('t', seq), seq / 4 FROM seq_1_to_20",
    "INSERT INTO c SELECT seq, CONCAT('k', seq), REPEAT(MD5(seq), 100) FROM seq_1_to_10",
)
_FLUSHED = "innodb_flush_log_at_trx_commit=2"
"""What was committed survives the end of the server's process."""
_CAPTURED = (
    "SELECT CONCAT(t.table_schema, '.', t.table_name) FROM information_schema.tables t WHERE t.table_schema IN "
    f"('{DATABASE}', 'other') AND t.table_type = 'BASE TABLE' AND t.engine = 'InnoDB' AND EXISTS (SELECT * FROM "
    "information_schema.statistics s WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND "
    "s.index_name = 'PRIMARY') AND NOT EXISTS (SELECT * FROM information_schema.referential_constraints r WHERE "
    "r.constraint_schema = t.table_schema AND r.table_name = t.table_name AND 'CASCADE' IN (r.delete_rule, "
    "r.update_rule)) ORDER BY 1"
)
_TABLES = f"SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = '{DATABASE}' ORDER BY 1"


class MariadbInHand(ServerInHand):
    server: MariadbServer

    schema = DATABASE
    log = ""
    points = POINTS
    stops = (signal.SIGTERM, signal.SIGKILL)
    refusal = pymysql.Error
    process_file = "pid"

    def connect(self, *, autocommit: bool = True) -> Any:
        opened = self.server.connect(ADMIN)
        # What waits for a transaction that is open is refused.
        rows_of(opened, "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
        opened.autocommit(autocommit)
        return opened

    def execute(self, *statements: str) -> None:
        with closing(self.connect()) as opened:
            for statement in statements:
                rows_of(opened, statement)

    def again(self) -> AbstractContextManager[Server]:
        return mariadb_again(self.folder, self.server.port, f"--{_FLUSHED.replace('_', '-')}")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with closing(self.connect()) as opened:
            return rows_of(opened, statement)

    def empty(self) -> None:
        self.end_prepared(lambda words: words[-1])
        self.execute(f"SET GLOBAL {_FLUSHED}", "DROP DATABASE IF EXISTS other")
        dropped = [f"DROP TABLE `{name}`" for name, _ in self.rows(_TABLES)]
        self.execute("SET foreign_key_checks = 0", *dropped, *_MADE)

    def captured(self) -> list[str]:
        return [str(name) for (name,) in self.rows(_CAPTURED)]

    def existing(self) -> list[str]:
        return [str(name) for name, kind in self.rows(_TABLES) if kind in ("BASE TABLE", "SYSTEM VERSIONED")]

    def columns(self, name: str) -> dict[str, str]:
        """The columns of a table, with their types."""
        return {str(column): str(kind) for column, kind, _ in self._columns(name)}

    def _columns(self, name: str) -> list[tuple[Any, ...]]:
        schema, _, table = name.rpartition(".")
        return self.rows(
            "SELECT column_name, column_type, column_key FROM information_schema.columns WHERE table_schema = "
            f"'{schema or DATABASE}' AND table_name = '{table}' ORDER BY ordinal_position"
        )

    def table(self, name: str) -> DatabaseTable:
        found = self._columns(name)
        listed = ", ".join(f"`{column}`" for column, *_ in found)
        with closing(self.connect()) as opened:
            # Without conversions values are the server's texts.
            opened.decoders = {}
            rows = [
                {str(column): text for (column, *_), text in zip(found, row, strict=True)}
                for row in rows_of(opened, f"SELECT {listed} FROM {name}")
            ]
        key = [str(column) for column, _, of_key in found if of_key == "PRI"]
        return DatabaseTable(self.columns(name), {tuple(row[one] for one in key): row for row in rows}, bool(key))

    def end_prepared(self, chosen: Callable[[list[str]], str]) -> str:
        names = [str(row[3]) for row in self.rows("XA RECOVER FORMAT='SQL'")]
        return self._ended([f"XA {chosen(['COMMIT', 'ROLLBACK'])} {name}" for name in names])

    def _ended(self, ended: list[str]) -> str:
        for statement in ended:
            # The server may have rolled it back already, and says so once.
            with suppress(pymysql.err.OperationalError):
                self.execute(statement)
        return "; ".join(ended) or "nothing"


class MysqlInHand(MariadbInHand):
    """A MySQL server in hand: it refuses the statements that MariaDB alone knows."""

    def empty(self) -> None:
        super().empty()
        # MySQL shows nobody a table that he has no right to.
        self.execute(f"GRANT ALL ON other.* TO '{USER}'@'127.0.0.1'")

    def again(self) -> AbstractContextManager[Server]:
        return mysql_again(self.folder, self.server.port, f"--{_FLUSHED.replace('_', '-')}")

    def end_prepared(self, chosen: Callable[[list[str]], str]) -> str:
        names = [repr(str(row[3])[: row[1]]) for row in self.rows("XA RECOVER")]
        return self._ended([f"XA {chosen(['COMMIT', 'ROLLBACK'])} {name}" for name in names])


def rows_of(opened: Any, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement in a session."""
    with closing(opened.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@contextmanager
def started(folder: Path) -> Iterator[MariadbInHand]:
    """A server of its own, with its data in ``folder``."""
    with ExitStack() as running:
        yield MariadbInHand(folder, running.enter_context(mariadb(folder)), running)


@contextmanager
def started_mysql(folder: Path) -> Iterator[MysqlInHand]:
    """A server of MySQL with its data in ``folder``."""
    require_mysql()
    with ExitStack() as running:
        yield MysqlInHand(folder, running.enter_context(mysql(folder)), running)
