"""Servers of MariaDB and MySQL whose binary log is captured, and projects that capture it."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.cdc import source as captures
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets_tests.nodes.support import HEAD, Sandbox
from odi_assets_tests.sources.sql.servers import (
    ADMIN,
    DATABASE,
    MariadbServer,
    MysqlServer,
    mariadb,
    mariadb_again,
    mariadbd,
    mysql,
    mysql_again,
    mysqld,
)

Capture = Callable[..., Sandbox]


class Database:
    """An open connection, in UTC and without a mode that changes values."""

    def __init__(self, opened: Any) -> None:
        self.opened = opened

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with self.opened.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def rows_of(self, table: str) -> dict[Any, dict[str, Any]]:
        """The rows of a table, by the value of their first column."""
        with self.opened.cursor() as cursor:
            cursor.execute(f"SELECT * FROM `{table}`")
            names = [column[0] for column in cursor.description]
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


@dataclass(frozen=True)
class ServerKind:
    """Servers of one kind: how a new one is started, and one with data of before."""

    name: str
    program: Callable[[], str | None]
    start: Callable[[Path], AbstractContextManager[MariadbServer]]
    again: Callable[..., AbstractContextManager[MariadbServer]]


SERVERS = {
    "mariadb": ServerKind("mariadb", mariadbd, mariadb, mariadb_again),
    "mysql": ServerKind("mysql", mysqld, mysql, mysql_again),
}


def installed(name: str) -> ServerKind:
    """A kind of servers; skips the test where none can be started."""
    if SERVERS[name].program() is None:
        pytest.skip(f"no {name} is installed (Debian: mariadb-server; ODI_TEST_MYSQL names a mysqld)")
    if importlib.util.find_spec("pymysql") is None:
        pytest.skip("PyMySQL is not installed")
    return SERVERS[name]


@pytest.fixture(scope="session", params=[*SERVERS])
def server_of_session(request: pytest.FixtureRequest) -> Iterator[MariadbServer]:
    kind = installed(request.param)
    with tempfile.TemporaryDirectory(prefix=f"{kind.name}-") as folder, kind.start(Path(folder)) as server:
        yield server


@pytest.fixture
def of_mariadb(binlog_server: MariadbServer) -> None:
    """For tests of what MariaDB alone has."""
    if isinstance(binlog_server, MysqlServer):
        pytest.skip("MySQL does not have this")


@pytest.fixture
def is_mysql(binlog_server: MariadbServer) -> bool:
    return isinstance(binlog_server, MysqlServer)


@pytest.fixture
def binlog_server(server_of_session: MariadbServer) -> Iterator[MariadbServer]:
    """The server, without what a test before has left."""
    yield server_of_session
    admin = Database(server_of_session.connect(ADMIN))
    for _, length, _, name in admin.execute("XA RECOVER"):
        admin.execute(f"XA ROLLBACK '{name[:length]}'")
    admin.execute("SET foreign_key_checks = 0")
    kinds = {"VIEW": "VIEW", "SEQUENCE": "SEQUENCE"}
    for name, kind in admin.execute(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = %s", DATABASE
    ):
        admin.execute(f"DROP {kinds.get(kind, 'TABLE')} `{name}`")
    admin.opened.close()


@pytest.fixture
def database(binlog_server: MariadbServer) -> Iterator[Database]:
    opened = binlog_server.connect()
    yield Database(opened)
    opened.close()


@pytest.fixture
def admin(binlog_server: MariadbServer) -> Iterator[Database]:
    """A connection that may do everything."""
    opened = binlog_server.connect(ADMIN)
    yield Database(opened)
    opened.close()


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, state varchar(20), note text)")
    database.execute("INSERT INTO orders SELECT seq, 'new', CONCAT(REPEAT('n', 300), seq) FROM seq_1_to_10")
    return database


NODES = """
- pipeline: p
  nodes:
  - name: changes
    read: {connection: db, format: cdc, tables: [TABLES], snapshot: {rows: ROWS}}
    write: {connection: lake, path: changes}
"""


def nodes_of(tables: tuple[str, ...], patterns: str, rows: int, *, history: bool) -> str:
    text = NODES.replace("TABLES", patterns or ", ".join(f"{DATABASE}.{name}" for name in tables))
    for name in tables:
        write = f"write: {{connection: lake, path: {name}}}"
        apply = f"changes: changes, table: {DATABASE}.{name}{', history: true' if history else ''}"
        text += f"  - {{name: {name}, apply: {{{apply}}}, {write}}}\n"
    return text.replace("ROWS", str(rows))


def connection_of(server: MariadbServer, log: str) -> str:
    return server.connection.rstrip().removesuffix("}") + (f", log: {{{log}}}}}\n" if log else "}\n")


@pytest.fixture
def capture(tmp_path: Path, spark: SparkSession, binlog_server: MariadbServer) -> Capture:
    """A project that captures tables, and applies each to a node of the table's name."""
    return capture_of(binlog_server, tmp_path, spark)


def capture_of(server: MariadbServer, folder: Path, spark: SparkSession) -> Capture:
    """What makes projects in ``folder`` that capture tables of a server."""

    def box(*tables: str, patterns: str = "", rows: int = 1000, log: str = "", history: bool = False) -> Sandbox:
        nodes = nodes_of(tables, patterns, rows, history=history)
        return Sandbox(folder, spark, nodes, connection_of(server, log))

    return box


class Steps:
    """A capture without Spark: its steps, and the change log that they make.

    Attributes:
        log: the rows of the change log.
    """

    def __init__(self, source: captures.LogSource) -> None:
        self.source = source
        self.mark: CaptureMark | None = None
        self.log: list[dict[str, Any]] = []

    def run(self) -> int:
        """Take all steps of one run, and say how many there were."""
        self.source.plan(self.mark)
        until, steps = None, 0
        while True:
            step, until = self.source.bounded(until).step(self.mark)
            self.log += step.rows.to_pylist()
            # As commits store it.
            self.mark, steps = CaptureMark.of(step.after.value, "capture"), steps + 1
            if not step.more:
                return steps

    def ops(self, since: int = 0) -> list[str]:
        """The operations in the log, without the rows that list columns."""
        return [row["op"] for row in self.log[since:] if row["op"] != Op.SHAPE]

    def held(self, table: str = "orders") -> dict[tuple[str, ...], list[str | None]]:
        """The rows of a table, made of the log by these few lines: by key, the texts of the values."""
        found: dict[tuple[str, ...], list[str | None]] = {}
        assert [row["n"] for row in self.log] == list(range(1, len(self.log) + 1))
        for row in self.log:
            if row["table"] != f"{DATABASE}.{table}" or row["op"] == Op.SHAPE:
                continue
            if row["op"] == Op.TRUNCATE:
                found.clear()
            elif row["op"] == Op.DELETE:
                found.pop(tuple(row["key"]), None)
            else:
                found[tuple(row["key"])] = row["after"]
        return found


@pytest.fixture
def steps(tmp_path: Path, binlog_server: MariadbServer) -> Callable[..., Steps]:
    def made(*tables: str, patterns: str = "", rows: int = 1000, log: str = "", user: str = "") -> Steps:
        head = HEAD.replace("system:", f"{connection_of(binlog_server, log)}system:")
        if user:
            head = head.replace("user: odi,", f"user: {user},")
        nodes = nodes_of(tables, patterns, rows, history=False).split("  - {name")[0]
        file = tmp_path / "odibi.yaml"
        file.write_text(head + nodes, encoding="utf-8")
        (source,) = Node.of(Project.load(file), NodeKey("p", "changes")).sources
        assert isinstance(source, captures.LogSource)
        return Steps(source)

    return made


def texts_of(database: Database, table: str = "orders") -> dict[tuple[str, ...], list[str | None]]:
    """The rows of a table as :meth:`Steps.held` has them, for columns of numbers and texts."""
    return {
        (str(key),): [None if value is None else str(value) for value in row.values()]
        for key, row in database.rows_of(table).items()
    }
