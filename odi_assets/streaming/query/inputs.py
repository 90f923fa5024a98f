"""The inputs of a stream node: each as a streaming DataFrame, and the rows of one batch of it as a plain one."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import fsspec

from odi_assets.config.models import StreamInput
from odi_assets.connections.location import Location
from odi_assets.delta.errors import cannot_look
from odi_assets.delta.maintenance.restore import missing_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import ConfigError, SourceError, TableError, TransformError
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets.sources.files.source import LandingFiles
from odi_assets.sources.source import Source
from odi_assets.streaming.query import table_source
from odi_assets.streaming.query.progress_log import ProgressLog
from odi_assets.tables.reader import by_file_uri, file_uri_key, read_files
from odi_assets.tables.schema import spark_schema
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB = re.compile(r"[\\*?\[\]{}]")
_FOR_EVER = "36500d"
_FEW_FILES = 16
"""So many files of a batch are asked for their sizes."""


@dataclass(frozen=True)
class News:
    """What an input has that no batch has read.

    Attributes:
        files: how many files.
        mark: where the input stands now.
        summary: in words.
        elsewhere: what of it batches have read where its files were before.
        is_strange: nothing that batches have read under its name is in it, though they have read something.
    """

    files: int
    mark: Mapping[str, Any]
    summary: str
    elsewhere: ReadBefore | None = None
    is_strange: bool = False


@dataclass(frozen=True)
class ReadBefore:
    """What an input has to be read, and batches have read already: under another name, or in another folder.

    Attributes:
        input: its name now.
        name: its name in the checkpoint.
        folder, now: of files, the folder in which they were read, and the one that they are in now, each as
            ``file_uri_key`` has it; the same one if only the name changed. Empty of tables.
        files: how many, and ``example`` is one of them. Of tables 0, and the table's name.
    """

    input: str
    name: str
    folder: str
    now: str
    files: int
    example: str

    def __str__(self) -> str:
        under = "" if self.name == self.input else f" under the name `{self.name}`"
        if not self.files:
            return f"its input `{self.input}` is {self.example}, which batches have read{under}"
        here, there = ("", "") if self.folder == self.now else (f" in {self.now}", f" in {self.folder}")
        found = f"{counted(self.files, 'file')}{here} that batches have read{there}{under}"
        return f"its input `{self.input}` has {found}, {self.example} among them"


@dataclass(frozen=True)
class RowsByFile:
    """Rows of an input as a plain DataFrame, and which batch read each file.

    Attributes:
        rows: None if there are none.
        batches: by ``file_uri_key``, the first and the last batch that may have read the file; a file that is not there
            was not read.
        gone: files that were read and are gone, or cannot be told apart any more, in words.
        root: what comes before the names of files that people know.
    """

    rows: DataFrame | None
    batches: Mapping[str, tuple[int, int]]
    gone: str | None
    root: str


@dataclass(frozen=True, kw_only=True)
class StreamedInput(ABC):
    """One input. It can be pickled: with Spark Connect, batches are committed in another process.

    Attributes:
        name: the view that SQL sees, and the input's name in the checkpoint.
        label: the source in words.
        settings: how the project file wants it read.
    """

    name: str
    label: str
    settings: StreamInput

    @abstractmethod
    def news(self, log: ProgressLog, start: Mapping[str, Any] | None) -> News:
        """What a batch would read now after an offset; from its beginning if that is None. Needs no Spark.

        Raises:
            SourceError, TableError: it cannot be examined, or cannot be read on.
        """

    @abstractmethod
    def read_before(self, log: ProgressLog, name: str, end: Mapping[str, Any]) -> ReadBefore | None:
        """What the input would read again of what batches have read as the input ``name``, up to the offset ``end``.

        Raises:
            SourceError, TableError: it cannot be examined.
        """

    @abstractmethod
    def size(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> int | None:
        """Bytes of the files between two offsets; None if to find out would take long."""

    def require_read_once(  # noqa: B027  most inputs have nothing that Spark reads twice
        self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]
    ) -> None:
        """Make sure that Spark reads each row between two offsets once.

        Raises:
            SourceError: it reads some twice.
        """

    @abstractmethod
    def raw_stream(self, spark: SparkSession) -> DataFrame:
        """All of its rows, as a stream."""

    @abstractmethod
    def raw_batch(
        self, spark: SparkSession, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]
    ) -> DataFrame | None:
        """The rows between two offsets, as Spark's offset log has them; None if there are none."""

    @abstractmethod
    def schema(self, spark: SparkSession) -> StructType:
        """Its columns."""

    @abstractmethod
    def rows_by_file(
        self, spark: SparkSession, log: ProgressLog, ends: Mapping[int, Mapping[str, Any] | None], file_as: str
    ) -> RowsByFile:
        """All rows that batches have read, as far as they are still there, and those that came since.

        Args:
            ends: by batch, as far as that is known, the offset up to which the query had read then.
            file_as: name of the column that tells a row's file.
        """

    def stream(self, spark: SparkSession) -> DataFrame:
        """Its rows as a stream: those that meet ``where``, with its watermark.

        Raises:
            SourceError, TableError: it cannot be read.
            TransformError: Spark cannot evaluate ``where`` or the watermark for its columns.
        """
        rows, watermark = self._selected(self.raw_stream(spark)), self.settings.watermark
        if watermark is None:
            return rows
        kind = {field.name.lower(): field.dataType.typeName() for field in rows.schema}.get(watermark.column.lower())
        if kind not in ("timestamp", "timestamp_ntz"):
            what = "has no such column" if kind is None else f"has it as {kind}"
            raise ConfigError(
                f"the watermark of `{self.name}` is on `{watermark.column}`, and {self.label} {what}",
                fix="name a TIMESTAMP column in `stream.inputs`; for files, give it that type in `schema`",
                column=watermark.column,
            )
        return rows.withWatermark(watermark.column, watermark.spark_delay)

    def batch(
        self, spark: SparkSession, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None
    ) -> DataFrame | None:
        """The rows of a batch that meet ``where``; None if the batch has none of this input."""
        if end is None or start == end:
            return None
        rows = self.raw_batch(spark, log, start, end)
        return None if rows is None else self._selected(rows)

    def _selected(self, rows: DataFrame) -> DataFrame:
        if self.settings.where is None:
            return rows
        try:
            return rows.where(self.settings.where)
        except Exception as error:
            raise TransformError(f"`where` of the input `{self.name}` is not right: {error}") from error


@dataclass(frozen=True, kw_only=True)
class StreamedFiles(StreamedInput):
    """Landing files, each read once, in the order of their times of change.

    Attributes:
        base: where the connection is.
        path: a path or glob below it.
        format, schema_ddl, options: as the project file names them.
    """

    base: Location
    path: str
    format: str
    schema_ddl: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def news(self, log: ProgressLog, start: Mapping[str, Any] | None) -> News:
        known = set() if start is None else {file_uri_key(uri) for uri in log.all_files(self.name)}
        listed = self._listed()
        new = [uri for uri in listed if uri not in known]
        if self.settings.max_files_per_batch != 1:
            self._require_plain_names(new, "rename it; or give each file its own batch: `max_files_per_batch: 1`")
        newest = max(listed.values()).path if listed else None
        text = counted(len(new), "new file") if new else "no new files"
        return News(
            len(new),
            {"files": len(listed), "newest": newest},
            text,
            self._read_elsewhere(listed, new, known, self.name),
            is_strange=bool(known and listed) and len(new) == len(listed),
        )

    def missing(self, log: ProgressLog) -> list[str]:
        """Files that batches have read and that are gone."""
        listed = self._listed()
        return sorted(uri for uri in log.all_files(self.name) if file_uri_key(uri) not in listed)

    def read_before(self, log: ProgressLog, name: str, end: Mapping[str, Any]) -> ReadBefore | None:
        del end
        known = {file_uri_key(uri) for uri in log.all_files(name)}
        listed = self._listed()
        same = [uri for uri in listed if uri in known]
        if same:
            folder = self._folder(listed)
            return ReadBefore(self.name, name, folder, folder, len(same), same[0].removeprefix(f"{folder}/"))
        return self._read_elsewhere(listed, list(listed), known, name)

    def _listed(self) -> dict[str, SourceFile]:
        """Its files, by ``file_uri_key``."""
        return {file_uri_key(_uri(self.base.child(file.path))): file for file in list_files(self.base, self.path)}

    def _folder(self, listed: Mapping[str, SourceFile]) -> str:
        """The folder below which all of its files are."""
        fixed = list(takewhile(lambda part: not _GLOB.search(part), self.path.strip("/").split("/")))
        found = "/".join([file_uri_key(_uri(self.base)).rstrip("/"), *fixed])
        return found.rpartition("/")[0] if found in listed else found

    def _read_elsewhere(
        self, listed: Mapping[str, SourceFile], new: Sequence[str], known: Collection[str], name: str
    ) -> ReadBefore | None:
        """What of the ``new`` files was read in another folder: files of the same names below it, and of the same
        sizes, as far as they are still there."""
        folder = self._folder(listed)
        elsewhere = sorted(uri for uri in known if not uri.startswith(f"{folder}/"))
        if not elsewhere or not new:
            return None
        names = {uri.removeprefix(f"{folder}/"): uri for uri in new}
        found: dict[str, list[str]] = {}
        for uri in elsewhere:
            parts = uri.split("/")
            ends = ("/".join(parts[number:]) for number in range(1, len(parts)))
            end = next((one for one in ends if one in names), None)
            if end is not None:
                found.setdefault(uri.removesuffix(f"/{end}"), []).append(end)
        for former, tails in found.items():
            looked_at = tails[:: max(1, len(tails) // _FEW_FILES)]
            if any(self._may_be(f"{former}/{tail}", listed[names[tail]]) for tail in looked_at):
                return ReadBefore(self.name, name, former, folder, len(tails), tails[0])
        return None

    def _may_be(self, former: str, now: SourceFile) -> bool:
        """Whether the file that is ``now`` may be the one that was read at ``former``: that is gone, or as large."""
        filesystem, path = replace(self.base, uri=former).in_store()
        try:
            return int(filesystem.size(path) or 0) == now.size
        except FileNotFoundError:
            return True

    def size(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> int | None:
        files = self._files(log, start, end)
        if len(files) > _FEW_FILES:
            return None
        found = 0
        for uri in files:
            filesystem, path = fsspec.core.url_to_fs(unquote(uri), **self.base.fsspec_options)
            try:
                found += int(filesystem.size(path) or 0)
            except FileNotFoundError:
                return None
        return found

    def raw_stream(self, spark: SparkSession) -> DataFrame:
        # By default, Spark passes over files that changed a week before the newest one, and says nothing.
        how = {"maxFileAge": _FOR_EVER, **self._reading(), **self._recursion()}
        if self.settings.max_files_per_batch is not None:
            how["maxFilesPerTrigger"] = str(self.settings.max_files_per_batch)
        reader = spark.readStream.name(self.name).format(self.format).schema(self.schema_ddl).options(**how)
        return reader.load(self._spark_path())

    def raw_batch(
        self, spark: SparkSession, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]
    ) -> DataFrame | None:
        files = self._files(log, start, end)
        if not files:
            return None
        reader = (
            spark.read.format(self.format).schema(self.schema_ddl).options(**self._reading(), **self._partitions(files))
        )
        # The log has URIs; Spark takes paths, and globs in them.
        return reader.load([replace(self.base, uri=unquote(uri)).spark_path for uri in files])

    def _partitions(self, files: Sequence[str]) -> dict[str, str]:
        """What makes columns of folders named ``column=value``, as in the stream: Spark looks for them below a folder,
        not in a glob."""
        folder = f"{file_uri_key(_uri(self.base.child(self.path)))}/"
        is_below = "**" not in self.path and all(file_uri_key(uri).startswith(folder) for uri in files)
        return {"basePath": self._spark_path()} if is_below else {}

    def schema(self, spark: SparkSession) -> StructType:
        return spark.createDataFrame([], self.schema_ddl).schema

    def rows_by_file(
        self, spark: SparkSession, log: ProgressLog, ends: Mapping[int, Mapping[str, Any] | None], file_as: str
    ) -> RowsByFile:
        from pyspark.sql import functions as F

        numbers = {file_uri_key(uri): number for uri, number in log.numbered_files(self.name).items()}
        offsets = {batch: -1 if end is None else int(end["logOffset"]) for batch, end in ends.items()}
        root = f"{file_uri_key(_uri(self.base)).rstrip('/')}/"
        listed = self._listed()
        gone = sorted(uri.removeprefix(root) for uri in numbers if uri not in listed)
        text = f"{counted(len(gone), 'file')} that it had read, among them {gone[0]}" if gone else None
        rows = None
        if listed:
            # A line that does not fit has stopped the stream; here it must not hide the others.
            how = {**self._reading(), "mode": self.options.get("mode", "PERMISSIVE"), **self._recursion()}
            reader = spark.read.format(self.format).schema(self.schema_ddl).options(**how)
            rows = reader.load(self._spark_path()).select("*", F.col("_metadata.file_path").alias(file_as))
        return RowsByFile(rows, batches_of_files(numbers, offsets), text, root)

    def _reading(self) -> dict[str, str]:
        # A line that does not fit stops the run; Spark would make NULLs of it, and say nothing.
        strict = {"mode": "FAILFAST"} if self.format in ("csv", "json") else {}
        given = {name.lower() for name in self.options}
        return {
            **{name: value for name, value in strict.items() if name not in given},
            **self.base.reader_options,
            **self.options,
        }

    def require_read_once(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> None:
        # Files may have come since the run was planned.
        self._require_plain_names(
            self._files(log, start, end), "rename it, and begin the stream anew: odi run … --full-refresh"
        )

    def _require_plain_names(self, uris: Sequence[str], fix: str) -> None:
        """A batch of several files, of which one has characters of globs in its path, gives rows of the others twice:
        Spark takes the paths of the batch for globs, and lists what is beside them (4.2, ``FileStreamSource``)."""
        odd = next((path for path in map(unquote, uris) if _GLOB.search(path)), None)
        if odd is not None and len(uris) > 1:
            raise SourceError(
                f"{self.label}: {odd} has a character of globs in its path: Spark would read rows of its batch twice",
                fix=fix,
                path=odd,
            )

    def _files(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> list[str]:
        """The files between two offsets, as URIs."""
        return log.files(self.name, -1 if start is None else int(start["logOffset"]), int(end["logOffset"]))

    def _recursion(self) -> dict[str, str]:
        _, stars, name = self.path.partition("**")
        if not stars:
            return {}
        name = name.strip("/")
        if "/" in name or "**" in name:
            raise ConfigError(
                f"`{self.path}` of the input `{self.name}` has folders after `**`, which a stream cannot follow",
                fix="write `**` before the name of the files alone, as in `orders/**/*.json`",
                path=self.path,
            )
        return {"recursiveFileLookup": "true", **({"pathGlobFilter": name} if name else {})}

    def _spark_path(self) -> str:
        return f"{self.base.spark_path}/{self.path.partition('**')[0].rstrip('/')}".rstrip("/")


def _uri(place: Location) -> str:
    return quote(place.uri, safe="/:@=")


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
        version = f"version {handle.version}"
        text = f"{version}, {counted(len(files), 'new file')}" if files else f"{version}, nothing new"
        return News(len(files), end, text)

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
        return read_files(spark, TableHandle.open(self.location), files) if files else None

    def schema(self, spark: SparkSession) -> StructType:
        del spark
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
        lost = set(missing_files(self.location, files))
        if lost:
            gone = f"{counted(len(lost), 'file')} that it had read, and that left the table and were deleted"
        since = table_source.next_files(
            self.location, start or table_source.first_offset(handle), self.label, skip=True
        )
        chosen = [*(file for file in files if file.path not in lost), *since[1]]
        if gone and not batches:
            # Nothing tells which batch read which file.
            chosen = list(handle.live_files)
            batches = dict.fromkeys(by_file_uri(self.location, chosen), (0, max(ends, default=0)))
        rows = read_files(spark, handle, chosen, file_as=file_as) if chosen else None
        return RowsByFile(rows, batches, gone, f"{file_uri_key(self.location.uri).rstrip('/')}/")


def batches_of_files(numbers: Mapping[str, int], ends: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """The first and the last batch that may have read each file; a file that no batch has read is left out.

    Args:
        numbers: by file, its number in the input's log.
        ends: by batch, as far as they are known, the number up to which it read; -1 if nothing was read so far.
    """
    ordered = sorted(ends)
    found: dict[int, tuple[int, int]] = {}
    place = 0
    for number in sorted(set(numbers.values())):
        while place < len(ordered) and ends[ordered[place]] < number:
            place += 1
        if place < len(ordered):
            found[number] = ordered[place - 1] + 1 if place else 0, ordered[place]
    return {path: found[number] for path, number in numbers.items() if number in found}


def streamed(source: Source, settings: StreamInput, node: str | None) -> StreamedInput:
    """A source of a stream node as an input of its query.

    Args:
        node: the upstream node whose table it is; None for a source outside the pipeline.

    Raises:
        ConfigError: such a source cannot be read as a stream.
    """
    if isinstance(source, DeltaTableSource):
        return StreamedTable(
            name=source.name, label=source.label, settings=settings, location=source.location, node=node
        )
    if isinstance(source, LandingFiles) and source.schema_ddl is not None:
        return StreamedFiles(
            name=source.name,
            label=source.label,
            settings=settings,
            base=source.base,
            path=source.path,
            format=source.format.value,
            schema_ddl=source.schema_ddl,
            options=source.options,
        )
    raise ConfigError(f"{source.label} cannot be read as a stream", fix="load it with a node, and stream its table")
