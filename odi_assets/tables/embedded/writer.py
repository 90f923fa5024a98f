"""Writes DataFrames: Spark's executors write Parquet, the driver commits the footers through deltalake."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.protocol import require_removable, require_writable, with_features
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.tables.engine import WriteResult, WriteSpec
from odi_assets.tables.modes.base import Write, mode_of
from odi_assets.tables.reader import read_staged
from odi_assets.tables.schema import aligned, delete_marker, require_same_partitioning, with_open_types
from odi_assets.tables.schema_plan import schema_after

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_dataframe(
    df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp, *, is_small: bool = False
) -> WriteResult:
    """Stage ``df`` and commit it on ``handle``.

    Args:
        is_small: its rows fit into the memory of this process.

    Raises:
        FencedError, TableConflictError, TableError: the table is as it was.
    """
    if handle.exists:
        require_writable(handle)
        require_same_partitioning(handle, spec.partition_by)
    if spec.delete_when is not None:
        spec = replace(spec, delete_when=delete_marker(df, spec.delete_when, handle.location.uri))
    df = with_open_types(df, handle)
    keeps_columns = handle.exists and not spec.mode.traits.replaces_columns
    schema_json, added, ignored = schema_after(df, handle, spec)
    if handle.exists:
        handle = with_features(handle, schema_json)
    if keeps_columns:
        df = aligned(df, schema_json, spec.beside)
    write = _looked_at(Write(df, handle, spec, stamp, schema_json, bool(added), is_small))
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
    result = WriteResult.of(handle, changes, version, columns)
    return replace(result, columns_added=tuple(added), columns_ignored=tuple(ignored))


def _looked_at(write: Write) -> Write:
    """The write with the rows that ``spec.admit`` lets through; the rows are computed once, and read from files then.

    Files of rows that are written in another form afterwards stay, and vacuum removes them.
    """
    spec = write.spec
    if spec.admit is None:
        return write
    own = replace(write, stamp=replace(write.stamp, write_id=uuid.uuid4().hex))
    files = own.stage(own.df)
    location = write.handle.location
    rows = read_staged(write.spark, location, files, write.schema_json, spec.delete_when, spec.delivery)
    try:
        some = spec.admit(rows, files)
    except BaseException:
        own.discard()
        raise
    if some is None:
        return replace(write, df=rows, staged=(rows, files))
    if spec.mode is WriteMode.PARTITION_OVERWRITE and spec.replace is None:
        # A partition of which no row is let through is replaced too.
        spec = replace(spec, replace=tuple(file.partition for file in files))
    return replace(write, df=some, spec=spec)


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
