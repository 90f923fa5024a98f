"""A source at one moment: what is known of it without Spark, and how its rows are loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from odi_assets.delta.files.spans import TIMES, NamedPartitions, PartitionBox, Span
from odi_assets.errors import SourceError
from odi_assets.sources.cursor.columns import spark_bound, window_condition
from odi_assets.sources.cursor.late import NONE_LATE, Late
from odi_assets.sources.marks import UNRESOLVED, CursorMark, Identity, Mark, Unresolved, moment_of
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odi_assets.config.models import StatefulIncrement
    from odi_assets.sources.cursor.bounds import Bound
    from odi_assets.sources.cursor.types import TypeName
    from odi_assets.sources.cursor.window import Window

Position = Mapping[str, Any]
"""Where a source stands, JSON-ready: it shows, without reading a row, whether the source has changed."""


@dataclass(frozen=True)
class Partitions:
    """Whole partitions of a node's table: values of ``column`` as Delta writes them; None stands for NULL.

    Attributes:
        box: of a bounded run: the partitions in it are meant, and ``values`` names none.
    """

    column: str
    values: tuple[str | None, ...] = ()
    box: PartitionBox | None = None

    @classmethod
    def of(cls, column: str, values: Iterable[str | None]) -> Partitions:
        """The partitions of ``values``, each once, in order, NULL first."""
        return cls(column, tuple(sorted(set(values), key=lambda value: (value is not None, value or ""))))

    def condition(self, rows: DataFrame) -> Column:
        """Whether a row is in one of them."""
        if self.box is not None:
            return reduce(and_, (_is_in(side, rows) for side in self.box.sides))
        return _among(rows, self.column, self.values)

    def where(self, rows: DataFrame) -> DataFrame:
        """The ``rows`` that are in them, as far as the columns of the rows say so."""
        box = self.box.within(rows.columns) if self.box is not None else None
        return rows if box is None else rows.where(replace(self, box=box).condition(rows))


def _among(rows: DataFrame, column: str, values: Collection[str | None]) -> Column:
    kind = rows.schema[column].dataType
    name = F.col(quoted(column))
    filled = [F.lit(value).cast(kind) for value in values if value is not None]
    if kind.simpleString() in ("float", "double"):
        # Parquet's filters take -0.0 for less than 0.0, and would skip its rows. A sum is not pushed down to them.
        name = name + F.lit(0.0)
    condition = name.isin(filled) if filled else F.lit(False)
    if None not in values:
        return condition
    # A table has NULL where rows have an empty text: Delta's log does not tell them apart.
    missing = name.isNull() | (name == "") if kind.simpleString() == "string" else name.isNull()
    return condition | missing


def _is_in(side: Span | NamedPartitions, rows: DataFrame) -> Column:
    kind = rows.schema[side.column].dataType
    if isinstance(side, Span) and kind.typeName() in TIMES:
        name = F.col(quoted(side.column))
        start, end = (F.lit(bound).cast(kind) for bound in side.texts(kind.typeName()))
        return (name >= start) & (name < end)
    return _among(rows, side.column, sorted(side.names(kind.jsonValue())))


@dataclass(frozen=True, kw_only=True)
class SourceSnapshot(ABC):
    """A source at one moment.

    Attributes:
        name: the view that SQL sees, the argument that a function gets.
        label: the source in words: ``landing:flights/*.csv``, ``flights.raw_flights``.
        format: as the project file calls it.
        identity: what a mark of the source measures.
        table_version: the version of the Delta table; None for other sources.
    """

    name: str
    label: str
    format: str
    identity: Identity
    table_version: int | None = None

    @property
    @abstractmethod
    def position(self) -> Position:
        """Where the source stood."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """A read of all of it, in words."""

    @property
    def fingerprint(self) -> tuple[str, ...] | None:
        """As long as it is the same, the rows are the same. None: not known."""
        return None

    @property
    def columns(self) -> Mapping[str, TypeName] | None:
        """Its columns and their types, as Delta and Spark write them in JSON; None if only Spark knows them."""
        return None

    @property
    def kept_aside(self) -> str | None:
        """The column that keeps what does not fit the others; None if there is none."""
        return None

    @property
    def column_names(self) -> Sequence[str] | None:
        """The names of its columns; None where only Spark knows them, or the source may not have all of them."""
        return None

    @property
    def guesses_types(self) -> bool:
        """Whether nobody named the types of its columns: what looks like a number may be text."""
        return False

    @property
    def rows_known(self) -> int | None:
        """How many rows it has; None if that is not known without reading."""
        return None

    @property
    def is_emptied(self) -> bool:
        """Whether it is a table that is there, and has no row."""
        return self.table_version is not None and self.rows_known == 0

    @property
    def file_count(self) -> int | None:
        """How many files it has; None if it does not consist of files."""
        return None

    @property
    def bytes(self) -> int | None:
        """Size of its files; None if it does not consist of files."""
        return None

    @property
    def newest(self) -> tuple[str, float] | None:
        """Its newest file, and when that arrived, in seconds since 1970; None if it does not consist of files."""
        return None

    @property
    def is_empty(self) -> bool:
        """Whether it certainly has no row."""
        return False

    @abstractmethod
    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        """Its rows, lazily.

        Args:
            only: the partitions to read; None: all.

        Raises:
            SourceError: it cannot be read.
        """

    def now(self, spark: SparkSession | None = None) -> datetime:
        """The time by the clock of the source; by this machine's clock, if the source has none or cannot be asked.

        Args:
            spark: asks for it, if nobody did yet.
        """
        del spark
        return datetime.now(UTC)

    def moment_of(self, mark: Mark) -> float | None:
        """The time that a mark of it stands for, in seconds since 1970; None if it stands for none."""
        return moment_of(mark)

    def place_of_rows(self) -> Column | None:
        """The file that a row of :meth:`rows` is in; None if that means nothing to who reads it."""
        return None

    def shown_place(self, place: str) -> str:
        """A value of :meth:`place_of_rows`, as the project file would name it."""
        return place

    def numbered(self, rows: DataFrame, column: str) -> DataFrame:
        """``rows`` of :meth:`rows` with the number of the delivery that each came in, as :meth:`Read.numbered` says."""
        del column
        return rows

    def noted(self, before: CursorMark | None) -> str | None:
        """What it consists of, for :meth:`late` of a later run; None if that is known otherwise, or not at all.

        Args:
            before: the mark before the one that is to know it.
        """
        del before
        return None

    def late(self, mark: CursorMark, window: Window, start: Any, spark: SparkSession | None = None) -> Late:
        """The rows that arrived since ``mark`` was set, and lie below ``window``, which begins there.

        Args:
            start: rows below it are not wanted; None: all are.
            spark: reads what arrived; without it, only what is known without reading is counted.
        """
        del mark, window, start, spark
        return NONE_LATE

    def moved_partitions(self, spark: SparkSession, late: Late) -> list[DataFrame]:
        """The partitions that :meth:`late` found rows moved between, as rows of the partition column alone."""
        del spark, late
        return []

    def read_error(self, text: str) -> SourceError | None:
        """What an error of Spark means that came up as its rows were read, if it is about this source.

        Args:
            text: what the error says, and what caused it.
        """
        del text
        return None

    def rows_in_window(self, spark: SparkSession, window: Window, only: Partitions | None = None) -> DataFrame:
        """Its rows in ``window``, lazily."""
        rows = self.rows(spark, only)
        return rows.where(window_condition(rows, window))

    def cursor_types(self, spark: SparkSession) -> dict[str, TypeName]:
        """The types of its columns as cursors; each knows how much of its values the source keeps."""
        return {field.name: field.dataType.jsonValue() for field in self.rows(spark).schema.fields}

    def known_by(self, spark: SparkSession | None) -> Mapping[str, Any]:
        """By column that rows of the table are known by, how much of its values the source keeps (see
        ``cursor.types.kept_of``); empty if it rounds none, or if that is not known yet."""
        del spark
        return {}

    def declared(self, spark: SparkSession) -> Mapping[str, Sequence[Any]]:
        """By such a column, the name of its type at the source, and how much of its values that keeps."""
        del spark
        return {}

    def bound_by_statistics(self, increment: StatefulIncrement) -> tuple[str | None, Bound | Unresolved]:
        """The type of the cursor and its upper bound, each if it is known exactly without reading a row.

        Raises:
            IncrementError: there is no such column, or it cannot be a cursor.
        """
        del increment
        return None, UNRESOLVED

    def bound(self, spark: SparkSession, window: Window) -> Bound:
        """The upper bound of ``window``, in one pass over the source. Rows above ``window`` are counted.

        Raises:
            IncrementError: values of the cursor cannot be compared, or are beyond what a mark holds.
        """
        return spark_bound(self.rows(spark), window, self.label, self.place_of_rows())
