"""A MySQL server with the tables and the writers that a MariaDB server has."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.capture.mariadb import POINTS, TABLES, captured, emptied, held, source, written
from benchmarks.peers import PeerUnavailable
from odi_assets_tests.sources.sql.servers import MysqlServer, mysql, mysqld

__all__ = ["POINTS", "TABLES", "captured", "emptied", "held", "source", "started", "written"]


def require_mysql() -> None:
    """Raises PeerUnavailable if there is no server to start."""
    if mysqld() is None:
        raise PeerUnavailable("no MySQL server is installed: ODI_TEST_MYSQL names its program")


@contextmanager
def started() -> Iterator[MysqlServer]:
    """A server of its own."""
    require_mysql()
    with tempfile.TemporaryDirectory(prefix="mysql-") as folder, mysql(Path(folder)) as server:
        yield server
