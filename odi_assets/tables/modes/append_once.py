"""Rows whose keys are not in the table are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.delta.commit import FileChanges
from odi_assets.tables.modes.base import Mode, Write
from odi_assets.tables.reader import read_staged
from odi_assets.tables.upsert.deliveries import first_delivered
from odi_assets.tables.upsert.matching import candidates, rows_without_match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class AppendOnce(Mode):
    """Of several rows with the same keys, one is stored."""

    def stage(self, write: Write) -> FileChanges:
        """Stage one row for each key; where the table may hold some of the keys, then those it does not hold."""
        staged = write.stage(self.rows_to_store(write))
        among = candidates(write.handle, staged, write.keys) if staged else []
        if among:
            batch = read_staged(write.spark, write.handle.location, staged, write.schema_json)
            staged = write.stage(rows_without_match(batch, write.handle, among, write.keys), "-new")
        return FileChanges("rows", staged)

    def rows_to_store(self, write: Write) -> DataFrame:
        """One row for each key: of the first delivery that has it."""
        if write.spec.delivery is None:
            return write.df.dropDuplicates(list(write.keys))
        return first_delivered(write.df, write.keys, write.spec.delivery).drop(write.spec.delivery)


MODE = AppendOnce()
