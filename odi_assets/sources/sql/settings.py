"""The keys of a ``read`` of a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistakes, one_of
from odi_assets.config.models import CTID, Connection, CursorsIncrement, NodeConfig, SqlConnection
from odi_assets.config.models.fields import Option, Text
from odi_assets.config.models.reads import ReadConfig, SourceKind
from odi_assets.config.write_modes import WriteMode

_OF_ITS_OWN = "a database has a schema of its own"
_SNAPSHOTS = ("postgres", "mysql")


class SqlRead(ReadConfig):
    """A table or a query of a database."""

    DEFAULTS: ClassVar = {**ReadConfig.DEFAULTS, "strict": True}
    INCREMENTS: ClassVar = frozenset({"stateful", "cursors", "rolling_window"})
    NEEDS: ClassVar = "database"
    MISPLACED: ClassVar = {
        "path": "a database has no paths: give `table` or `query`",
        "schema": _OF_ITS_OWN,
        "rescued": f"is for files: {_OF_ITS_OWN}",
    }

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["table"]}, {"required": ["query"]}]})

    options: dict[str, Option] = Field(default_factory=dict, repr=False, description="Spark's options of the format.")
    table: Text | None = Field(default=None, description="Table of a database, as in `sales.orders`.")
    query: Text | None = Field(default=None, description="A query of a database, in its own SQL.")
    partition_column: Text | None = Field(
        default=None, description="Column of a database that pieces are cut by; by default, the increment's column."
    )
    pieces: int = Field(default=1, ge=1, le=256, description="Pieces of a database that are read side by side.")
    columns: dict[Text, Text] = Field(
        default_factory=dict, description="SQL to ask for in the place of a column: `{price: CAST(price AS text)}`."
    )

    @model_validator(mode="after")
    def _can_be_asked(self) -> SqlRead:
        read_mistakes = []
        if (self.table is None) == (self.query is None):
            read_mistakes.append(Mistake("give what is read in a database: `table` or `query`, one of them"))
        cursor = getattr(self.incremental, "column", None) or getattr(self.incremental, "columns", None)
        if self.pieces > 1 and self.partition_column is None and cursor is None:
            read_mistakes.append(Mistake("says by no column how to cut: add `partition_column`", at=("pieces",)))
        text = "is what rows are ordered or cut by: ask for it as it is, or read a `query`"
        for name in sorted(self.columns.keys() & self.ordering):
            read_mistakes.append(about(name, text, at=("columns", name)))
        if read_mistakes:
            raise mistakes(read_mistakes)
        return self

    @property
    def place(self) -> str:
        return self.table.replace(".", "/") if self.table else "query"

    @property
    def shown(self) -> str:
        return self.table or self.place

    @property
    def ordering(self) -> set[str]:
        """The columns that rows are ordered or cut by."""
        increment, snapshot = self.incremental, getattr(self.incremental, "snapshot", None)
        single = {
            getattr(increment, "column", None),
            getattr(increment, "fallback_column", None),
            self.partition_column,
        }
        # For a table, the database itself knows the keys, whatever is asked for in their place.
        by = () if self.query is None else getattr(snapshot, "by", None) or ()
        several = [*getattr(increment, "columns", ()), *by]
        return {name for name in (*single, *several) if name is not None}

    def asked_for(self, column: str) -> dict[str, str]:
        asked = next((sql for name, sql in self.columns.items() if name.casefold() == column), column)
        return {f"`read.columns.{column}`": asked}

    def why_not_followed(self, mode: str) -> str:
        return f"`{mode}` is for files and Delta tables: a database is followed by a column, with `stateful`"

    def stream_mistakes(self) -> Iterator[Mistake]:
        yield Mistake("a database cannot be read as a stream: load it with a node, and stream that", at=("format",))

    def mistakes_with(self, node: NodeConfig, connection: Connection | None) -> Iterator[Mistake]:
        if isinstance(self.incremental, CursorsIncrement):
            yield from self._of_snapshot(self.incremental, node.write.mode, connection)

    def _of_snapshot(
        self, increment: CursorsIncrement, mode: WriteMode, connection: Connection | None
    ) -> Iterator[Mistake]:
        """Find what a snapshot in chunks cannot have: another database, another write mode, other columns."""
        kind = getattr(connection, "type", None)
        if isinstance(connection, SqlConnection) and kind not in _SNAPSHOTS:
            text = f"`cursors` is for postgres and mysql, and this is a connection of type {kind}: use `stateful`"
            yield Mistake(text, at=("incremental", "mode"))
        if mode.traits.increment != "rows":
            others = one_of(other for other in WriteMode if other.traits.increment == "rows")
            text = f"`cursors` writes a table in parts, and `{mode}` replaces what is there: write with {others}"
            yield Mistake(text, at=("incremental", "mode"))
        by = increment.snapshot.by or ()
        if CTID in by and (len(by) > 1 or kind == "mysql" or self.table is None):
            text = "of PostgreSQL alone" if kind == "mysql" else "of a table, and the only one"
            yield Mistake(f"`{CTID}` is a key {text}", at=("incremental", "snapshot", "by"))
        for name in sorted({name for name in increment.columns if increment.columns.count(name) > 1}):
            yield Mistake(f"`{name}` is there twice", at=("incremental", "columns"))


DATABASE = SourceKind(SqlRead, "odi_assets.sources.sql.source:sql_source")
