"""Reads of Debezium's envelopes: rows of the change log that are made without Spark."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from odi_assets.sources.cdc.log_reads import ChangesRead, LoggedRows
from odi_assets.sources.files.source import NewFiles
from odi_assets.sources.reads import Read, UnresolvedRead
from odi_assets.tables.parts import TableParts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class _OfMessages(ChangesRead):
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

    def before_commit(self) -> None:
        if self.files is not None:
            self.files.before_commit()

    def once_read(self) -> None:
        if self.files is not None:
            self.files.once_read()


@dataclass(frozen=True, kw_only=True)
class NewMessages(_OfMessages, UnresolvedRead):
    """Messages that are not read yet."""

    @abstractmethod
    def logged(self) -> LoggedMessages:
        """The rows of the change log that they make.

        Raises:
            SourceError: a message is none of Debezium, or cannot be read.
        """

    def resolve(self, spark: SparkSession) -> Read:
        del spark
        return self.logged()

    def without_spark(self) -> tuple[Read, pa.Table | TableParts]:
        logged = self.logged()
        return logged, logged.rows


@dataclass(frozen=True, kw_only=True)
class LoggedMessages(_OfMessages, LoggedRows):
    """Messages as rows of the change log."""
