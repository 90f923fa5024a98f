"""A table of facts in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.snapshots.lab import server
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, Server

_TABLE = "CREATE TABLE facts (uid bigint PRIMARY KEY, id bigint, seq bigint, at timestamptz, day text, v text, x text)"


class FactTable:
    """The table, for one node after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        place = {"type": "postgres", "host": "127.0.0.1", "port": server.port, "database": DATABASE}
        self.connection = json.dumps({"db": place | {"user": USER, "password": PASSWORD}})[1:-1]

    def begin(self) -> None:
        """An empty table."""
        self._server.execute("DROP TABLE IF EXISTS facts", _TABLE)

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add facts."""
        columns = ("uid", "id", "seq", "at", "day", "v", "x")
        self._server.insert("facts", *(tuple(row.get(name) for name in columns) for row in rows))

    def keep_rows(self, uids: set[int]) -> None:
        """Delete all but these."""
        self._server.execute(f"DELETE FROM facts WHERE uid NOT IN ({', '.join(map(str, [*uids, -1]))})")


@contextmanager
def started() -> Iterator[FactTable]:
    """The table on a server of its own."""
    with server("postgres") as one:
        yield FactTable(one)
