"""The schema that a table has after a write of a DataFrame, whichever engine writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.delta.schema_evolution import plan_schema, replaced_schema
from odi_assets.delta.table import TableHandle
from odi_assets.tables.engine import WriteSpec
from odi_assets.tables.schema import delta_schema, require_columns, require_partitioned, spelled_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def schema_after(df: DataFrame, handle: TableHandle, spec: WriteSpec) -> tuple[str, list[str], list[str]]:
    """The table's schema after a write of ``df``, the columns it gains, and the columns of the rows that are left out.

    Raises:
        TableError: the table cannot take these columns, or the rows lack one that the write names.
    """
    keeps_columns = handle.exists and not spec.mode.traits.replaces_columns
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
    if not keeps_columns:
        return replaced_schema(handle, schema_json), [], []
    return plan_schema(handle, schema_json, spec.schema_policy)
