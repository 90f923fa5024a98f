"""A table of a SQLite file as a source: what is known of it without Spark, and its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from odi_sqlite import SqliteRead

from odi_assets.config.models import StatefulIncrement
from odi_assets.errors import NothingThereError, SourceError
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.types import cursor_type
from odi_assets.sources.marks import UNRESOLVED, Identity
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import Source, SourceContext

TYPES = {"INTEGER": ("long", "BIGINT"), "TEXT": ("string", "STRING"), "REAL": ("double", "DOUBLE")}
"""By type of SQLite, what Delta's log calls it, and Spark."""


def sqlite_source(read: SqliteRead, context: SourceContext) -> SqliteSource:
    """The source that a ``read`` with ``format: sqlite`` names."""
    return SqliteSource(**context.common(read), file=context.locate(read.path).local_path, table=read.table)


@dataclass(frozen=True, kw_only=True)
class SqliteSource(Source):
    """A table of a SQLite file. Its rows pass through the memory of the process that runs the node."""

    file: Path
    table: str

    @property
    def identity(self) -> Identity:
        return self.identified("sqlite", f"{self.file.name}/{self.table}", "", self.uri)

    @property
    def uri(self) -> str:
        return f"{self.file}#{self.table}"

    @property
    def watchable(self) -> bool:
        return self.cursor is not None

    def snapshot(self) -> SqliteSnapshot:
        if not self.file.exists():
            raise NothingThereError(f"{self.label}: there is no file {self.file}", fix="check `read.path`")
        return SqliteSnapshot(
            name=self.name,
            label=self.label,
            format="sqlite",
            identity=self.identity,
            file=self.file,
            table=self.table,
            cursor=self.cursor,
        )

    def position(self) -> Position:
        return self.snapshot().position if self.file.exists() else {}

    def change_since(self, then: Position | None) -> str | None:
        now = self.position()
        if self.cursor is not None and then == now:
            return None
        return f"it stood at {then or 'an unknown place'} then, and stands at {now} now"


@dataclass(frozen=True, kw_only=True)
class SqliteSnapshot(SourceSnapshot):
    """The table at one moment. Its greatest cursor is asked for once: rows above it are left for the next run."""

    file: Path
    table: str
    cursor: str | None

    @property
    def columns(self) -> Mapping[str, str]:
        return {name: delta for name, (delta, _) in self._types.items()}

    @property
    def position(self) -> Position:
        upper, without_cursor = self._bound
        return {"upper": None if upper is None else str(upper), "without_cursor": without_cursor}

    @property
    def summary(self) -> str:
        return "whole"

    def bound_by_statistics(self, increment: StatefulIncrement) -> tuple[str | None, Any]:
        kind = cursor_type(increment, self.columns, self.label)
        if increment.fallback_column is not None or increment.date_format is not None or kind == "string":
            # Spark orders these: it reads them to know.
            return None, UNRESOLVED
        return kind, Bound(*self._bound)

    def rows(self, spark: Any, only: Partitions | None = None) -> Any:
        names = ", ".join(f'"{name}"' for name in self._types)
        schema = ", ".join(f"`{name}` {kind}" for name, (_, kind) in self._types.items())
        rows = spark.createDataFrame(self._ask(f'SELECT {names} FROM "{self.table}"'), schema)
        return rows if only is None else rows.where(only.condition(rows))

    @cached_property
    def _types(self) -> dict[str, tuple[str, str]]:
        found = self._ask(f"SELECT name, type FROM pragma_table_info('{self.table}')")
        if not found:
            raise NothingThereError(f"{self.label}: {self.file} has no table {self.table}", fix="check `read.table`")
        return {name: TYPES.get(kind.upper(), TYPES["TEXT"]) for name, kind in found}

    @cached_property
    def _bound(self) -> tuple[Any, int]:
        if self.cursor is None:
            return None, 0
        (found,) = self._ask(f'SELECT MAX("{self.cursor}"), COUNT(*) - COUNT("{self.cursor}") FROM "{self.table}"')
        return found[0], found[1]

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as database:
                return database.execute(query).fetchall()
        except sqlite3.Error as error:
            raise SourceError(f"{self.label}: {self.file} cannot be read: {error}", fix="check the file") from error
