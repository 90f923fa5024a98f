"""Landing files at one moment: what is known of them without Spark, and how their rows are read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import StatefulIncrement
from odi_assets.connections.location import Location
from odi_assets.errors import NothingThereError, SourceError
from odi_assets.sources.cursor.parquet_bounds import column_bounds, files_bound
from odi_assets.sources.errors import refused, unreadable, unreadable_file, unreadable_place
from odi_assets.sources.files.deliveries import file_error
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.files.loaded.late import known_files, late_in_files
from odi_assets.sources.files.numbered import with_numbers
from odi_assets.sources.files.options import reader_options
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.marks import UNRESOLVED, CursorMark, Unresolved
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.spark.ddl import struct_of
from odi_assets.spark.lazy import F, java_errors, spark_errors
from odi_assets.spark.raised import error_text, stop_message
from odi_assets.tables.reader import file_uri_key, place_key
from odi_assets.util.words import counted

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from odi_assets.sources.cursor.bounds import Bound
    from odi_assets.sources.cursor.late import Late
    from odi_assets.sources.cursor.window import Window

_OF_OPTIONS = ("DATETIME_PATTERN", "INVALID_PARAMETER_VALUE.CHARSET", "denyList")
_PARSER = "TextParsingException"


@dataclass(frozen=True, kw_only=True)
class FilesSnapshot(SourceSnapshot):
    """Files of a landing folder.

    Attributes:
        listed: all files of the source.
        chosen: the files that rows are read from.
        one_shape: files with different columns are refused; else they are united by the names of the columns.
        parted_by: the column by which the node makes partitions again; empty if it makes none again.
        note: what the listing passed over, in words.
        looked_at: the shapes of files that were looked at before.
        findings: what files are by the standard of their format, as far as they were looked at.
        footers: the columns of Parquet files, as far as they were looked at.
    """

    base: Location
    listed: tuple[SourceFile, ...]
    chosen: tuple[SourceFile, ...]
    schema_ddl: str | None
    options: Mapping[str, str] = field(repr=False)
    rescued: str | None
    strict: bool
    one_shape: bool
    parted_by: str
    note: str = ""
    looked_at: dict[tuple[str, ...], Mapping[str, list[str]]] = field(default_factory=dict, repr=False, compare=False)
    findings: dict[str, Mapping[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    footers: dict[str, pq.ParquetSchema] = field(default_factory=dict, repr=False, compare=False)
    _united_in: dict[Any, DataFrame] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def position(self) -> Position:
        """How many files there are, and a digest of their paths, sizes and times of change."""
        digest = hashlib.sha256()
        for file in sorted(self.listed):
            digest.update(f"{file.path}\0{file.size}\0{file.mtime_ns}\0{file.changed_ns}\n".encode())
        return {"files": len(self.listed), "digest": digest.hexdigest()[:32]}

    @property
    def summary(self) -> str:
        return "; ".join(filter(None, (f"whole: {counted(len(self.chosen), 'file')}", self.note)))

    @property
    def fingerprint(self) -> tuple[str, ...]:
        return tuple(
            f"{file.path}\0{file.mtime_ns}\0{file.size}\0{file.etag}\0{file.changed_ns}" for file in self.chosen
        )

    @property
    def schema(self) -> StructType | None:
        """The columns of ``schema_ddl``; None if Spark infers them."""
        return None if self.schema_ddl is None else struct_of(self.schema_ddl)

    @property
    def file_count(self) -> int:
        return len(self.chosen)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.chosen)

    @property
    def newest(self) -> tuple[str, float] | None:
        file = max(self.listed, default=None)
        return None if file is None else (file.path, file.mtime_ns / 1e9)

    @property
    def is_empty(self) -> bool:
        return not self.chosen

    @property
    def kept_aside(self) -> str | None:
        return self.rescued

    @property
    def guesses_types(self) -> bool:
        return self.schema_ddl is None and self.format != FileFormat.PARQUET

    @property
    def has_header(self) -> bool:
        """Whether CSV files begin with the names of their columns."""
        return self.is_true("header")

    @property
    def merges(self) -> bool:
        """Whether the project file asks Spark to unite Parquet files of different columns."""
        return self.is_true("mergeschema")

    @property
    def corrupt_column(self) -> str | None:
        """The column of ``schema_ddl`` that keeps lines that Spark cannot parse; None if there is none."""
        by_name = {name.lower(): value for name, value in self.options.items()}
        if self.rescued or self.schema_ddl is None or by_name.get("mode", "").lower() != "permissive":
            return None
        return by_name.get("columnnameofcorruptrecord", "_corrupt_record")

    def is_true(self, option: str) -> bool:
        """Whether a reader option, in small letters, is set to true."""
        return any(name.lower() == option and value.lower() == "true" for name, value in self.options.items())

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        if not self.chosen:
            if self.schema_ddl:
                return spark.createDataFrame([], self.schema_ddl)
            raise NothingThereError(
                f"{self.label}: it has no file with content, so there is none to take a schema from",
                fix="land a file with content, or name the columns in `read.schema`",
                path=self.base.uri,
            )
        paths = [file.path for file in self.chosen]
        if self.schema_ddl and not self.strict and not self.rescued and not any("=" in path for path in paths):
            rows = self.load(spark, paths, self.schema_ddl)
        else:
            rows = self._united(spark, paths)
        return rows if only is None else rows.where(only.condition(rows))

    def _united(self, spark: SparkSession, paths: Sequence[str]) -> DataFrame:
        """The rows, described once for each session: a plan needs them several times, and so does its run."""
        from odi_assets.sources.files.united import united_rows

        try:
            if spark not in self._united_in:
                self._united_in[spark] = united_rows(spark, self, paths)
            return self._united_in[spark]
        except (spark_errors.PySparkException, java_errors.Py4JJavaError) as error:
            text = error_text(error)
            raise unreadable_file(self.label, text) or refused(self.label, self._named(paths), text) from error

    @staticmethod
    def _named(paths: Sequence[str]) -> str:
        if not paths:
            return "the files"
        return paths[0] if len(paths) == 1 else f"one of {len(paths):,} files, {paths[0]} among them,"

    def noted(self, before: CursorMark | None) -> str | None:
        return known_files(self, None if before is None else before.held_then)

    def moved_partitions(self, spark: SparkSession, late: Late) -> list[DataFrame]:
        return late.partitions_in(self.rows(spark), self.parted_by) if self.parted_by and late.moved else []

    def late(self, mark: CursorMark, window: Window, start: Any, spark: SparkSession | None = None) -> Late:
        return late_in_files(self, mark, window, start, spark)

    def numbered(self, rows: DataFrame, column: str) -> DataFrame:
        """Each of the chosen files is a delivery, in the order in which they are taken."""
        if len(self.chosen) < 2:
            return rows
        return with_numbers(rows, self, column)

    def place_of_rows(self) -> Column:
        return F.input_file_name()

    def shown_place(self, place: str) -> str:
        return file_uri_key(place).removeprefix(place_key(self.base)).lstrip("/")

    def load(
        self, spark: SparkSession, paths: Sequence[str], schema: str | StructType | None = None, **options: str
    ) -> DataFrame:
        """The rows of files as Spark reads them together.

        Args:
            schema: their columns; None lets Spark look for them, in one of the files unless they are JSON.
            options: reader options that override the options of the project file.

        Raises:
            SourceError: a file went away, or cannot be read under its name or with its columns.
        """
        base = self.base.for_spark
        shown = reader_options(self, base, paths, options, infers=schema is None)
        reader = spark.read.format(self.format).options(**shown)
        try:
            reader = reader if schema is None else reader.schema(schema)
            return reader.load([base.child(path).spark_path for path in paths])
        except spark_errors.AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise SourceError(
                f"{self.label}: a file went away since the run was planned: {error}",
                fix="run the node again: nothing was written, and it takes the files that are there then",
                path=self.base.uri,
            ) from error
        except java_errors.Py4JJavaError as error:
            # Spark looks for the columns of one of the files, and does not say which one.
            if _PARSER not in (text := error_text(error)):
                raise
            others = f", or another one of {counted(len(paths), 'file')}," if len(paths) > 1 else ""
            raise unreadable(self.label, f"{paths[0]}{others}", text) from error

    def lines(self, spark: SparkSession, paths: Sequence[str]) -> DataFrame:
        """The lines of text files, as Spark takes them apart, in a column ``value``."""
        return replace(self, format="text", options={}).load(spark, paths)

    def read_error(self, text: str) -> SourceError | None:
        stopped = stop_message(text)
        if stopped:
            return SourceError(f"{self.label}: {stopped[0]}", fix=stopped[1], path=self.base.uri)
        if (uri := unreadable_place(text)) is not None:
            return file_error(self, uri, text)
        is_refused = self.options and any(condition in text for condition in _OF_OPTIONS)
        return refused(self.label, self._named([file.path for file in self.chosen]), text) if is_refused else None

    def bound_by_statistics(self, increment: StatefulIncrement) -> tuple[str | None, Bound | Unresolved]:
        if self.format != FileFormat.PARQUET or self.schema_ddl:
            return None, UNRESOLVED
        bounds = column_bounds(self.base, [file.path for file in self.chosen], increment.column)
        if bounds is None or bounds.type_name is None:
            return None, UNRESOLVED
        bound = files_bound(bounds, increment)
        # Without the bound, the type does not help: dates written as text have another one.
        return (None, bound) if isinstance(bound, Unresolved) else (bounds.type_name, bound)
