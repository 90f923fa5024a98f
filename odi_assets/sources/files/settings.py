"""The keys of a ``read`` of landing files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistakes
from odi_assets.config.models.ddl import column_types
from odi_assets.config.models.fields import Option, SchemaDdl, Text
from odi_assets.config.models.read_options import hidden_parts, losing_options, taken_by_streams
from odi_assets.config.models.reads import SourceKind, StoredRead


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


_HARMLESS = frozenset({"header", "sep", "delimiter", "quote", "escape", "nullValue", "dateFormat"})
"""Frequent options that lose nothing. Others are looked up."""


class FilesRead(StoredRead):
    """Files of CSV, JSON or Parquet."""

    INCREMENTS: ClassVar = frozenset({"stateful", "rolling_window", "files"})
    READS: ClassVar = "files"

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

    @model_validator(mode="after")
    def _loses_nothing(self) -> FilesRead:
        problems = hidden_parts(self.path)
        if self.rescued is not None:
            problems += self._mistakes_of_rescuing(self.rescued)
        if self.options.keys() - _HARMLESS:
            problems += losing_options(self.format, self.options, self.schema_ddl, self.rescued)
        if problems:
            raise mistakes(problems)
        return self

    def _mistakes_of_rescuing(self, column: str) -> list[Mistake]:
        columns = re.findall(r"\w+", (self.schema_ddl or "").lower())
        if self.format == FileFormat.PARQUET and self.schema_ddl is None:
            text = "keeps what does not fit `schema`, and there is none: without it, all columns are read"
            return [Mistake(text, at=("rescued",), where="key")]
        if column.lower() in columns:
            return [about(column, "is a column of `schema` too: give another name", at=("rescued",))]
        return []

    @property
    def declared(self) -> str | None:
        return self.schema_ddl

    @property
    def all_columns(self) -> Mapping[str, str] | None:
        if self.schema_ddl is None:
            return None
        return {**column_types(self.schema_ddl), **({self.rescued: "STRING"} if self.rescued else {})}

    @property
    def kept_aside(self) -> str | None:
        return self.rescued

    @property
    def is_untyped(self) -> bool:
        is_inferred = any(k.lower() == "inferschema" and v.lower() == "true" for k, v in self.options.items())
        return self.format == FileFormat.CSV and self.schema_ddl is None and not is_inferred

    def why_not_followed(self, mode: str) -> str:
        if mode == "version":
            return f"`version` counts the commits of a Delta table, and `{self.format}` has none: use `files`"
        return super().why_not_followed(mode)

    def stream_mistakes(self) -> Iterator[Mistake]:
        if self.schema_ddl is None:
            yield Mistake("a stream of files needs `schema`: the columns, in Spark's DDL", absence=True)
        if self.rescued is not None:
            text = "is not for streams: load the files with a node, and stream that"
            yield Mistake(text, at=("rescued",), where="key")
        name = self.path.partition("**")[2].strip("/")
        if "/" in name or "**" in name:
            text = (
                "has folders after `**`, which a stream cannot follow: write `**` before the name of the files alone, "
            )
            yield about(self.path, text + "as in `orders/**/*.json`", at=("path",))
        yield from taken_by_streams(self.options)


FILES = SourceKind(FilesRead, "odi_assets.sources.files.source:landing_files")
