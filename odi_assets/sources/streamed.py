"""Sources that a query reads as streams: as streaming DataFrames, and the rows of one batch as plain ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from odi_assets.config.models import StreamInput
from odi_assets.errors import ConfigError, SourceError, TransformError
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import Identity
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import Source
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Offset = Mapping[str, Any]
"""How far a query has read an input, as Spark's offset log has it."""


class ReadFile(NamedTuple):
    """A file that a batch has read.

    Attributes:
        number: the ``logOffset`` that it came with.
        changed_ms: when it had changed last, milliseconds since 1970, UTC.
    """

    number: int
    changed_ms: int


class ReadLog(Protocol):
    """What a query's checkpoint says of the files that its batches have read."""

    def files(self, name: str, after: int, upto: int) -> dict[str, int]:
        """The files of the input ``name`` with a number ``after < number <= upto``, by their URIs, in order: when each
        had changed last, in milliseconds since 1970, UTC."""

    def read_files(self, name: str, upto: int = -1) -> dict[str, ReadFile]:
        """Every file of the input ``name``, by its URI. The log has to have all up to the number ``upto``."""


@dataclass(frozen=True)
class StreamMark:
    """How far a stream's checkpoint has read one of its inputs: the offset of the last batch in the node's table."""

    offset: Offset
    measures: Identity | None = field(default=None, compare=False)

    @property
    def value(self) -> Any:
        return self.offset


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
        text = f"{counted(self.files, 'file')}{here} that batches have read{there}{under}"
        return f"its input `{self.input}` has {text}, {self.example} among them"


@dataclass(frozen=True)
class RowsByFile:
    """Rows of an input as a plain DataFrame, and which batch read each file.

    Attributes:
        rows: None if there are none.
        batches: by ``file_uri_key``, the first and the last batch that may have read the file; a file that is not there
            was not read.
        gone: files that were read and are gone, or whose batches are not known any more, in words.
        root: what comes before the names of files that people know.
    """

    rows: DataFrame | None
    batches: Mapping[str, tuple[int, int]]
    gone: str | None
    root: str


@dataclass(frozen=True, kw_only=True)
class StreamSnapshot(SourceSnapshot):
    """An input of a stream as it was when the run was planned.

    Attributes:
        at: where it stood.
        files: how many files it has that no batch has read.
    """

    stream: StreamedSource
    at: Position
    files: int

    @property
    def position(self) -> Position:
        return self.at

    @property
    def summary(self) -> str:
        return self.label

    @property
    def file_count(self) -> int:
        return self.files

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        return self.stream.source.snapshot().rows(spark, only)

    def read_error(self, text: str) -> SourceError | None:
        return self.stream.read_error(text)


@dataclass(frozen=True, kw_only=True)
class StreamRead(PlannedRead):
    """What the batches of one run will read of an input; they fix its bounds, batch by batch.

    Attributes:
        elsewhere: what of it batches have read where its files were before.
        is_strange: nothing that batches have read under its name is in it, though they have read something.
        changed: files that changed after the query had listed them for a batch, each with the time of its last change,
            in milliseconds since 1970, UTC.
    """

    snapshot: StreamSnapshot
    elsewhere: ReadBefore | None = None
    is_strange: bool = False
    changed: Mapping[str, int] = field(default_factory=dict)

    def whole(self) -> PlannedRead:
        return self

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        del wanted
        return self


@dataclass(frozen=True, kw_only=True)
class StreamedSource(ABC):
    """A source as an input of a query, which knows the input by the source's name. It can be pickled: with Spark
    Connect, batches are committed in another process.

    Attributes:
        settings: how the project file wants it read.
    """

    source: Source
    settings: StreamInput

    known_by_id: ClassVar[bool] = False
    """What batches have read of it is known by an id in its offsets, wherever it is and whatever its name."""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def label(self) -> str:
        return self.source.label

    @abstractmethod
    def plan(self, log: ReadLog, start: Offset | None) -> StreamRead:
        """What batches would read now after an offset; from its beginning if that is None. Needs no Spark.

        Raises:
            SourceError, TableError: it cannot be examined, or cannot be read on.
        """

    def _planned(
        self, format_: str, at: Position, start: Offset | None, after: Offset, files: int, summary: str
    ) -> StreamRead:
        """The read from ``start`` to ``after``, of which ``files`` files are new."""
        before = None if start is None else StreamMark(start)
        return StreamRead(
            snapshot=StreamSnapshot(
                name=self.name,
                label=self.label,
                format=format_,
                identity=Identity("stream", self.label, "offset", place=self.source.uri),
                stream=self,
                at=at,
                files=files,
            ),
            summary=summary,
            before=before,
            after=StreamMark(after) if files else before,
            follows=True,
        )

    @abstractmethod
    def read_before(self, log: ReadLog, name: str, end: Offset) -> ReadBefore | None:
        """What the input would read again of what batches have read as the input ``name``, up to the offset ``end``.

        Raises:
            SourceError, TableError: it cannot be examined.
        """

    def losses(self, log: ReadLog) -> Iterable[Loss]:
        """Rows that batches have read, and that the source no longer gives, as far as it can tell."""
        del log
        return ()

    def unread_in(self, start: Offset) -> set[int]:
        """Versions of a table that together have all files that no batch up to an offset has read; none if the stream
        cannot go on after the offset: it is read from its beginning then.

        Raises:
            TableError: the store cannot be looked at.
        """
        del start
        return set()

    def log_needed_from(self, end: Offset) -> int | None:
        """Of a table, the oldest version that its log has to hold for the batches after an offset."""
        del end
        return None

    def upstream_version(self, end: Offset) -> int | None:
        """Of the table of an upstream node, the version up to which a batch that ends at an offset has read it."""
        del end
        return None

    @abstractmethod
    def size(self, log: ReadLog, start: Offset | None, end: Offset) -> int | None:
        """Bytes of the files between two offsets; None if to find out would take long."""

    def require_readable(
        self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset
    ) -> Mapping[str, int]:
        """Make sure that Spark reads each row between two offsets once, and as it is.

        Returns:
            Files that changed after the query had listed them, each with the time of its last change, as
            ``StreamRead.changed`` has them: Spark reads them as they are now.

        Raises:
            SourceError: it does not.
        """
        del spark, log, start, end
        return {}

    @abstractmethod
    def read_error(self, text: str) -> SourceError | None:
        """What an error of Spark means that came up as its rows were read; None if it is not about it."""

    @abstractmethod
    def raw_stream(self, spark: SparkSession) -> DataFrame:
        """All of its rows, as a stream."""

    @abstractmethod
    def raw_batch(self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset) -> DataFrame | None:
        """The rows between two offsets; None if there are none."""

    @abstractmethod
    def schema(self) -> StructType:
        """Its columns."""

    @abstractmethod
    def rows_by_file(
        self, spark: SparkSession, log: ReadLog, ends: Mapping[int, Offset | None], file_as: str
    ) -> RowsByFile:
        """All rows that batches have read, as far as they are still there, and rows that came since.

        Args:
            ends: by batch, as far as that is known, the offset up to which the query had read then.
            file_as: name of the column with a row's file.
        """

    def stream(self, spark: SparkSession) -> DataFrame:
        """Its rows as a stream: the rows that meet ``where``, with its watermark.

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

    def batch(self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset | None) -> DataFrame | None:
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


class StreamableSource(Source):
    """A source that a query can read as a stream."""

    @abstractmethod
    def streamed(self, settings: StreamInput) -> StreamedSource:
        """The source as an input of a query.

        Args:
            settings: how the project file wants it read.
        """


def streamed(source: Source, settings: StreamInput) -> StreamedSource:
    """A source of a stream node as an input of its query.

    Raises:
        ConfigError: such a source cannot be read as a stream.
    """
    if not isinstance(source, StreamableSource):
        raise ConfigError(f"{source.label} cannot be read as a stream", fix="load it with a node, and stream its table")
    return source.streamed(settings)
