"""The embedded engine: Spark's executors write Parquet, the driver commits the footers through deltalake.

Needs nothing beyond PyPI. What the driver holds grows with the number of files, never with the rows in them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp, commit, require_unfenced
from odi_assets.delta.conflicts import BASES
from odi_assets.delta.protocol import require_writable, with_features
from odi_assets.delta.schema_evolution import SchemaPlan, plan_schema
from odi_assets.delta.table import LiveFile, TableHandle, rows_in
from odi_assets.delta.types import WriteResult, WriteSpec
from odi_assets.errors import TableConflictError
from odi_assets.tables.alignment import aligned
from odi_assets.tables.modes import MODES, Outcome, Write, single_rows
from odi_assets.tables.reader import read_table, spark_schema
from odi_assets.tables.schema import (
    delta_schema,
    require_boolean,
    require_columns,
    require_same_partitioning,
    spelled_as,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS = 3
"""How often a write is begun that meets concurrent changes of the files it removes, a compaction for example."""


class EmbeddedEngine:
    """Implements :class:`odi_assets.delta.types.TableEngine` without any JAR."""

    def open(self, location: Location) -> TableHandle:
        """The table as it stands now, or a handle that says it does not exist."""
        return TableHandle.open(location)

    def read(self, spark: SparkSession, handle: TableHandle) -> DataFrame:
        """The rows of the handle's version."""
        return read_table(spark, handle)

    def write(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        """Write ``df`` in one commit on ``handle``; see :meth:`TableEngine.write`.

        A write that met a concurrent change of the table is begun again from the table as it is then, unless its
        fence is taken or its rows hold only for the table as it was.
        """
        for _ in range(1, _ATTEMPTS):
            try:
                return _write(df, handle, spec, stamp)
            except TableConflictError:
                if not handle.exists or not stamp.fences:
                    raise
                handle = handle.refreshed()
                require_unfenced(handle, stamp)
                stamp = replace(stamp, write_id=uuid.uuid4().hex)
        return _write(df, handle, spec, stamp)


def _write(df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
    require_writable(handle)
    require_same_partitioning(handle, spec.partition_by)
    df, marker = _with_marker(df, spec, handle.location.uri)
    plan = _schema_plan(df, handle, spec, marker)
    handle = with_features(handle, plan.schema_json)
    if handle.exists and spec.mode is not WriteMode.OVERWRITE:
        df = aligned(df, plan, marker)
    write = Write(df, handle, replace(spec, delete_when=marker), stamp, plan.schema_json, bool(plan.added))
    outcome = MODES[spec.mode](single_rows(write))
    changes = replace(
        outcome.changes,
        rows_written=sum(file.rows for file in outcome.new),
        rows_updated=outcome.updated,
        rows_deleted=outcome.deleted,
        keys=spec.keys,
        basis=BASES[spec.mode],
        partitions=outcome.partitions,
    )
    version = commit(handle, plan.schema_json, spec.partition_by, changes, stamp)
    return _result(handle, outcome, plan, version)


def _with_marker(df: DataFrame, spec: WriteSpec, uri: str) -> tuple[DataFrame, str | None]:
    if spec.delete_when is None:
        return df, None
    marker = spelled_as(spec.delete_when, df.columns)
    require_columns([marker], df.columns, "`delete_when`", uri)
    require_boolean(df, marker, uri)
    return df, marker


def _schema_plan(df: DataFrame, handle: TableHandle, spec: WriteSpec, marker: str | None) -> SchemaPlan:
    stored = df.drop(marker) if marker else df
    uri = handle.location.uri
    schema_json = delta_schema(stored, uri)
    adds = handle.exists and spec.mode is not WriteMode.OVERWRITE
    # Rows that join a table take on the spelling of its columns.
    present = [spelled_as(name, list(handle.columns)) for name in stored.columns] if adds else stored.columns
    require_columns(spec.keys, present, "key", uri)
    require_columns(spec.partition_by, present, "partition", uri)
    if spec.only_if_newer:
        require_columns([spec.only_if_newer], present, "`only_if_newer`", uri)
    return plan_schema(handle, schema_json, spec.schema_policy) if adds else SchemaPlan(schema_json)


def _result(handle: TableHandle, outcome: Outcome, plan: SchemaPlan, version: int) -> WriteResult:
    removed: Sequence[LiveFile] = outcome.changes.removed
    rows_new = sum(file.rows for file in outcome.new)
    return WriteResult(
        version=version,
        rows_written=rows_new,
        rows_updated=outcome.updated,
        rows_total=_rows_total(handle, outcome, version),
        files_added=len(outcome.new) + len(outcome.carried),
        files_removed=len(removed),
        bytes_written=sum(file.size for file in [*outcome.new, *outcome.carried]),
        partitions=tuple(outcome.partitions),
        rows_deleted=outcome.deleted,
        columns=tuple((field.name, field.dataType.simpleString()) for field in spark_schema(plan.schema_json).fields),
        columns_added=tuple(plan.added),
        columns_ignored=tuple(plan.ignored),
    )


def _rows_total(handle: TableHandle, outcome: Outcome, version: int) -> int | None:
    if version != (0 if handle.version is None else handle.version + 1):
        # Others committed in between, so only the table itself knows.
        return TableHandle.open(handle.location, version).rows
    before, gone = handle.rows if handle.exists else 0, rows_in(outcome.changes.removed)
    if before is None or gone is None:
        return None
    return before - gone + sum(file.rows for file in [*outcome.new, *outcome.carried])
