"""A table engine that writes as the embedded one does, and notes each commit in a file beside the table."""

from typing import Any

from odi_assets.delta.commit import Stamp
from odi_assets.delta.table import TableHandle
from odi_assets.tables.embedded.engine import EmbeddedEngine
from odi_assets.tables.engine import WriteResult, WriteSpec


class NotedEngine(EmbeddedEngine):
    """The embedded engine with notes."""

    def write_on(self, df: Any, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        result = super().write_on(df, handle, spec, stamp)
        with handle.location.local_path.with_suffix(".noted").open("a", encoding="utf-8") as notes:
            notes.write(f"version {result.version}: {result.rows_written} rows\n")
        return result
