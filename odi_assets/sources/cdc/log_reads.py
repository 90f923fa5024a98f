"""What reads have in common that make rows of a change log, whoever captured the changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odi_assets.errors import IncrementError
from odi_assets.sources.cdc.log import SCHEMA
from odi_assets.sources.reads import AffectedPartitions, PlannedRead, Read
from odi_assets.sources.snapshot import Partitions, SourceSnapshot
from odi_assets.spark.arrow import dataframe_of
from odi_assets.tables.parts import TableParts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class ChangesRead(PlannedRead):
    """A read of changes, which come in the order of their log."""

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        del wanted
        raise IncrementError(f"{self.label}: changes are read as they come", fix="write them with append")

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column, node
        return AffectedPartitions(by_rows=True)

    def whole(self) -> PlannedRead:
        return self


@dataclass(frozen=True, kw_only=True)
class LoggedRows(ChangesRead, Read):
    """Changes as rows of the change log, which are here.

    Attributes:
        more: there are more below the bound of the run.
        bound: where the source ended when the run began; None: one commit takes all.
    """

    rows: pa.Table | TableParts = field(repr=False, compare=False)
    more: bool = False
    bound: Any = None

    @property
    def goes_on(self) -> bool:
        return self.more

    @property
    def until(self) -> Any:
        return self.bound

    @property
    def rows_known(self) -> int:
        return int(self.rows.num_rows)

    def load(self, spark: SparkSession) -> DataFrame:
        return dataframe_of(spark, self.rows.whole() if isinstance(self.rows, TableParts) else self.rows)


@dataclass(frozen=True, kw_only=True)
class ChangesSnapshot(SourceSnapshot):
    """A source of changes as it stands: only a read makes rows of them."""

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        del only
        return dataframe_of(spark, SCHEMA.empty_table())
