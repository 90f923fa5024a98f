"""Rows that commits of a Delta table added, changed or replaced, as Spark DataFrames.

However many commits there are, their files are read by one scan: a plan of Spark does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING

from odi_assets.delta.changes import TableChanges
from odi_assets.delta.table import TableHandle
from odi_assets.spark.arrow import dataframe_of
from odi_assets.spark.lazy import F, T
from odi_assets.spark.session import SMALL_BYTES
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.reader import by_file_uri, file_uri_key, read_files
from odi_assets.util.lazy import pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE, _VERSION, _REPLACES = "__odi_file", "__odi_version", "__odi_replaces"


def changed_rows(spark: SparkSession, handle: TableHandle, changes: TableChanges) -> DataFrame:
    """The rows that ``changes`` added or changed, without those that a later upsert among them replaced."""
    # A file that a restore brought back is in two commits, and in the table once.
    files = {file.path: file for file in changes.files}
    replacing = changes.replacing
    if not replacing:
        return read_files(spark, handle, files.values())
    rows = read_files(spark, handle, files.values(), file_as=_FILE)
    if sum(file.size for file in files.values()) <= SMALL_BYTES:
        # To bring so few rows of a key together by an exchange costs more than other cores would save.
        rows = rows.coalesce(1)
    columns = rows.columns[:-1]
    key_sets = dict.fromkeys(commit.keys for commit in replacing)
    versioned = _with_versions(rows, handle, changes, list(key_sets))
    kept = reduce(lambda left, right: left & right, (_is_newest(i, keys) for i, keys in enumerate(key_sets)))
    return versioned.withColumn(_FILE, kept).where(_FILE).select(*map(quoted, columns))


def _with_versions(
    rows: DataFrame, handle: TableHandle, changes: TableChanges, key_sets: list[tuple[str, ...]]
) -> DataFrame:
    """``rows`` with the version that each came in, and once more for each of ``key_sets`` that its upsert is by."""
    files_by_uri = by_file_uri(handle.location, changes.files)
    commits = {file.path: commit for commit in changes.commits for file in commit.files}
    names = [_FILE, _VERSION, *(f"{_REPLACES}{number}" for number in range(len(key_sets)))]
    entries = []
    # As Spark itself spells them, so that nothing has to be decoded for each row.
    for uri in rows.inputFiles():
        commit = commits[files_by_uri[file_uri_key(uri)].path]
        by = [commit.version if commit.updated and commit.keys == keys else None for keys in key_sets]
        # It has two ways to spell a local one.
        entries += [(text, commit.version, *by) for text in {uri, uri.replace("file:///", "file:/", 1)}]
    schema = pa.schema([(name, pa.string() if name == _FILE else pa.int64()) for name in names])
    versions = pa.table([list(column) for column in zip(*entries, strict=True)], schema)
    versioned = rows.join(F.broadcast(dataframe_of(rows.sparkSession, versions)), _FILE, "left")
    unknown = F.raise_error(F.concat(F.lit("no commit is known to have added "), _FILE)).cast(T.LongType())
    return versioned.withColumn(_VERSION, F.coalesce(_VERSION, unknown))


def _is_newest(number: int, keys: tuple[str, ...]) -> Column:
    """Whether no later upsert by ``keys`` replaced a row."""
    from pyspark.sql import Window

    same = Window.partitionBy(*map(quoted, keys))
    return F.col(_VERSION) >= F.coalesce(F.max(f"{_REPLACES}{number}").over(same), F.lit(-1))


def affected_rows(spark: SparkSession, handle: TableHandle, changes: TableChanges) -> Iterator[DataFrame]:
    """The rows that ``changes`` added, and the former rows that they replaced or removed.

    Rows that existed only between two of the commits may be missing: nobody has read them.
    """
    yield read_files(spark, handle, {file.path: file for file in changes.files}.values())
    if not changes.gone:
        return
    old = read_files(spark, handle, changes.gone)
    key_sets = {commit.keys for commit in changes.commits if commit.takes_rows}
    if len(key_sets) != 1 or any(commit.kind != "rows" for commit in changes.commits if commit.takes_rows):
        # Their keys do not show which of the rows came back in other files.
        yield old
        return
    (keys,) = key_sets
    yield _matched(old, read_files(spark, handle, changes.files), keys, "left_semi")
    if any(commit.deleted for commit in changes.commits):
        live = {file.path for file in handle.live_files}
        moved = [file for commit in changes.commits for file in commit.moved if file.path in live]
        yield _matched(old, read_files(spark, handle, moved), keys, "left_anti")


def _matched(rows: DataFrame, others: DataFrame, keys: tuple[str, ...], how: str) -> DataFrame:
    return rows.alias("t").join(others.select(*map(quoted, keys)).alias("b"), same_keys(keys), how)
