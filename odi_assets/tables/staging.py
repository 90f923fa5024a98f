"""Executors write Parquet into a fresh folder of the table; its files join the table when a commit names them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odi_assets.connections.location import Location
from odi_assets.delta.footers import WRITE_FOLDER, WrittenFile, written_files
from odi_assets.delta.partition_values import same_spelling
from odi_assets.tables.reader import reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMMITTER = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Version 2 lets each task publish its files by itself: those of an executor that dies at it would stay beside the
    # files of the task's next attempt (SPARK-33019), and the listing below takes what is there.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


def stage(
    df: DataFrame,
    table: Location,
    write_id: str,
    partition_by: Sequence[str] = (),
    always_index: Iterable[str] = (),
) -> list[WrittenFile]:
    """Write ``df`` below ``<table>/odi_write=<write_id>/`` and return its files with their footers read.

    A run that dies here leaves files that no version names; vacuum removes them.
    """
    folder = write_folder(write_id)
    writer = df.write.mode("error").options(**reader_options(table)).options(**_COMMITTER)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(table.child(folder).uri)
    kinds = {name: df.schema[name].dataType.jsonValue() for name in partition_by}
    return [
        WrittenFile(
            file.path,
            file.size,
            file.modified_ms,
            file.rows,
            {name: same_spelling(file.partition[name], kinds[name]) for name in partition_by},
            file.stats,
        )
        for file in written_files(table, folder, always_index)
    ]


def write_folder(write_id: str) -> str:
    """The folder of a write, relative to its table."""
    return f"{WRITE_FOLDER}={write_id}"
