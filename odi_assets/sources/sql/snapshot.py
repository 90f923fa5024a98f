"""A table or a query of a database at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import StatefulIncrement
from odi_assets.errors import SourceError
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.types import TypeName, cursor_type, kept_of, kind_of
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.marks import UNRESOLVED, Unresolved
from odi_assets.sources.snapshot import Position, SourceSnapshot
from odi_assets.sources.sql.statements import Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.sources.snapshot import Partitions
    from odi_assets.sources.sql.reader import RelationReader


@dataclass(frozen=True)
class DatabaseLook:
    """The result of one query to a database, without Spark.

    Attributes:
        types: its columns, and their types where these are known exactly.
        bound: its greatest cursor.
        now: what its clock said; None if nobody asked.
    """

    types: Mapping[str, TypeName | None]
    bound: Bound | None
    now: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SqlSnapshot(SourceSnapshot):
    """A table or a query of a database, and what was known of it when the run was planned.

    A database changes while it is read. What lies in a window whose upper bound is fixed stays there, as long as rows
    are added above it.

    Attributes:
        look: the result of a query without Spark; None if there was none.
        partition_column, pieces, options: see ``SqlSource``.
        known_columns: has the columns that say which row of the node's table a row is (see ``Target.known_by``).
    """

    relation: Relation
    look: DatabaseLook | None = None
    partition_column: str | None
    pieces: int
    options: Mapping[str, str] = field(repr=False)
    known_columns: Callable[[], Mapping[str, bool]] = field(compare=False, repr=False)

    @property
    def column_names(self) -> Sequence[str] | None:
        return None if self.look is None else list(self.look.types)

    @property
    def position(self) -> Position:
        if self.look is None or self.look.bound is None:
            return {}
        upper = self.look.bound.upper
        shown = upper.hex() if isinstance(upper, bytes) else None if upper is None else str(upper)
        return {"upper": shown, "without_cursor": self.look.bound.without_cursor}

    @property
    def summary(self) -> str:
        return "whole"

    def bound_by_statistics(self, increment: StatefulIncrement) -> tuple[str | None, Bound | Unresolved]:
        if self.look is None or self.look.bound is None:
            return None, UNRESOLVED
        return cursor_type(increment, dict(self.look.types), self.label), self.look.bound

    def cursor_types(self, spark: SparkSession) -> dict[str, TypeName]:
        return {column.name: column.sized_type for column in self.reader(spark).columns}

    def known_by(self, spark: SparkSession | None) -> Mapping[str, Any]:
        if self.look is not None:
            return kept_of(self.look.types, self.known_columns())
        return {} if spark is None else kept_of(self.cursor_types(spark), self.known_columns())

    def declared(self, spark: SparkSession) -> Mapping[str, Sequence[Any]]:
        # Whole numbers look alike in all types.
        others = [column for column in self.reader(spark).columns if kind_of(str(column.type)) != "int"]
        return {column.name: [column.declared or "", column.digits] for column in others}

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        rows = self.reader(spark).rows(None)
        return rows if only is None else rows.where(only.condition(rows))

    def rows_in_window(self, spark: SparkSession, window: Window, only: Partitions | None = None) -> DataFrame:
        if window.date_format is not None:
            return super().rows_in_window(spark, window, only)
        reader = self.reader(spark)
        rows = reader.rows(self.relation.condition(window, reader.cursor_types))
        return rows if only is None else rows.where(only.condition(rows))

    def bound(self, spark: SparkSession, window: Window) -> Bound:
        if window.date_format is not None:
            return super().bound(spark, window)
        reader = self.reader(spark)
        row = reader.texts(self.relation.bound(window, reader.cursor_types))[0]
        return self.relation.found(row, window, reader.cursor_types)

    def now(self, spark: SparkSession | None = None) -> datetime:
        now = None if self.look is None else self.look.now
        if now is None and spark is not None:
            now = self.relation.now(self.reader(spark).texts)
        return now or super().now()

    def read_error(self, text: str) -> SourceError | None:
        return self.relation.read_error(text)

    def reader(self, spark: SparkSession) -> RelationReader:
        """What Spark reads of it."""
        from odi_assets.sources.sql.reader import RelationReader

        return RelationReader(spark, self.relation, self.partition_column, self.pieces, self.options)
