"""Rows whose keys are not in the table are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.delta.commit import FileChanges
from odi_assets.tables.modes.base import Mode, Write
from odi_assets.tables.reader import read_staged
from odi_assets.tables.upsert.deliveries import first_delivered
from odi_assets.tables.upsert.matching import candidates, rows_without_match
from odi_assets.tables.upsert.newest import one_of_equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class AppendOnce(Mode):
    """Of several rows with the same keys, one is stored."""

    def stage(self, write: Write) -> FileChanges:
        """Stage one row for each key; where the table may hold some of the keys, then those it does not hold.

        Raises:
            RepeatedKeysError: different rows have the same keys, and deliveries are mixed.
        """
        is_mixed = write.spec.mixes_deliveries
        staged = write.stage(write.df if is_mixed else self.rows_to_store(write))
        among = candidates(write.handle, staged, write.keys) if staged else []
        if among or (is_mixed and staged):
            batch = read_staged(write.spark, write.handle.location, staged, write.schema_json)
            rows = rows_without_match(batch, write.handle, among, write.keys) if among else batch
            staged = write.stage(one_of_equal(rows, write.keys, write.uri) if is_mixed else rows, "-new")
        return FileChanges("rows", staged)

    def rows_to_store(self, write: Write) -> DataFrame:
        """One row for each key: of the first delivery that has it.

        Raises:
            RepeatedKeysError: different rows have the same keys, and deliveries are mixed.
        """
        if write.spec.delivery is not None:
            return first_delivered(write.df, write.keys, write.spec.delivery).drop(write.spec.delivery)
        if not write.spec.mixes_deliveries:
            return write.df.dropDuplicates(list(write.keys))
        files = write.stage(write.df, "-batch")
        batch = read_staged(write.spark, write.handle.location, files, write.schema_json) if files else write.df
        return one_of_equal(batch, write.keys, write.uri)


MODE = AppendOnce()
