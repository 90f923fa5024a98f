"""A Delta table as a stream: the rows that its commits add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from odi_assets.delta.errors import cannot_look
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import SourceError, TableError
from odi_assets.sources.delta import appended
from odi_assets.sources.errors import gone_data_file
from odi_assets.sources.streamed import Offset, ReadBefore, ReadLog, RowsByFile, StreamedSource, StreamRead
from odi_assets.tables.engine import engine_of
from odi_assets.tables.reader import by_file_uri, file_uri_key
from odi_assets.tables.schema import spark_schema
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from odi_assets.connections.location import Location
    from odi_assets.sources.delta.source import DeltaTableSource


@dataclass(frozen=True, kw_only=True)
class StreamedTable(StreamedSource):
    source: DeltaTableSource

    known_by_id: ClassVar[bool] = True

    @property
    def _location(self) -> Location:
        return self.source.location

    @property
    def _skip(self) -> bool:
        return self.settings.on_change == "ignore"

    def plan(self, log: ReadLog, start: Offset | None) -> StreamRead:
        del log
        handle = TableHandle.open(self._location)
        if not handle.exists and self.source.is_upstream and start is None:
            return self._planned("delta", handle.position, None, {}, 0, f"nothing: {self.label} has not been run")
        handle = replace(self.source).snapshot().handle
        begin = start or appended.first_offset(handle)
        end, files = appended.next_files(self._location, begin, self.label, skip=self._skip)
        appended.require_there(handle, files, self.label)
        version = f"version {handle.version}"
        text = f"{version}, {counted(len(files), 'new file')}" if files else f"{version}, nothing new"
        return self._planned("delta", handle.position, start, end, len(files), text)

    def unread_in(self, start: Offset) -> set[int]:
        try:
            return appended.unread_versions(self._location, start, self.label, skip=self._skip)
        except (SourceError, TableError) as error:
            if cannot_look(error):
                raise
            return set()

    def upstream_version(self, end: Offset) -> int | None:
        return int(end["version"]) if self.source.is_upstream else None

    def read_before(self, log: ReadLog, name: str, end: Offset) -> ReadBefore | None:
        del log
        handle = TableHandle.open(self._location)
        is_same = handle.exists and end.get("table_id") == handle.table_id
        return ReadBefore(self.name, name, "", "", 0, self.label) if is_same else None

    def size(self, log: ReadLog, start: Offset | None, end: Offset) -> int | None:
        del log
        return sum(file.size for file in self._between(start, end))

    def raw_stream(self, spark: SparkSession) -> DataFrame:
        most = self.settings.max_files_per_batch
        return appended.read_stream(spark, self.name, self._location, self.label, most=most, skip=self._skip)

    def raw_batch(self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset) -> DataFrame | None:
        del log
        files = self._between(start, end)
        return engine_of(self._location).read_files(spark, TableHandle.open(self._location), files) if files else None

    def _between(self, start: Offset | None, end: Offset) -> list[LiveFile]:
        return appended.files_between(self._location, start, end, self.label, self._skip)

    def read_error(self, text: str) -> SourceError | None:
        return gone_data_file(self.label, text, self._location)

    def schema(self) -> StructType:
        return spark_schema(TableHandle.open(self._location).schema_json)

    def rows_by_file(
        self, spark: SparkSession, log: ReadLog, ends: Mapping[int, Offset | None], file_as: str
    ) -> RowsByFile:
        del log
        handle = TableHandle.open(self._location)
        files: list[LiveFile] = []
        batches: dict[str, tuple[int, int]] = {}
        gone = None
        before, start = -1, None
        for batch in sorted(ends):
            end = ends[batch]
            if end is None or end == start:
                before = batch
                continue
            try:
                read = self._between(start, end)
            except (TableError, SourceError) as error:
                if cannot_look(error):
                    raise
                gone = f"what batch {batch} had read: {error.message}"
                read = []
            files += read
            batches |= dict.fromkeys(by_file_uri(self._location, read), (before + 1, batch))
            before, start = batch, end
        lost = {file.path for file in lost_files(self._location, files)}
        if lost:
            gone = f"{counted(len(lost), 'file')} that it had read, and that left the table and were deleted"
        since = appended.next_files(self._location, start or appended.first_offset(handle), self.label, skip=True)
        chosen = [*(file for file in files if file.path not in lost), *since[1]]
        if gone and not batches:
            # It is not known which batch read which file.
            chosen = list(handle.live_files)
            batches = dict.fromkeys(by_file_uri(self._location, chosen), (0, max(ends, default=0)))
        rows = engine_of(handle).read_files(spark, handle, chosen, file_as=file_as) if chosen else None
        return RowsByFile(rows, batches, gone, f"{file_uri_key(self._location.uri).rstrip('/')}/")
