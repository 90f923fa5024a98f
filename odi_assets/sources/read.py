"""Plans of sources → lazy DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from odi_assets.delta.changes import CommitChange, TableChanges
from odi_assets.delta.file_pruning import files_in_partitions
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import SourceError
from odi_assets.sources.cursor.columns import require_times, window_condition, without_ties
from odi_assets.sources.model import PartitionFilter, ReadPlan
from odi_assets.tables.columns import quoted, same_keys
from odi_assets.tables.reader import read_files, read_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STRICT_OPTIONS = {
    # Spark's own default turns a line it cannot parse into NULLs, which loses it without a word.
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
}
"""Reader options unless the project file says otherwise."""


def load(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    """The rows that ``plan`` names; nothing is read before an action asks for them."""
    rows = _whole(spark, plan)
    if plan.window is not None:
        if plan.window.upper is None and plan.stateful is None:
            require_times(rows, plan.window.column, plan.label)
        rows = without_ties(rows.where(window_condition(rows, plan.window)), plan.window)
    return rows


def _whole(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    if plan.handle is None:
        rows = _files(spark, plan)
        wanted = plan.partitions
        if wanted is None or wanted.pending:
            return rows
        return rows.where(partition_condition(rows, wanted.column, wanted.values))
    if plan.changes is not None:
        return changed_rows(spark, plan.handle, plan.changes)
    if plan.partitions is not None and not plan.partitions.pending:
        return _partitions(spark, plan.handle, plan.partitions)
    return read_table(spark, plan.handle)


def _files(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    from pyspark.errors import AnalysisException

    reader = spark.read.format(plan.format).options(**plan.location.reader_options)
    options = {**STRICT_OPTIONS.get(plan.format, {}), **plan.options}
    if plan.schema_ddl:
        reader = reader.schema(plan.schema_ddl)
    else:
        # Names of columns only make sense against a schema; inferring one takes Spark a pass of its own.
        options = {**options, "enforceSchema": "true"} if plan.format == "csv" else options
    paths = [plan.location.child(file.path).spark_path for file in plan.files or ()]
    if not paths:
        if not plan.schema_ddl:
            raise SourceError(
                f"{plan.label}: all its files are empty, so there is none to take a schema from",
                fix="land a file with content, or name the columns in `read.schema`",
                path=plan.location.uri,
            )
        return spark.createDataFrame([], plan.schema_ddl)
    try:
        return reader.options(**options).load(paths)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise SourceError(
            f"{plan.label}: a file went away since the run was planned: {error}",
            fix="run the node again: nothing was written, and it takes the files that are there then",
            path=plan.location.uri,
        ) from error


def _partitions(spark: SparkSession, handle: TableHandle, wanted: PartitionFilter) -> DataFrame:
    files = files_in_partitions(handle, wanted.column, wanted.values)
    rows = read_files(spark, handle, files)
    return rows.where(partition_condition(rows, wanted.column, wanted.values))


def partition_condition(rows: DataFrame, column: str, values: Sequence[str | None]) -> Column:
    """``column`` is one of ``values``, which are text as Delta writes partition values; NULL is a value too."""
    from pyspark.sql import functions as F

    kind = rows.schema[column].dataType
    filled = [F.lit(value).cast(kind) for value in values if value is not None]
    name = F.col(quoted(column))
    condition = name.isin(filled) if filled else F.lit(False)
    return condition | name.isNull() if None in values else condition


def changed_rows(spark: SparkSession, handle: TableHandle, changes: TableChanges) -> DataFrame:
    """The rows that ``changes`` brought, each key once, as its newest commit has it."""
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
        stayed = read_files(spark, handle, commit.carried)
        return old.alias("t").join(
            stayed.select(*map(quoted, commit.keys)).alias("b"), same_keys(commit.keys), "left_anti"
        )
    new = read_files(spark, handle, commit.files)
    return old.alias("t").join(new.select(*map(quoted, commit.keys)).alias("b"), same_keys(commit.keys), "left_semi")
