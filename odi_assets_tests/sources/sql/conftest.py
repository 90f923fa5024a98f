"""Databases for the tests of this room."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets_tests.jdbc import jdbc_jars
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.servers import (
    Server,
    mariadb,
    mariadbd,
    mysql,
    mysqld,
    postgres,
    postgres_program,
)

Make = Callable[..., Sandbox]


@pytest.fixture(scope="session")
def databases() -> Iterator[dict[str, Server | str]]:
    """A server of each kind; or why there is none."""
    found: dict[str, Server | str] = {}
    with ExitStack() as stack:
        for name, start, program, driver in (
            ("postgres", postgres, postgres_program("initdb"), "psycopg"),
            ("mariadb", mariadb, mariadbd(), "pymysql"),
            ("mysql", mysql, mysqld(), "pymysql"),
        ):
            if program is None:
                found[name] = f"no {name} server is installed (Debian: postgresql, mariadb-server; ODI_TEST_MYSQL)"
            elif importlib.util.find_spec(driver) is None:
                found[name] = f"{driver} is not installed"
            else:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-"))
                found[name] = stack.enter_context(start(Path(folder)))
        yield found


@pytest.fixture
def server(request: pytest.FixtureRequest, databases: dict[str, Server | str]) -> Server:
    """One of the servers; the other one too, unless a test names one."""
    found = databases[getattr(request, "param", "postgres")]
    if isinstance(found, str):
        pytest.skip(found)
    if not jdbc_jars():
        pytest.skip("the JDBC drivers are not there and cannot be fetched")
    return found


both = pytest.mark.parametrize("server", ["postgres", "mariadb", "mysql"], indirect=True)

NODE = """
- pipeline: p
  nodes:
  - name: events
    read: {connection: db, format: sql, READ}
    write: {connection: lake, path: events, WRITE}
"""


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession, server: Server) -> Make:
    """A project with a node that reads the database."""

    def box(read: str = "table: events", write: str = "mode: append", text: str = NODE) -> Sandbox:
        return Sandbox(tmp_path, spark, text.replace("READ", read).replace("WRITE", write), server.connection)

    return box
