"""Rows replace those with the same keys; the others are added.

An upsert is copy-on-write: rows that only have to move out of an affected file go to files of their own, committed
without ``dataChange``. So the files committed with ``dataChange`` hold exactly the rows that are new or changed, and
a downstream node can read an upsert's increment from the table's log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from odi_assets.delta.commit import FileChanges
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.table import LiveFile
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.modes.base import Mode, Write
from odi_assets.tables.reader import read_files, read_staged
from odi_assets.tables.upsert.arrow_rewrite import copy_unmarked, rewrite
from odi_assets.tables.upsert.deliveries import deciding_rows, last_delivered
from odi_assets.tables.upsert.matching import MatchedFiles, candidates, find_affected, rows_to_move
from odi_assets.tables.upsert.newest import RepeatedKeysError, newer_than_stored, one_per_key, stored_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Upsert(Mode):
    """Rows may delete those with their keys (``delete_when``), or replace only older ones (``only_if_newer``)."""

    def stage(self, write: Write) -> FileChanges:
        """Stage the rows, and the rows that move out of files which hold some of the same keys."""
        return _in_deliveries(write, _staged)

    def rows_to_store(self, write: Write) -> DataFrame:
        """One row for each key: the newest, if ``only_if_newer`` says what is newer; without those that delete."""
        return _in_deliveries(write, _rows_to_store)


_Result = TypeVar("_Result")


def _in_deliveries(write: Write, made_of: Callable[[Write], _Result]) -> _Result:
    """What is made of the rows: of all deliveries at once, if that comes to the same.

    It does if no key is in two of them, which most increments do not know before; and where the greatest value wins.
    """
    spec = write.spec
    if spec.delivery is None or (spec.delete_when and spec.only_if_newer):
        return made_of(write)
    try:
        return made_of(replace(write, df=write.df.drop(spec.delivery), spec=replace(spec, delivery=None)))
    except RepeatedKeysError:
        write.discard()
        return made_of(write)


def _staged(write: Write) -> FileChanges:
    handle, spec, keys, marker = write.handle, write.spec, write.keys, write.spec.delete_when
    plain = not spec.beside and spec.only_if_newer is None
    # Without options, the rows as they come are the rows to be stored, and are staged only once.
    files = write.stage(write.df, "" if plain else "-batch")
    if not files:
        return FileChanges("rows", files)
    among = candidates(handle, files, keys)
    if spec.delivery is None and spec.only_if_newer is None and not write.adds_columns:
        small = rewrite(handle, files, keys, among, write.folder("-moved"), marker)
        if small is not None:
            _look(
                write, lambda: read_staged(write.spark, handle.location, files, write.schema_json, marker), small.files
            )
            if marker is not None:
                copy_unmarked(handle, files, marker, write.folder("-new"))
                files = write.files("-new")
            return upserted(files, write.files("-moved"), small, small.files)
    batch = _batch(write, files, among)
    if not plain:
        files = write.stage(_without_deleted(batch, marker), "-new")
    affected = find_affected(batch, handle, among, keys, marker)
    _look(write, lambda: batch, affected.files)
    # A commit that adds columns removes all files or none, so the rows of all the others have to move too.
    removed = handle.live_files if write.adds_columns and affected.files else affected.files
    moved = write.stage(rows_to_move(batch, handle, removed, keys), "-moved") if removed else []
    return upserted(files, moved, affected, removed)


def _look(write: Write, batch: Callable[[], DataFrame], files: Sequence[LiveFile]) -> None:
    """Let ``spec.replacing`` look at the rows of ``batch``, and at the stored rows in ``files`` that they replace."""
    if write.spec.replacing is None or not write.handle.exists:
        return
    rows, stored = batch(), None
    if files:
        wanted = rows.select(*map(quoted, write.keys)).alias("b")
        there = read_files(write.spark, write.handle, files).alias("t")
        stored = there.join(wanted, same_keys(write.keys), "left_semi")
    write.spec.replacing(rows, stored)


def _rows_to_store(write: Write) -> DataFrame:
    return _without_deleted(_batch(write, write.stage(write.df, "-batch"), ()), write.spec.delete_when)


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


def _batch(write: Write, files: Sequence[WrittenFile], among: Sequence[LiveFile]) -> DataFrame:
    """The staged rows that count, one for each key.

    Args:
        among: the files of the table that may hold their keys.
    """
    spec, keys, newer, marker = write.spec, write.keys, write.spec.only_if_newer, write.spec.delete_when
    rows = read_staged(write.spark, write.handle.location, files, write.schema_json, marker, spec.delivery)
    rows = one_per_key(rows, keys, newer, write.uri, spec.delivery)
    if spec.delivery is not None and newer and marker:
        stored = stored_values(rows, write.handle, among, keys, newer) if among else None
        return deciding_rows(rows, keys, spec.delivery, newer, marker, stored).drop(spec.delivery)
    if spec.delivery is not None:
        rows = last_delivered(rows, keys, spec.delivery, newer).drop(spec.delivery)
    return newer_than_stored(rows, write.handle, among, keys, newer) if newer else rows


def _without_deleted(batch: DataFrame, marker: str | None) -> DataFrame:
    if marker is None:
        return batch
    return batch.where(~F.coalesce(F.col(quoted(marker)), F.lit(False))).drop(marker)


MODE = Upsert()
