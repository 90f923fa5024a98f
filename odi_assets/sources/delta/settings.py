"""The keys of a ``read`` of a Delta table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from odi_assets.config.diagnostics.mistakes import Mistake
from odi_assets.config.models.fields import Option, SchemaDdl
from odi_assets.config.models.read_options import taken_by_streams
from odi_assets.config.models.reads import SourceKind, StoredRead


class DeltaRead(StoredRead):
    """A Delta table at a path of a connection."""

    DEFAULTS: ClassVar = {**StoredRead.DEFAULTS, "strict": True}
    INCREMENTS: ClassVar = frozenset({"stateful", "rolling_window", "version"})
    READS: ClassVar = "table"
    MISPLACED: ClassVar = {"rescued": "is for files: a table has a schema of its own"}

    schema_ddl: SchemaDdl | None = Field(
        default=None, alias="schema", description="Columns of the table in Spark's DDL, for messages and Dagster."
    )
    options: dict[str, Option] = Field(default_factory=dict, repr=False, description="Spark's options of the format.")

    @property
    def declared(self) -> str | None:
        return self.schema_ddl

    def why_not_followed(self, mode: str) -> str:
        if mode == "files":
            return "`files` would read the files of a Delta table past its log: use `version`"
        return super().why_not_followed(mode)

    def stream_mistakes(self) -> Iterator[Mistake]:
        yield from taken_by_streams(self.options)


TABLE = SourceKind(DeltaRead, "odi_assets.sources.delta.source:table_on_connection")
