"""Reads of Debezium's envelopes: rows of the change log that are made without Spark."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odi_assets.errors import IncrementError
from odi_assets.sources.files.source import NewFiles
from odi_assets.sources.reads import AffectedPartitions, PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Partitions
from odi_assets.spark.arrow import dataframe_of
from odi_assets.tables.parts import TableParts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class _OfMessages(PlannedRead):
    """What reads of messages have in common.

    Attributes:
        files: of a read of files: what it adds to their ledger.
    """

    files: NewFiles | None = None

    @property
    def file_count(self) -> int | None:
        return None if self.files is None else self.files.file_count

    @property
    def bytes(self) -> int | None:
        return None if self.files is None else self.files.bytes

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        del wanted
        raise IncrementError(f"{self.label}: changes are read as they come", fix="write them with append")

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column, node
        return AffectedPartitions(by_rows=True)

    def before_commit(self) -> None:
        if self.files is not None:
            self.files.before_commit()


@dataclass(frozen=True, kw_only=True)
class NewMessages(_OfMessages, UnresolvedRead):
    """Messages that are not read yet."""

    @abstractmethod
    def logged(self) -> LoggedMessages:
        """The rows of the change log that they make.

        Raises:
            SourceError: a message is none of Debezium, or cannot be read.
        """

    def whole(self) -> PlannedRead:
        return self

    def resolve(self, spark: SparkSession) -> Read:
        del spark
        return self.logged()

    def without_spark(self) -> tuple[Read, pa.Table | TableParts]:
        found = self.logged()
        return found, found.rows


@dataclass(frozen=True, kw_only=True)
class LoggedMessages(_OfMessages, Read):
    """Messages as rows of the change log.

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

    def whole(self) -> PlannedRead:
        return self

    def load(self, spark: SparkSession) -> DataFrame:
        return dataframe_of(spark, self.rows.whole() if isinstance(self.rows, TableParts) else self.rows)
