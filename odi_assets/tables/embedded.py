"""The embedded engine: Spark's executors write Parquet, the driver commits the footers through deltalake.

Needs nothing beyond PyPI. What the driver holds grows with the number of files, never with the rows in them.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from odi_assets.connections.location import Location
from odi_assets.delta.commit import FileChanges, Stamp, commit, require_unfenced
from odi_assets.delta.protocol import require_removable, require_writable, with_features
from odi_assets.delta.retry import raced
from odi_assets.delta.table import TableHandle, rows_in
from odi_assets.errors import TableConflictError, TableError
from odi_assets.tables.engine import WriteResult, WriteSpec
from odi_assets.tables.modes.base import Write, mode_of
from odi_assets.tables.reader import read_staged, read_table
from odi_assets.tables.schema import (
    aligned,
    delete_marker,
    delta_schema,
    require_columns,
    require_partitioned,
    require_same_partitioning,
    spelled_as,
    with_open_types,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class EmbeddedEngine:
    """Writes DataFrames into Delta tables and reads them back."""

    def open(self, location: Location) -> TableHandle:
        """The table as it is now, or a handle that says it does not exist."""
        return TableHandle.open(location)

    def read(self, spark: SparkSession, handle: TableHandle) -> DataFrame:
        """The rows of the handle's version."""
        return read_table(spark, handle)

    def write(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        """Write ``df`` in one commit on ``handle``, or leave the table as it was.

        A write that conflicts with a concurrent change starts over on the table as it is then, unless its fence is
        taken or its rows hold only for the table as it was.

        Raises:
            FencedError: another run committed this fence number first.
            TableConflictError: another writer changed what this write was computed from.
            TableError: the table cannot take these rows: schema, partitioning or protocol.
        """
        try:
            return _write(df, handle, spec, stamp)
        except TableConflictError:
            if not handle.exists or not stamp.fences:
                raise
        return raced(
            lambda: _write_again(df, handle.refreshed(), spec, stamp),
            lost=lambda error: isinstance(error, TableConflictError),
        )


def write_computed_once(
    df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp, *, is_small: bool = False
) -> WriteResult:
    """Write ``df`` as :meth:`EmbeddedEngine.write` does, and compute it once, whatever happens: a batch of a stream.

    A write that depends on the table's rows, and may have to start over, works from staged files.

    Args:
        is_small: its rows fit into the memory of this process.

    Raises:
        FencedError, TableConflictError, TableError: as :meth:`EmbeddedEngine.write` does.
    """
    if spec.mode.traits.computed_from == "nothing":
        return _write(df, handle, spec, stamp, is_small=is_small)
    schema_json = delta_schema(df, handle.location.uri)
    first = Write(
        df,
        handle,
        replace(spec, partition_by=()),
        replace(stamp, write_id=uuid.uuid4().hex),
        schema_json,
        is_small=is_small,
    )
    rows = read_staged(df.sparkSession, handle.location, first.stage(df), schema_json)
    try:
        return EmbeddedEngine().write(rows, handle, spec, stamp)
    finally:
        first.discard()


def _write_again(df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
    require_unfenced(handle, stamp)
    return _write(df, handle, spec, replace(stamp, write_id=uuid.uuid4().hex))


def _write(df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp, *, is_small: bool = False) -> WriteResult:
    if handle.exists:
        require_writable(handle)
        require_same_partitioning(handle, spec.partition_by)
    if spec.delete_when is not None:
        spec = replace(spec, delete_when=delete_marker(df, spec.delete_when, handle.location.uri))
    df = with_open_types(df, handle)
    keeps_columns = handle.exists and not spec.mode.traits.replaces_columns
    schema_json, added, ignored = _schema_plan(df, handle, spec, keeps_columns)
    if handle.exists:
        handle = with_features(handle, schema_json)
    if keeps_columns:
        df = aligned(df, schema_json, spec.beside)
    write = Write(df, handle, spec, stamp, schema_json, bool(added), is_small)
    if spec.declared not in (None, spec.mode):
        write = replace(write, df=mode_of(spec.declared).rows_to_store(write))
    changes = _admitted(write) if handle.exists else mode_of(spec.mode).stage(write)
    changes = replace(
        changes,
        keys=spec.keys,
        computed_from=spec.mode.traits.computed_from,
        replace_all=changes.replace_all or bool(added and changes.removed),
        new_schema=bool(added and not changes.removed),
    )
    version = commit(handle, schema_json, spec.partition_by, changes, stamp)
    stored = write.df.drop(*write.spec.beside)
    columns = tuple((field.name, field.dataType.simpleString()) for field in stored.schema)
    return replace(
        result_of(write, changes, version, columns), columns_added=tuple(added), columns_ignored=tuple(ignored)
    )


def _admitted(write: Write) -> FileChanges:
    """The files of the write, staged, after a check of what the table demands of rows.

    Raises:
        TableError: the table does not admit the rows, or the removal of others; no file is left of the write.
    """
    from odi_assets.tables.rules import require_kept, rules_of

    handle, mode = write.handle, write.spec.mode
    rules = rules_of(handle, write.schema_json, write.df)
    if mode.traits.replaces_columns and handle.live_files:
        require_removable(handle, f"`{mode}`")
    changes = mode_of(mode).stage(write)
    try:
        if changes.removed:
            require_removable(handle, f"`{mode}`")
        staged = partial(read_staged, write.spark, handle.location, changes.new, write.schema_json)
        require_kept(rules, changes.new, staged, write.uri)
    except TableError:
        write.discard()
        raise
    return changes


def _schema_plan(
    df: DataFrame, handle: TableHandle, spec: WriteSpec, keeps_columns: bool
) -> tuple[str, list[str], list[str]]:
    """The table's schema after the commit, the columns it gains, and the columns of the rows that are left out."""
    stored = df.drop(*spec.beside)
    uri = handle.location.uri
    schema_json = delta_schema(stored, uri)
    # Rows that join a table take on the spelling of its columns.
    present = [spelled_as(name, list(handle.columns)) for name in stored.columns] if keeps_columns else stored.columns
    require_columns(spec.keys, present, "key", uri)
    require_partitioned(spec.partition_by, present, uri)
    if spec.only_if_newer:
        require_columns([spec.only_if_newer], present, "`only_if_newer`", uri)
    if not handle.exists:
        return schema_json, [], []
    from odi_assets.delta.schema_evolution import plan_schema, replaced_schema

    if not keeps_columns:
        return replaced_schema(handle, schema_json), [], []
    return plan_schema(handle, schema_json, spec.schema_policy)


def result_of(write: Write, changes: FileChanges, version: int, columns: tuple[tuple[str, str], ...]) -> WriteResult:
    """What the commit of ``version`` did; ``columns`` are the table's columns, with their types."""
    added = [*changes.new, *changes.moved]
    changed = [*(file.partition for file in changes.new), *changes.partitions]
    partitions = {tuple(sorted(values.items())): values for values in changed if values}
    before: int | None = 0
    next_version = 0
    if write.handle.version is not None:
        before, next_version = write.handle.rows, write.handle.version + 1
    gone = rows_in(changes.removed)
    rows_total = None if before is None or gone is None else before - gone + sum(file.rows for file in added)
    if version != next_version:
        # Others committed in between, so only the table itself knows.
        rows_total = TableHandle.open(write.handle.location, version).rows
    null_first = sorted(partitions, key=lambda items: [(value is not None, value or "") for _, value in items])
    return WriteResult(
        version=version,
        rows_written=sum(file.rows for file in changes.new),
        rows_updated=changes.rows_updated,
        rows_total=rows_total,
        files_added=len(added),
        files_removed=len(changes.removed),
        bytes_written=sum(file.size for file in added),
        partitions=tuple(partitions[items] for items in null_first),
        rows_deleted=changes.rows_deleted,
        columns=columns,
    )
