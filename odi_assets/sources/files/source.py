"""Landing files as a source: read whole, by a cursor column, or each file once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import FilesIncrement, OnChange, StatefulIncrement, StreamInput
from odi_assets.config.models.ddl import column_types
from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError, NothingThereError, SourceError
from odi_assets.sources.cursor.parquet_bounds import column_bounds, files_bound
from odi_assets.sources.errors import refused, unreadable, unreadable_file, unreadable_place
from odi_assets.sources.files.deliveries import file_error
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.arrivals import Arrivals, arrivals, other_folders, require_as_loaded
from odi_assets.sources.files.loaded.fingerprint import WHOLE_IS_KNOWN, with_whole_digests
from odi_assets.sources.files.loaded.late import known_files, late_in_files
from odi_assets.sources.files.numbered import with_numbers
from odi_assets.sources.files.options import reader_options
from odi_assets.sources.files.settings import FileFormat, FilesRead
from odi_assets.sources.files.stream import StreamedFiles
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import UNRESOLVED, CursorMark, FilesMark, Identity, Mark, Unresolved
from odi_assets.sources.reading import WHOLE_NUMBER, Settings, options_of, type_of
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, Whole
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import SourceContext
from odi_assets.sources.streamed import StreamableSource
from odi_assets.spark.ddl import struct_of
from odi_assets.spark.lazy import F, java_errors, spark_errors
from odi_assets.spark.raised import error_text, stop_message
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


def landing_files(read: FilesRead, context: SourceContext) -> LandingFiles:
    """The source that a ``read`` of files names."""
    own = {name: getattr(read, name) for name in ("path", "schema_ddl", "options", "rescued", "strict")}
    return LandingFiles(**context.common(read), **own, format=FileFormat(read.format), base=context.locate(""))


@dataclass(frozen=True, kw_only=True)
class LandingFiles(StreamableSource):
    """Files below a connection's folder.

    Attributes:
        base: the connection's root; paths of files, and the mark's, are relative to it.
        path: a file, a folder or a glob below ``base``.
        schema_ddl: the columns in Spark's DDL; None lets Spark infer them.
        options: reader options of the format.
        rescued: the column that keeps, as JSON, what does not fit the others.
        strict: files are judged by the standard of their format, and values by their types; else Spark decides.
    """

    format: FileFormat
    base: Location
    path: str
    schema_ddl: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    rescued: str | None = None
    strict: bool = True

    @property
    def identity(self) -> Identity:
        return self.identified("files", self.path, "file", self.base.true_path(self.path))

    def settings(self, columns: tuple[str, ...] | None) -> Settings:
        types = column_types(self.schema_ddl) if self.schema_ddl else {}
        found: dict[str, str | None] = {"read.format": self.format.value}
        kinds = {name: type_of(name, types) for name in columns or ()}
        for kind in kinds.values() or (None,):
            found |= options_of(self.options, kind)
        if not kinds or set(kinds.values()) != {WHOLE_NUMBER}:
            found["read.strict"] = str(self.strict).lower()
        return found | {f"read.schema: {name}": kind for name, kind in kinds.items() if kind is not None}

    @property
    def uri(self) -> str:
        return self.base.child(self.path).uri

    @property
    def watchable(self) -> bool:
        return isinstance(self.increment, FilesIncrement)

    @property
    def settles_within(self) -> timedelta:
        return self.increment.settle if isinstance(self.increment, FilesIncrement) else timedelta()

    def streamed(self, settings: StreamInput) -> StreamedFiles:
        return StreamedFiles(source=self, settings=settings)

    def snapshot(self) -> FilesSnapshot:
        found = self._as_it_is()
        if not found.listed:
            raise NothingThereError(
                f"{self.label}: no file matches {self.path} in {self.base.uri}",
                fix="check `read.path`, or land a file there first",
                path=self.path,
            )
        return found

    def _as_it_is(self) -> FilesSnapshot:
        listed = list_files(self.base, self.path)
        return self.snapshot_of(listed, [file for file in listed if file.size])

    def position(self) -> Position:
        return self._as_it_is().position

    def change_since(self, then: Position | None) -> str | None:
        now = self.position()
        if then == now:
            return None
        if then is None or "files" not in then:
            return "what it held was not recorded"
        counts = then["files"], now["files"]
        return f"{counts[0]:,} files then, {counts[1]:,} now" if counts[0] != counts[1] else "files changed"

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        if isinstance(self.increment, FilesIncrement):
            return FilesMark.of(value, self.label)
        return super().mark(value, remembered, typed=typed)

    def plan(self, mark: Mark | None) -> PlannedRead:
        if not isinstance(self.increment, FilesIncrement):
            if isinstance(mark, CursorMark) and not list_files(self.base, self.path):
                # Files that were loaded may be put away.
                return self._window(self.snapshot_of((), ()), mark)
            return super().plan(mark)
        listed, before = list_files(self.base, self.path), mark if isinstance(mark, FilesMark) else None
        found = self._arrivals(self.increment, listed, before)
        new = counted(len(found.new), "new file") if found.new else "no new files"
        text = new if listed else f"no file matches {self.path}"
        after = None if found.mark is None else replace(found.mark, measures=self.identity)
        read = NewFiles(
            snapshot=self.snapshot_of(listed, sorted((*found.known, *found.new))),
            summary=f"{text}; {found.notes}" if found.notes else text,
            before=before,
            after=after,
            follows=True,
            found=found,
            beside=self.target.location,
        )
        return read if found.new else NothingNew.of(read, read.summary, after)

    def whole(self) -> Read:
        if not isinstance(self.increment, FilesIncrement):
            return super().whole()
        snapshot = self._as_it_is()
        return Whole(snapshot=snapshot, summary=snapshot.summary)

    def knows(self, mark: Mark) -> bool:
        if not isinstance(self.increment, FilesIncrement) or not isinstance(mark, FilesMark):
            return False
        found = self._arrivals(self.increment, list_files(self.base, self.path), mark)
        return bool(found.known or found.moved)

    def loaded(self, mark: Mark) -> PlannedRead:
        if not isinstance(self.increment, FilesIncrement) or not isinstance(mark, FilesMark):
            return super().loaded(mark)
        listed = list_files(self.base, self.path)
        found = self._arrivals(self.increment, listed, mark)
        require_as_loaded(found, self.label, self.target.node)
        snapshot = self.snapshot_of(listed, found.known)
        return Whole(snapshot=snapshot, summary=snapshot.summary)

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        del since
        listed = list_files(self.base, self.path)
        if isinstance(self.increment, FilesIncrement) and isinstance(mark, FilesMark) and mark.parts is not None:
            try:
                found = self._compared(listed, mark, "ignore")
            except IncrementError as error:
                # A full refresh is a way on from there; what it loses nobody can tell.
                yield Loss(f"rows of files of {self.label} that are gone, if any: {error.message}")
                return
            if found.gone:
                count = counted(len(found.gone), "file")
                yield Loss(f"rows of {count} of {self.label} gone since", found.gone, for_good=True)
            if found.ignored:
                count = counted(len(found.ignored), "file")
                yield Loss(f"rows of {count} of {self.label} that were rewritten since, as they were", found.ignored)
            return
        before = int((then or {}).get("files") or 0)
        if self.increment is not None and len(listed) < before:
            count = counted(before - len(listed), "file")
            what = f"rows of {count} of {self.label} gone since: there were {before:,}, and now {len(listed):,}"
            yield Loss(what, for_good=True)

    def _arrivals(self, increment: FilesIncrement, listed: Sequence[SourceFile], mark: FilesMark | None) -> Arrivals:
        default: OnChange = "reload" if self.target.traits.takes_rows_again else "raise"
        folders = None if mark is None or mark.measures is None else other_folders(mark.measures, self.identity)
        rule = increment.on_change or default
        return self._compared(listed, mark, rule, settle=increment.settle, folders=folders)

    def _compared(
        self, listed: Sequence[SourceFile], mark: FilesMark | None, on_change: OnChange, **how: Any
    ) -> Arrivals:
        # Of the names of folders, rows have the columns that `schema` names; without it, all.
        columns = {name.lower() for name in column_types(self.schema_ddl)} if self.schema_ddl else None
        return arrivals(
            self.base,
            self.target.location,
            listed,
            mark,
            self.label,
            on_change=on_change,
            traits=self.target.traits,
            columns=columns,
            needed=(*self.target.keys, *self.target.partition_by),
            **how,
        )

    def snapshot_of(self, listed: Sequence[SourceFile], chosen: Sequence[SourceFile]) -> FilesSnapshot:
        """The source with the files ``listed``, of which rows are read from the ``chosen`` ones."""
        return FilesSnapshot(
            name=self.name,
            label=self.label,
            format=self.format.value,
            identity=self.identity,
            base=self.base,
            listed=tuple(listed),
            chosen=tuple(chosen),
            schema_ddl=self.schema_ddl,
            options=self.options,
            rescued=self.rescued,
            strict=self.strict,
            one_shape=self.target.schema_policy == "fail" and not self.target.traits.replaces_columns,
            parted_by=self.target.parted_by,
        )


@dataclass(frozen=True, kw_only=True)
class FilesSnapshot(SourceSnapshot):
    """Files of a landing folder.

    Attributes:
        listed: all files of the source.
        chosen: the files that rows are read from.
        one_shape: files with different columns are refused; else they are united by the names of the columns.
        parted_by: the column by which the node makes partitions again; empty if it makes none again.
        looked_at: the shapes of files that were looked at before.
        findings: what files are by the standard of their format, as far as they were looked at.
        footers: the columns of Parquet files, as far as they were looked at.
    """

    base: Location
    listed: tuple[SourceFile, ...]
    chosen: tuple[SourceFile, ...]
    schema_ddl: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    rescued: str | None = None
    strict: bool = True
    one_shape: bool = False
    parted_by: str = ""
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
        return f"whole: {counted(len(self.chosen), 'file')}"

    @property
    def fingerprint(self) -> tuple[str, ...]:
        return tuple(f"{one.path}\0{one.mtime_ns}\0{one.size}\0{one.etag}\0{one.changed_ns}" for one in self.chosen)

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
        given = {name.lower(): value for name, value in self.options.items()}
        if self.rescued or self.schema_ddl is None or given.get("mode", "").lower() != "permissive":
            return None
        return given.get("columnnameofcorruptrecord", "_corrupt_record")

    def is_true(self, option: str) -> bool:
        """Whether a reader option, in small letters, is set to true."""
        return any(name.lower() == option and value.lower() == "true" for name, value in self.options.items())

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        if not self.chosen:
            if self.schema_ddl:
                return spark.createDataFrame([], self.schema_ddl)
            raise NothingThereError(
                f"{self.label}: all its files are empty, so there is none to take a schema from",
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
        found = stop_message(text)
        if found:
            return SourceError(f"{self.label}: {found[0]}", fix=found[1], path=self.base.uri)
        if (place := unreadable_place(text)) is not None:
            return file_error(self, place, text)
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


@dataclass(frozen=True, kw_only=True)
class NewFiles(Read):
    """Files that were not loaded yet. The snapshot has these and the files that are loaded already.

    Attributes:
        beside: the table beside which the ledger of loaded files is kept.
    """

    snapshot: FilesSnapshot
    found: Arrivals
    beside: Location

    @property
    def file_count(self) -> int:
        return len(self.found.new)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.found.new)

    def load(self, spark: SparkSession) -> DataFrame:
        return replace(self.snapshot, chosen=self.found.new).rows(spark)

    def numbered(self, rows: DataFrame, column: str) -> DataFrame:
        return replace(self.snapshot, chosen=self.found.new).numbered(rows, column)

    def whole(self) -> Read:
        return Whole.instead_of(self)

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column
        if gone := self.found.gone:
            raise IncrementError(
                f"{node}: {counted(len(gone), 'loaded file')} of {self.label} {'is' if len(gone) == 1 else 'are'} gone "
                f"({', '.join(gone[:3])}), and partitions that hold their rows cannot be recomputed without them",
                fix="put the files back; or write what is read with `append` or `upsert`, and let a second node write "
                "by partitions; or accept the files that are there: odi run --full-refresh",
                node=node,
            )
        # The partitions that a rewritten file had rows in before are not known.
        return AffectedPartitions(by_rows=True, everything=bool(self.found.changed))

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        return [self.load(spark)]

    def before_commit(self) -> None:
        if (part := self.found.part) is None:
            return
        if self.snapshot.base.is_local and any(file.size > WHOLE_IS_KNOWN for file in self.found.new):
            new = {file.path for file in self.found.new}
            part = replace(part, files=tuple(with_whole_digests(self.snapshot.base, part.files, new)))
        ledger.write(self.beside, part)
