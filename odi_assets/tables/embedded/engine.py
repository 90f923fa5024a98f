"""The embedded engine. It needs nothing beyond PyPI: Spark or Arrow writes Parquet, deltalake commits it.

What this process holds grows with the number of files, never with the rows in them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.maintenance.maintain import Maintenance, MaintenanceOptions, maintain
from odi_assets.delta.maintenance.restore import restore
from odi_assets.delta.protocol import BY_FILES
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.spark.arrow import dataframe_of
from odi_assets.tables.changed_rows import affected_rows, changed_rows
from odi_assets.tables.embedded.writer import write_dataframe
from odi_assets.tables.engine import TableEngine, WriteResult, WriteSpec
from odi_assets.tables.modes.base import Write
from odi_assets.tables.reader import read_files, read_staged
from odi_assets.tables.schema import delta_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.delta.changes import TableChanges
    from odi_assets.tables.parts import TableParts


class EmbeddedEngine(TableEngine):
    """Writes DataFrames and Arrow tables as Parquet files, and reads tables by the list of their files."""

    features = BY_FILES
    admits = True

    def read_files(
        self, spark: SparkSession, handle: TableHandle, files: Iterable[LiveFile], *, file_as: str | None = None
    ) -> DataFrame:
        return read_files(spark, handle, files, file_as=file_as)

    def changed_rows(self, spark: SparkSession, handle: TableHandle, changes: TableChanges) -> DataFrame:
        return changed_rows(spark, handle, changes)

    def affected_rows(self, spark: SparkSession, handle: TableHandle, changes: TableChanges) -> Iterator[DataFrame]:
        """Rows that existed only between two of the commits may be missing."""
        return affected_rows(spark, handle, changes)

    def write_on(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        return write_dataframe(df, handle, spec, stamp)

    def write_once(
        self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp, *, is_small: bool = False
    ) -> WriteResult:
        """A write that depends on the table's rows, and may start over, works from staged files."""
        if spec.mode.traits.computed_from == "nothing":
            return write_dataframe(df, handle, spec, stamp, is_small=is_small)
        schema_json = delta_schema(df, handle.location.uri)
        staging, own = replace(spec, partition_by=()), replace(stamp, write_id=uuid.uuid4().hex)
        first = Write(df, handle, staging, own, schema_json, is_small=is_small)
        rows = read_staged(df.sparkSession, handle.location, first.stage(df), schema_json)
        try:
            return self.write(rows, handle, spec, stamp)
        finally:
            first.discard()

    def write_arrow(
        self,
        rows: pa.Table | TableParts,
        handle: TableHandle,
        spec: WriteSpec,
        stamp: Stamp,
        open_spark: Callable[[], SparkSession],
    ) -> WriteResult:
        """Needs no JVM, but for what Arrow cannot write exactly."""
        from odi_assets.tables.embedded.arrow import write_arrow

        def by_spark(rows: pa.Table, spec: WriteSpec, stamp: Stamp) -> WriteResult:
            return self.write(dataframe_of(open_spark(), rows), handle, spec, stamp)

        return write_arrow(rows, handle, spec, stamp, by_spark)

    def restore(self, handle: TableHandle, version: int, stamp: Stamp, fences: Iterable[tuple[str, int]] = ()) -> int:
        return restore(handle, version, stamp, fences)

    def maintain(self, location: Location, options: MaintenanceOptions, facts: Mapping[str, Any]) -> Maintenance:
        return maintain(location, options, facts)
