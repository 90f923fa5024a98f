"""Sources outside a pipeline: where they are, their format, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistakes
from odi_assets.config.models.fields import Columns, Option, SchemaDdl, Strict, Text
from odi_assets.config.models.increments import ChunksConfig, Increment, StatefulIncrement
from odi_assets.config.models.read_options import hidden_parts, losing_options


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    DELTA = "delta"
    SQL = "sql"
    CDC = "cdc"

    @property
    def increments(self) -> frozenset[str]:
        """The modes of increments that sources of this format can be read by."""
        return _INCREMENTS[self]


_INCREMENTS: dict[FileFormat, frozenset[str]] = {
    **dict.fromkeys(FileFormat, frozenset({"stateful", "rolling_window", "files"})),
    FileFormat.DELTA: frozenset({"stateful", "rolling_window", "version"}),
    FileFormat.SQL: frozenset({"stateful", "cursors", "rolling_window"}),
    FileFormat.CDC: frozenset(),
}


_HARMLESS = frozenset({"header", "sep", "delimiter", "quote", "escape", "nullValue", "dateFormat"})
"""Frequent options that lose nothing. Others are looked up."""


def _require_path_of_files_alone(schema: dict[str, Any]) -> None:
    schema["required"].remove("path")
    schema["if"] = {"properties": {"format": {"const": FileFormat.SQL.value}}}
    schema["then"] = {"anyOf": [{"required": ["table"]}, {"required": ["query"]}]}
    of_logs = {"properties": {"format": {"const": FileFormat.CDC.value}}}
    schema["else"] = {"if": of_logs, "then": {"required": ["tables"]}, "else": {"required": ["path"]}}


LEFT_OUT = "!"
"""How an entry of ``tables`` begins that leaves tables out."""


def kept_tables(entries: Iterable[str]) -> tuple[str, ...]:
    """The entries of ``tables`` that name tables, without those that others leave out."""
    listed = list(entries)
    unwanted = [one.removeprefix(LEFT_OUT) for one in listed if one.startswith(LEFT_OUT)]
    wanted = [one for one in listed if not one.startswith(LEFT_OUT)]
    return tuple(one for one in wanted if not any(fnmatchcase(one, pattern) for pattern in unwanted))


class ReadConfig(Strict):
    """A source outside the pipeline."""

    DEFAULTS: ClassVar = {
        "streaming": False,
        "sql_file": None,
        "filter": None,
        "time_travel": None,
        "archive_options": {},
    }

    model_config = ConfigDict(json_schema_extra=_require_path_of_files_alone)

    connection: Text = Field(description="Name of a connection.")
    format: FileFormat = Field(description="Format of the source.")
    path: Text = Field(description="Path under the connection; may be a glob, as in `flights/*.csv`.")
    schema_ddl: SchemaDdl | None = Field(
        default=None, alias="schema", description="Columns in Spark's DDL: `id BIGINT, name STRING`."
    )
    options: dict[str, Option] = Field(default_factory=dict, repr=False, description="Spark's options of the format.")
    rescued: Text | None = Field(
        default=None, description="Column that keeps, as JSON, what of a file does not fit the other columns."
    )
    strict: bool = Field(
        default=True,
        description="Judge files by the standard of their format, and values by their types; `false`: as Spark does.",
    )
    table: Text | None = Field(default=None, description="Table of a database, as in `sales.orders`.")
    query: Text | None = Field(default=None, description="A query of a database, in its own SQL.")
    partition_column: Text | None = Field(
        default=None, description="Column of a database that pieces are cut by; by default, the increment's column."
    )
    pieces: int = Field(default=1, ge=1, le=256, description="Pieces of a database that are read side by side.")
    columns: dict[Text, Text] = Field(
        default_factory=dict, description="SQL to ask for in the place of a column: `{price: CAST(price AS text)}`."
    )
    tables: Columns = Field(
        default=(),
        description="Tables whose changes are captured: `public.orders`, `public.customer*`; with `!` in front, tables "
        "that are left out: `!public.audit_*`.",
    )
    snapshot: ChunksConfig = Field(
        default=ChunksConfig(), description="How the first read of captured tables is cut into chunks."
    )
    incremental: Increment | None = Field(default=None, description="Read only what is new; without it, everything.")

    @model_validator(mode="before")
    @classmethod
    def _find_place(cls, data: Any) -> Any:
        """Give the read of a database the place that assets and messages name: its table, as a path."""
        if not isinstance(data, dict) or data.get("format") not in ("sql", "cdc") or "path" in data:
            return data
        return {**data, "path": "log" if data["format"] == "cdc" else _place_of(data.get("table"))}

    @model_validator(mode="after")
    def _fits_its_format(self) -> ReadConfig:
        only = ("table", "query", "partition_column", "pieces", "columns")
        given = [name for name in only if name in self.model_fields_set]
        of_logs = [name for name in ("tables", "snapshot") if name in self.model_fields_set]
        if self.format is FileFormat.CDC:
            found = self._mistakes_of_logs()
        elif of_logs:
            found = [Mistake("is for `format: cdc`", at=(name,), where="key") for name in of_logs]
        elif self.format is not FileFormat.SQL:
            found = [Mistake("is for `format: sql`", at=(name,), where="key") for name in given]
            if self.format is not FileFormat.DELTA:
                found += hidden_parts(self.path)
            if self.rescued is not None:
                found += self._mistakes_of_rescuing()
            if self.options.keys() - _HARMLESS:
                found += losing_options(self.format, self.options, self.schema_ddl, self.rescued)
        else:
            found = self._mistakes_of_databases()
        if found:
            raise mistakes(found)
        return self

    def _mistakes_of_rescuing(self) -> list[Mistake]:
        columns = re.findall(r"\w+", (self.schema_ddl or "").lower())
        if self.format is FileFormat.DELTA:
            return [Mistake("is for files: a table has a schema of its own", at=("rescued",), where="key")]
        if self.format is FileFormat.PARQUET and self.schema_ddl is None:
            text = "keeps what does not fit `schema`, and there is none: without it, all columns are read"
            return [Mistake(text, at=("rescued",), where="key")]
        if str(self.rescued).lower() in columns:
            return [about(str(self.rescued), "is a column of `schema` too: give another name", at=("rescued",))]
        return []

    @property
    def is_untyped(self) -> bool:
        """Whether it is a CSV whose columns have no types: all of them are text."""
        is_inferred = any(k.lower() == "inferschema" and v.lower() == "true" for k, v in self.options.items())
        return self.format is FileFormat.CSV and self.schema_ddl is None and not is_inferred

    @property
    def untyped_cursor(self) -> str | None:
        """The cursor of a CSV whose columns have no type: it is text, and nobody said so. None if there is none."""
        increment = self.incremental
        if not isinstance(increment, StatefulIncrement) or increment.date_format or increment.type:
            return None
        return increment.column if self.is_untyped else None

    def _mistakes_of_databases(self) -> list[Mistake]:
        found = []
        if (self.table is None) == (self.query is None):
            found.append(Mistake("give what is read in a database: `table` or `query`, one of them"))
        elif self.path != _place_of(self.table):
            found.append(Mistake("a database has no paths: give `table` or `query`", at=("path",), where="key"))
        if self.schema_ddl is not None:
            found.append(Mistake("a database has a schema of its own", at=("schema",), where="key"))
        if self.rescued is not None:
            found.append(Mistake("is for files: a database has a schema of its own", at=("rescued",), where="key"))
        cursor = getattr(self.incremental, "column", None) or getattr(self.incremental, "columns", None)
        if self.pieces > 1 and self.partition_column is None and cursor is None:
            found.append(Mistake("says by no column how to cut: add `partition_column`", at=("pieces",)))
        found += [
            about(
                name, "is what rows are ordered or cut by: ask for it as it is, or read a `query`", at=("columns", name)
            )
            for name in sorted(self.columns.keys() & self.ordering)
        ]
        return found

    def _mistakes_of_logs(self) -> list[Mistake]:
        others = self.model_fields_set - {"connection", "format", "tables", "snapshot", "path"}
        found = [Mistake("has no meaning for `format: cdc`", at=(name,), where="key") for name in sorted(others)]
        if not self.captured:
            found.append(Mistake("names no table to capture: add `tables: [public.orders]`"))
        if self.path != "log":
            found.append(Mistake("a log has no paths: give `tables`", at=("path",), where="key"))
        return found

    @property
    def ordering(self) -> set[str]:
        """The columns that rows of a database are ordered or cut by."""
        increment, snapshot = self.incremental, getattr(self.incremental, "snapshot", None)
        one = {getattr(increment, "column", None), getattr(increment, "fallback_column", None), self.partition_column}
        # For a table, the database itself knows the keys, whatever is asked for in their place.
        by = () if self.query is None else getattr(snapshot, "by", None) or ()
        several = [*getattr(increment, "columns", ()), *by]
        return {name for name in (*one, *several) if name is not None}

    @property
    def captured(self) -> tuple[str, ...]:
        """The entries of ``tables`` that name tables, without those that others leave out."""
        return kept_tables(self.tables)

    @property
    def shown(self) -> str:
        """What is read, in words, without its connection."""
        return ", ".join(self.captured) or self.table or self.path

    @property
    def places(self) -> dict[str, str]:
        """The paths of what is read, each with what is read there, in words: of a log, the captured tables."""
        return {_place_of(table): table for table in self.captured} or {self.path: self.shown}


def _place_of(table: Any) -> str:
    return table.replace(".", "/") if isinstance(table, str) and table else "query"
