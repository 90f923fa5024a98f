"""A Delta table as an input of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.connections.location import Location
from odi_assets.delta.errors import cannot_look
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import SourceError, TableError
from odi_assets.streams.inputs import table_source
from odi_assets.streams.inputs.input import News, ReadBefore, RowsByFile, StreamedInput
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.tables.engine import engine_of
from odi_assets.tables.reader import by_file_uri, file_uri_key
from odi_assets.tables.schema import spark_schema
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class StreamedTable(StreamedInput):
    """A Delta table: the rows that its commits add.

    Attributes:
        node: the upstream node that writes it, as ``pipeline.node``; None for a table outside the project.
    """

    location: Location
    node: str | None = None

    def news(self, log: ProgressLog, start: Mapping[str, Any] | None) -> News:
        del log
        handle = TableHandle.open(self.location)
        if not handle.exists and self.node is not None and start is None:
            return News(0, {}, f"nothing: {self.node} has not been run")
        if not handle.exists:
            raise SourceError(
                f"{self.label}: there is no Delta table at {self.location.uri}",
                fix="run the node that writes it first",
                path=self.location.uri,
            )
        skip = self.settings.on_change == "ignore"
        begin = start or table_source.first_offset(handle)
        end, files = table_source.next_files(self.location, begin, self.label, skip=skip)
        table_source.require_there(handle, files, self.label)
        version = f"version {handle.version}"
        text = f"{version}, {counted(len(files), 'new file')}" if files else f"{version}, nothing new"
        return News(len(files), end, text)

    def unread_in(self, start: Mapping[str, Any]) -> set[int]:
        """Versions of the table that together have all files that no batch up to an offset has read; none if the
        stream cannot go on after the offset: it is read from its beginning then.

        Raises:
            TableError: the store cannot be looked at.
        """
        skip = self.settings.on_change == "ignore"
        try:
            return table_source.unread_versions(self.location, start, self.label, skip=skip)
        except (SourceError, TableError) as error:
            if cannot_look(error):
                raise
            return set()

    def read_before(self, log: ProgressLog, name: str, end: Mapping[str, Any]) -> ReadBefore | None:
        del log
        handle = TableHandle.open(self.location)
        is_same = handle.exists and end.get("table_id") == handle.table_id
        return ReadBefore(self.name, name, "", "", 0, self.label) if is_same else None

    def size(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> int | None:
        del log
        skip = self.settings.on_change == "ignore"
        return sum(file.size for file in table_source.files_between(self.location, start, end, self.label, skip))

    def raw_stream(self, spark: SparkSession) -> DataFrame:
        return table_source.read_stream(
            spark,
            self.name,
            self.location,
            self.label,
            most=self.settings.max_files_per_batch,
            skip=self.settings.on_change == "ignore",
        )

    def raw_batch(
        self, spark: SparkSession, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]
    ) -> DataFrame | None:
        del log
        skip = self.settings.on_change == "ignore"
        files = table_source.files_between(self.location, start, end, self.label, skip)
        return engine_of(self.location).read_files(spark, TableHandle.open(self.location), files) if files else None

    def schema(self) -> StructType:
        return spark_schema(TableHandle.open(self.location).schema_json)

    def rows_by_file(
        self, spark: SparkSession, log: ProgressLog, ends: Mapping[int, Mapping[str, Any] | None], file_as: str
    ) -> RowsByFile:
        del log
        handle = TableHandle.open(self.location)
        skip = self.settings.on_change == "ignore"
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
                read = table_source.files_between(self.location, start, end, self.label, skip)
            except (TableError, SourceError) as error:
                if cannot_look(error):
                    raise
                gone = f"what batch {batch} had read: {error.message}"
                read = []
            files += read
            batches |= dict.fromkeys(by_file_uri(self.location, read), (before + 1, batch))
            before, start = batch, end
        lost = {file.path for file in lost_files(self.location, files)}
        if lost:
            gone = f"{counted(len(lost), 'file')} that it had read, and that left the table and were deleted"
        since = table_source.next_files(
            self.location, start or table_source.first_offset(handle), self.label, skip=True
        )
        chosen = [*(file for file in files if file.path not in lost), *since[1]]
        if gone and not batches:
            # It is not known which batch read which file.
            chosen = list(handle.live_files)
            batches = dict.fromkeys(by_file_uri(self.location, chosen), (0, max(ends, default=0)))
        rows = engine_of(handle).read_files(spark, handle, chosen, file_as=file_as) if chosen else None
        return RowsByFile(rows, batches, gone, f"{file_uri_key(self.location.uri).rstrip('/')}/")
