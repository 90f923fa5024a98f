"""A Delta table as a stream: the rows that its commits add."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from odi_assets.delta.errors import cannot_look
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.protocol import require_readable
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import SourceError, TableError
from odi_assets.sources.delta.appended import AppendedFiles
from odi_assets.sources.errors import lost_data_file
from odi_assets.sources.streamed import Offset, ReadBefore, ReadLog, RowsByFile, StreamedSource, StreamRead
from odi_assets.spark.lazy import T
from odi_assets.tables.engine import engine_of
from odi_assets.tables.reader import by_file_uri, file_uri_key
from odi_assets.tables.schema import spark_schema
from odi_assets.util.lazy import pa, pa_fs, pc, pq
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from odi_assets.connections.location import Location
    from odi_assets.sources.delta.source import DeltaTableSource

_NAMED = 3
"""How many versions that a stream passes over a plan names."""


@dataclass(frozen=True, kw_only=True)
class StreamedTable(StreamedSource):
    """A Delta table as an input of a query."""

    source: DeltaTableSource

    known_by_id: ClassVar[bool] = True

    @property
    def _location(self) -> Location:
        return self.source.location

    @property
    def _files(self) -> AppendedFiles:
        return AppendedFiles(self._location, self.label, self.settings.on_change == "ignore")

    def plan(self, log: ReadLog, start: Offset | None) -> StreamRead:
        del log
        now = replace(self.source)
        if not now.exists and now.is_upstream and start is None:
            return self._planned("delta", now.position(), None, {}, 0, f"nothing: {self.label} has not been run")
        handle = now.snapshot().handle
        end, files = self._files.after(start or self._files.newest())
        self._files.require_there(handle, files)
        version = f"version {handle.version}"
        text = f"{version}, {counted(len(files), 'new file')}" if files else f"{version}, nothing new"
        if start is not None and (passed := self._files.passed_over(start)):
            named = ", ".join([*map(str, passed[:_NAMED]), *(["…"] if len(passed) > _NAMED else [])])
            text += f"; passes over {counted(len(passed), 'version')} that changed or removed rows, and over the rows "
            text += f"that came with that ({named})"
        return self._planned("delta", handle.position, start, end, len(files), text)

    def unread_in(self, start: Offset) -> set[int]:
        try:
            return self._files.unread_versions(start)
        except (SourceError, TableError) as error:
            if cannot_look(error):
                raise
            return set()

    def log_needed_from(self, end: Offset) -> int | None:
        return int(end["version"])

    def upstream_version(self, end: Offset) -> int | None:
        return int(end["version"]) if self.source.is_upstream else None

    def read_before(self, log: ReadLog, name: str, end: Offset) -> ReadBefore | None:
        del log
        handle = TableHandle.open(self._location)
        is_same = handle.exists and end.get("table_id") == handle.table_id
        return ReadBefore(self.name, name, "", "", 0, self.label) if is_same else None

    def size(self, log: ReadLog, start: Offset | None, end: Offset) -> int | None:
        del log
        return sum(file.size for file in self._files.between(start, end))

    def raw_stream(self, spark: SparkSession) -> DataFrame:
        source = self.data_source()
        spark.dataSource.register(source)
        return spark.readStream.name(self.name).format(source.name()).load()

    def data_source(self) -> Any:
        """The class of Spark's Python data source of its rows, with the columns that the table has now.

        Raises:
            TableError: there is no table, or its files do not tell its rows.
        """
        handle = TableHandle.open(self._location)
        require_readable(handle)
        most = self.settings.max_files_per_batch
        return _data_source(f"odi_table_{self.name}", self._files, handle.schema_json, most)

    def raw_batch(self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset) -> DataFrame | None:
        del log
        files = self._files.between(start, end)
        return engine_of(self._location).read_files(spark, TableHandle.open(self._location), files) if files else None

    def read_error(self, text: str) -> SourceError | None:
        return lost_data_file(self.label, text, self._location)

    def schema(self) -> StructType:
        return spark_schema(TableHandle.open(self._location).schema_json)

    def rows_by_file(
        self, spark: SparkSession, log: ReadLog, ends: Mapping[int, Offset | None], file_as: str
    ) -> RowsByFile:
        del log
        handle = TableHandle.open(self._location)
        files: list[LiveFile] = []
        batches: dict[str, tuple[int, int]] = {}
        before, start, gone = -1, None, None
        for batch, end in sorted(ends.items()):
            if end is not None and end != start:
                try:
                    read = self._files.between(start, end)
                except (TableError, SourceError) as error:
                    if cannot_look(error):
                        raise
                    gone, read = f"what batch {batch} had read: {error.message}", []
                files += read
                batches |= dict.fromkeys(by_file_uri(self._location, read), (before + 1, batch))
                start = end
            before = batch
        lost = {file.path for file in lost_files(self._location, files)}
        if lost:
            gone = f"{counted(len(lost), 'file')} that it had read, and that left the table and were deleted"
        since = replace(self._files, skip=True).after(start or self._files.newest())
        chosen = [*(file for file in files if file.path not in lost), *since[1]]
        if gone and not batches:
            # It is not known which batch read which file.
            chosen = list(handle.live_files)
            batches = dict.fromkeys(by_file_uri(self._location, chosen), (0, max(ends, default=0)))
        rows = engine_of(handle).read_files(spark, handle, chosen, file_as=file_as) if chosen else None
        return RowsByFile(rows, batches, gone, f"{file_uri_key(self._location.uri).rstrip('/')}/")


def _data_source(kind: str, appended: AppendedFiles, schema_json: str, most: int | None) -> Any:
    """A class that is made in here, so that executors get it by value: they need pyarrow, and deltalake for tables on a
    store, but not this package. What only the driver needs goes along pickled, and executors leave it alone.
    """
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

    schema, kept = T.StructType.fromJson(json.loads(schema_json)), pickle.dumps(appended)
    read_rows = _row_reader(appended.location, schema)

    class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self) -> None:
            self.upto: int | None = None

        def prepareForTriggerAvailableNow(self) -> None:
            self.upto = int(pickle.loads(kept).newest()["version"])

        def getDefaultReadLimit(self) -> ReadLimit:
            return ReadAllAvailable() if most is None else ReadMaxFiles(most)

        def initialOffset(self) -> dict[str, Any]:
            return dict(pickle.loads(kept).newest())

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            return dict(pickle.loads(kept).after(start, most=files, upto=self.upto)[0])

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            files = pickle.loads(kept).between(start, end, there=True)
            return [InputPartition((file.path, dict(file.partition))) for file in files]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return read_rows(*partition.value)

    class TableStreamSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return kind

        def schema(self) -> T.StructType:
            return schema

        def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: ARG002  Spark's signature
            return TableStreamReader()

    return TableStreamSource


def _row_reader(location: Location, schema: StructType) -> Callable[[str, Mapping[str, str | None]], Iterator[Any]]:
    """A function that reads a data file, by its path and its values of partitions. Executors get it by value, too."""
    uri, is_local, options = location.uri, location.is_local, dict(location.storage_options)

    def constant(text: str | None, kind: Any, rows: int) -> Any:
        array = pa.array([text] * rows, pa.string())
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return pc.assume_timezone(array.cast(pa.timestamp("us")), "UTC")
        return array.cast(kind)

    def column(batch: Any, field: Any, values: Mapping[str, str | None]) -> Any:
        if field.name in values:
            return constant(values[field.name], field.type, batch.num_rows)
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        stored = batch.column(field.name)
        if pa.types.is_timestamp(field.type) and field.type.tz and not getattr(stored.type, "tz", None):
            # INT96 has no zone, and is in UTC.
            stored = pc.assume_timezone(stored, "UTC")
        return stored.cast(field.type)

    def read(path: str, values: Mapping[str, str | None]) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        if is_local:
            file = pq.ParquetFile(f"{uri}/{path}", pre_buffer=False)
        else:
            from deltalake.fs import DeltaStorageHandler

            file = pq.ParquetFile(pa_fs.PyFileSystem(DeltaStorageHandler(uri, options)).open_input_file(path))
        for batch in file.iter_batches(batch_size=10_000, use_threads=False):
            yield pa.RecordBatch.from_arrays(
                [column(batch, field, values) for field in arrow_schema], schema=arrow_schema
            )

    return read
