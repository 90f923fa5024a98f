"""Columns of every type that a server has: each value comes over as the server writes it, or is refused by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from odi_assets.config.graph import NodeKey
from odi_assets.errors import SourceError
from odi_assets.nodes.node import Node
from odi_assets_tests.sources.sql import kinds
from odi_assets_tests.sources.sql.conftest import Make
from odi_assets_tests.sources.sql.servers import Server


@dataclass(frozen=True)
class Table:
    """A table with a column of each type: its first row has the first value of each, and the last one NULLs."""

    server: Server
    kinds: kinds.Kinds

    @classmethod
    def made(cls, server: Server) -> Table:
        is_postgres = server.type == "postgres"
        found = {**kinds.POSTGRES, **kinds.POSTGRES_ARRAYS} if is_postgres else kinds.MARIADB
        if is_postgres:
            server.execute(*kinds.POSTGRES_SETUP)
        columns = ", ".join(f"c{number} {kind}{'' if is_postgres else ' NULL'}" for number, kind in enumerate(found))
        rows = max(map(len, found.values())) + 1
        server.execute("DROP TABLE IF EXISTS kinds", f"CREATE TABLE kinds (n int, {columns})")
        for row in range(rows):
            values = [each[row] if row < len(each) else "NULL" for each in found.values()]
            casts = [f"CAST({value} AS {kind})" for kind, value in zip(found, values, strict=True)]
            server.execute(f"INSERT INTO kinds VALUES ({row}, {', '.join(casts if is_postgres else values)})")
        return cls(server, found)

    def texts(self, column: str, kind: str) -> list[Any]:
        """The values of a column as the server writes them; those of an array, and its dimensions."""
        if self.server.type == "mysql":
            shown = f"HEX({column})" if _is_bytes(kind) else f"CAST({column} + 0 AS CHAR)" if kind[:3] == "bit" else ""
            return [row[0] for row in self.ask(f"SELECT {shown or f'CAST({column} AS CHAR)'} FROM kinds ORDER BY n")]
        if kind.endswith("[]"):
            items = f"ARRAY(SELECT CAST(x AS text) FROM unnest({column}) x)"
            return self.ask(f"SELECT array_dims({column}), {items}, {column} IS NULL FROM kinds ORDER BY n")
        return [row[0] for row in self.ask(f"SELECT CAST({column} AS text) FROM kinds ORDER BY n")]

    def ask(self, query: str) -> list[Any]:
        opened = self.server.connect()
        try:
            cursor = opened.cursor()
            if self.server.type == "postgres":
                cursor.execute("SET datestyle = 'ISO'")
                cursor.execute("SET timezone = 'UTC'")
            cursor.execute(query)
            return list(cursor.fetchall())
        finally:
            opened.close()


def _is_bytes(kind: str) -> bool:
    return "blob" in kind or "binary(" in kind or kind in _SHAPES


_SHAPES = frozenset(kind for kind in kinds.MARIADB if kind.endswith(("point", "string", "polygon", "geometry", "tion")))


def read(make: Make, more: str = "") -> tuple[dict[str, DataType], list[Any]]:
    """The types of the columns, and the rows in their order; times as text, for Python has not all of them."""
    (source,) = Node.of(make(f"table: kinds{more}").project, NodeKey("p", "events")).sources
    rows = source.whole().load(make.spark)
    types = {field.name: field.dataType for field in rows.schema}
    shown = [
        F.col(name).cast("string") if kind.typeName() in ("date", "timestamp", "timestamp_ntz") else F.col(name)
        for name, kind in types.items()
    ]
    return types, sorted(rows.select(shown).collect(), key=lambda row: row.n)
