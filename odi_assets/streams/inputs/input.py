"""An input of a stream node: as a streaming DataFrame, and the rows of one batch of it as a plain one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import StreamInput
from odi_assets.errors import ConfigError, TransformError
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
        gone: files that were read and are gone, or whose batches are not known any more, in words.
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
    def schema(self) -> StructType:
        """Its columns."""

    @abstractmethod
    def rows_by_file(
        self, spark: SparkSession, log: ProgressLog, ends: Mapping[int, Mapping[str, Any] | None], file_as: str
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
