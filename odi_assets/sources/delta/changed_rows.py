"""Rows that commits of a Delta table added, changed or replaced, as Spark DataFrames."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from odi_assets.delta.changes import CommitChange, TableChanges
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.reader import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def changed_rows(spark: SparkSession, handle: TableHandle, changes: TableChanges) -> DataFrame:
    """The rows that ``changes`` added or changed; of each key, the row of its newest commit."""
    frames: list[DataFrame] = []
    newer: DataFrame | None = None
    for commit in reversed([commit for commit in changes.commits if commit.files]):
        rows = read_files(spark, handle, commit.files)
        keys = _keys_of_later(changes, commit)
        if newer is not None and keys:
            rows = rows.alias("t").join(newer.select(*map(quoted, keys)).alias("b"), same_keys(keys), "left_anti")
        frames.append(rows)
        newer = rows if newer is None else newer.unionByName(rows)
    if not frames:
        return read_files(spark, handle, ())
    return reduce(lambda left, right: left.unionByName(right), reversed(frames))


def _keys_of_later(changes: TableChanges, commit: CommitChange) -> tuple[str, ...]:
    later = (other.keys for other in changes.commits if other.version > commit.version and other.updated)
    return next((keys for keys in later if keys), ())


def replaced_rows(spark: SparkSession, handle: TableHandle, commit: CommitChange) -> DataFrame | None:
    """The rows that ``commit`` replaced, as they were before it; None if it replaced none."""
    if not commit.removed or (commit.kind == "rows" and not (commit.updated or commit.deleted)):
        return None
    old_files = [LiveFile(path, 0, None, dict(partition)) for path, partition in commit.removed]
    old = read_files(spark, handle, old_files)
    if commit.kind != "rows":
        return old
    if commit.deleted:
        stayed = read_files(spark, handle, commit.moved)
        return old.alias("t").join(
            stayed.select(*map(quoted, commit.keys)).alias("b"), same_keys(commit.keys), "left_anti"
        )
    new = read_files(spark, handle, commit.files)
    return old.alias("t").join(new.select(*map(quoted, commit.keys)).alias("b"), same_keys(commit.keys), "left_semi")
