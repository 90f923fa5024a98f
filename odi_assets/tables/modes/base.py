"""What a write mode is, and what it works with: the rows of one write, and the files it stages for them.

The module of a mode has the mode's name in the project file. What is true of its writes is in its row of
``config/write_modes.py``; here is what it does.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.delta.commit import FileChanges, Stamp
from odi_assets.delta.files.footers import WRITE_FOLDER, WrittenFile, written_files
from odi_assets.delta.partition_values import same_spelling
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.spark.raised import error_text
from odi_assets.spark.session import runs_tasks_once
from odi_assets.tables.engine import WriteSpec
from odi_assets.tables.partition_folders import refused_row, with_folders
from odi_assets.tables.refusals import refusal_of
from odi_assets.util.lazy import pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COMMITTER = "mapreduce.fileoutputcommitter."
_WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Hadoop writes no ``.crc`` beside a local file, and starts no ``chmod`` for each of the two: pyspark has no native
library for that. Pages of Parquet have checksums of their own, Delta reads no others, and vacuum passes them over."""


class Mode(ABC):
    """How rows join a table."""

    @abstractmethod
    def stage(self, write: Write) -> FileChanges:
        """Write files for the rows, and say which files the commit adds and removes.

        Rows that are needed twice are read from staged files, so that no transform runs twice.

        Raises:
            TableError: these rows cannot be written in this mode.
        """

    def rows_to_store(self, write: Write) -> DataFrame:
        """Which rows of a node of this mode are stored, where another mode writes them this once.

        A full refresh overwrites the table of an upsert, for example, with one row for each key.
        """
        return write.df


def mode_of(mode: WriteMode) -> Mode:
    """The mode with this name. Its module is loaded when it is first used."""
    implementation: Mode = import_module(f"odi_assets.tables.modes.{mode}").MODE
    return implementation


@dataclass(frozen=True)
class Write:
    """One write under way.

    Attributes:
        df: the rows, in the table's shape; beside its columns the delete marker, if the write has one.
        schema_json: of the table after the commit.
        adds_columns: columns join the table. Delta does so only in a commit that removes no file or all files.
        is_small: the rows fit into the memory of this process, which writes them faster than Spark plans the writing.
        staged: rows that are in files already, in the form of the table, and these files. They are the files of ``df``
            only as long as ``df`` is these rows.
    """

    df: DataFrame
    handle: TableHandle
    spec: WriteSpec
    stamp: Stamp
    schema_json: str
    adds_columns: bool = False
    is_small: bool = False
    staged: tuple[DataFrame, Sequence[WrittenFile]] | None = None

    @property
    def spark(self) -> SparkSession:
        return self.df.sparkSession

    @property
    def uri(self) -> str:
        return self.handle.location.uri

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row.

        Raises:
            TableError: the write names none.
        """
        if not self.spec.keys:
            raise TableError(
                f"{self.spec.mode} needs keys, and none is named for {self.uri}",
                fix="name the columns that identify a row in `write.keys`",
                uri=self.uri,
            )
        return self.spec.keys

    def folder(self, step: str = "") -> str:
        """The folder of the files of one step of this write, relative to the table: ``odi_write=<write id><step>``."""
        return f"{WRITE_FOLDER}={self.stamp.write_id}{step}"

    def stage(self, df: DataFrame, step: str = "") -> list[WrittenFile]:
        """Write ``df`` as Parquet into the folder of ``step``. The files join the table when a commit names them.

        A run that dies here leaves files that no version names; vacuum removes them.
        """
        if self.staged is not None and df is self.staged[0]:
            return list(self.staged[1])
        table = self.handle.location
        if self.is_small and not self.spec.partition_by:
            self._write_here(df, step)
            return self.files(step)
        # Version 2 lets each task publish its files by itself, which is faster: nothing is moved at the end of the job.
        # But the files of an executor that dies at it would stay beside the files of the task's next attempt
        # (SPARK-33019), and the listing takes what is there.
        version = "2" if runs_tasks_once(df.sparkSession) else "1"
        location = table.for_spark
        rows = with_folders(df, self.spec.partition_by, self.uri)
        writer = rows.write.mode("error").options(**(_WITHOUT_CHECKSUMS if table.is_local else location.reader_options))
        writer = writer.option(f"{_COMMITTER}algorithm.version", version)
        writer = writer.option(f"{_COMMITTER}marksuccessfuljobs", "false")
        if self.spec.partition_by:
            writer = writer.partitionBy(*self.spec.partition_by)
        try:
            writer.parquet(location.child(self.folder(step)).uri)
        except Exception as error:
            if (refused := refused_row(error_text(error), self.uri)) is not None:
                raise refused from error
            if (closed := refusal_of(error_text(error), table)) is not None:
                raise closed from error
            raise
        return self.files(step)

    def _write_here(self, df: DataFrame, step: str) -> None:
        rows, table = df.toArrow(), self.handle.location
        filesystem, folder = table.child(self.folder(step)).in_store()
        filesystem.makedirs(folder, exist_ok=False)
        if rows.num_rows:
            with filesystem.open(f"{folder}/part-00000.snappy.parquet", "wb") as stream:
                pq.write_table(rows, stream, compression="snappy")

    def files(self, step: str = "") -> list[WrittenFile]:
        """The files in the folder of ``step``, with their footers read and their partition values in one spelling."""
        kinds = {field["name"]: field["type"] for field in json.loads(self.schema_json)["fields"]}
        by = self.spec.partition_by
        return [
            replace(file, partition={name: same_spelling(file.partition[name], kinds[name]) for name in by})
            for file in written_files(self.handle.location, self.folder(step), self.spec.keys)
        ]

    def discard(self) -> None:
        """Delete the files of all steps of this write: nothing of it is to be kept."""
        filesystem, root = self.handle.location.in_store()
        for path in filesystem.ls(root, detail=False):
            if path.rstrip("/").rpartition("/")[2].startswith(self.folder()):
                filesystem.rm(path, recursive=True)
