"""The keys of a ``read`` of a database's log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from odi_assets.config.captured_tables import kept_tables
from odi_assets.config.diagnostics.mistakes import Mistake, mistakes
from odi_assets.config.models import ChunksConfig
from odi_assets.config.models.fields import Columns
from odi_assets.config.models.reads import ReadConfig, SourceKind

_NO_MEANING = "has no meaning for `format: cdc`"
_OF_OTHERS = ("schema", "options", "rescued", "strict", "table", "query", "partition_column", "pieces", "columns")


class CaptureRead(ReadConfig):
    """The changes of tables, as the log of their database has them."""

    INCREMENTS: ClassVar = frozenset()
    NEEDS: ClassVar = "database"
    CAPTURES: ClassVar = True
    MISPLACED: ClassVar = {**dict.fromkeys(_OF_OTHERS, _NO_MEANING), "path": "a log has no paths: give `tables`"}

    model_config = ConfigDict(json_schema_extra={"required": ["connection", "format", "tables"]})

    tables: Columns = Field(
        default=(),
        description="Tables whose changes are captured: `public.orders`, `public.customer*`; with `!` in front, tables "
        "that are left out: `!public.audit_*`.",
    )
    snapshot: ChunksConfig = Field(
        default=ChunksConfig(), description="How the first read of captured tables is cut into chunks."
    )

    @model_validator(mode="after")
    def _names_tables(self) -> CaptureRead:
        read_mistakes = []
        if "incremental" in self.model_fields_set:
            read_mistakes.append(Mistake(_NO_MEANING, at=("incremental",), where="key"))
        if not self.captured:
            read_mistakes.append(Mistake("names no table to capture: add `tables: [public.orders]`"))
        if read_mistakes:
            raise mistakes(read_mistakes)
        return self

    @property
    def captured(self) -> tuple[str, ...]:
        """The entries of ``tables`` that name tables, without those that others leave out."""
        return kept_tables(self.tables)

    @property
    def place(self) -> str:
        return "log"

    @property
    def shown(self) -> str:
        return ", ".join(self.captured) or self.place

    @property
    def places(self) -> dict[str, str]:
        return {table.replace(".", "/"): table for table in self.captured} or super().places

    def stream_mistakes(self) -> Iterator[Mistake]:
        yield Mistake("a log cannot be read as a stream: capture it with a node, and stream its table", at=("format",))


LOG = SourceKind(CaptureRead, "odi_assets.sources.cdc.source:capture_source")
