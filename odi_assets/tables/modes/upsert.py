"""Rows replace those with the same keys; the others are added.

An upsert is copy-on-write: rows that only have to move out of an affected file go to files of their own, committed
without ``dataChange``. So the files committed with ``dataChange`` hold exactly the rows that are new or changed, and
a downstream node can read an upsert's increment from the table's log alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from odi_assets.delta.commit import FileChanges
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.table import LiveFile
from odi_assets.tables.columns import quoted
from odi_assets.tables.modes.base import Mode, Write
from odi_assets.tables.reader import read_staged
from odi_assets.tables.upsert.arrow_rewrite import rewrite
from odi_assets.tables.upsert.matching import MatchedFiles, candidates, find_affected, rows_to_move
from odi_assets.tables.upsert.newest import newer_than_stored, one_per_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Upsert(Mode):
    """Rows may delete those with their keys (``delete_when``), or replace only older ones (``only_if_newer``)."""

    def stage(self, write: Write) -> FileChanges:
        """Stage the rows, and the rows that move out of files which hold some of the same keys."""
        handle, spec, keys = write.handle, write.spec, write.keys
        plain = spec.delete_when is None and spec.only_if_newer is None
        # Without options, the rows as they come are the rows to be stored, and are staged only once.
        files = write.stage(write.df, "" if plain else "-batch")
        if not files:
            return FileChanges("rows", files)
        among = candidates(handle, files, keys)
        if plain and not write.adds_columns:
            small = rewrite(handle, files, keys, among, write.folder("-moved"))
            if small is not None:
                return upserted(files, write.files("-moved"), small, small.files)
        batch = _batch(write, files)
        if spec.only_if_newer:
            batch = newer_than_stored(batch, handle, among, keys, spec.only_if_newer)
        if not plain:
            files = write.stage(_without_deleted(batch, spec.delete_when), "-new")
        affected = find_affected(batch, handle, among, keys, spec.delete_when)
        # A commit that adds columns removes all files or none, so the rows of all the others have to move too.
        removed = handle.live_files if write.adds_columns and affected.files else affected.files
        moved = write.stage(rows_to_move(batch, handle, removed, keys), "-moved") if removed else []
        return upserted(files, moved, affected, removed)

    def rows_to_store(self, write: Write) -> DataFrame:
        """One row for each key: the newest, if ``only_if_newer`` says what is newer; without those that delete."""
        batch = _batch(write, write.stage(write.df, "-batch"))
        return _without_deleted(batch, write.spec.delete_when)


def upserted(
    new: Sequence[WrittenFile], moved: Sequence[WrittenFile], affected: MatchedFiles, removed: Sequence[LiveFile]
) -> FileChanges:
    """The changes of an upsert: ``new`` rows, and ``moved`` ones out of files that are ``removed``."""
    return FileChanges(
        "rows",
        new,
        moved,
        removed,
        rows_updated=affected.rows - affected.deleted,
        rows_deleted=affected.deleted,
        partitions=[file.partition for file in affected.files],
    )


def _batch(write: Write, files: Sequence[WrittenFile]) -> DataFrame:
    rows = read_staged(write.spark, write.handle.location, files, write.schema_json, write.spec.delete_when)
    return one_per_key(rows, write.keys, write.spec.only_if_newer, write.uri)


def _without_deleted(batch: DataFrame, marker: str | None) -> DataFrame:
    if marker is None:
        return batch
    return batch.where(~F.coalesce(F.col(quoted(marker)), F.lit(False))).drop(marker)


MODE = Upsert()
