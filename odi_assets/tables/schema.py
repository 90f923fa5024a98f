"""Schemas of DataFrames against those of tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odi_assets.errors import TableError
from odi_assets.tables.handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_STORABLE = ("void", "interval", "calendarinterval")


def delta_schema(df: DataFrame, uri: str) -> str:
    """The schema of ``df`` in Delta's JSON form, every field nullable, as Spark writes Parquet.

    Raises:
        TableError: a column has a type that Delta cannot store.
    """
    schema = json.loads(df.schema.json())
    for field in schema["fields"]:
        kind = field["type"]
        if isinstance(kind, str) and kind.startswith(_NOT_STORABLE):
            raise TableError(
                f"column `{field['name']}` has type {kind}, which Delta cannot store ({uri})",
                fix=f"cast it in the transform, for example CAST({field['name']} AS STRING)",
                uri=uri,
                column=field["name"],
            )
    return json.dumps(_nullable(schema))


def _nullable(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    relaxed = {
        key: _nullable(value) if key in {"elementType", "valueType", "keyType", "type"} else value
        for key, value in kind.items()
    }
    if "fields" in relaxed:
        relaxed["fields"] = [{**_nullable(field), "nullable": True, "metadata": {}} for field in relaxed["fields"]]
    if "containsNull" in relaxed:
        relaxed["containsNull"] = True
    if "valueContainsNull" in relaxed:
        relaxed["valueContainsNull"] = True
    return relaxed


def require_same_partitioning(handle: TableHandle, partition_by: Sequence[str]) -> None:
    """Raises TableError if the table exists and is partitioned otherwise."""
    if handle.exists and tuple(partition_by) != handle.partition_columns:
        raise TableError(
            f"the table at {handle.location.uri} is partitioned by {list(handle.partition_columns)}, "
            f"and the node asks for {list(partition_by)}",
            fix="make `partition_by` agree, or write to another path: partitioning is fixed when a table is made",
            uri=handle.location.uri,
        )


def require_columns(columns: Sequence[str], present: Sequence[str], role: str, uri: str) -> None:
    """Raises TableError naming the ``columns`` that are not ``present``; ``role`` says what they are for."""
    missing = [column for column in columns if column not in present]
    if missing:
        raise TableError(
            f"the rows for {uri} have no {role} column {', '.join(f'`{name}`' for name in missing)}; "
            f"they have {', '.join(present)}",
            fix=f"select the {role} columns in the transform, or correct their names in the project file",
            uri=uri,
        )


def require_same_columns(handle: TableHandle, schema_json: str) -> None:
    """Raises TableError if rows of this schema do not fit the table: a new column, or one of another type."""
    table = handle.columns
    fields = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
    new = [name for name in fields if name not in table]
    if new:
        raise TableError(
            f"the table at {handle.location.uri} has no column {', '.join(f'`{name}`' for name in new)}",
            fix="drop the column in the transform, or rebuild the table with its new schema: odi run --full-refresh",
            uri=handle.location.uri,
        )
    for name, kind in fields.items():
        if _plain(kind) != _plain(table[name]):
            raise TableError(
                f"column `{name}` of the table at {handle.location.uri} is {_name(table[name])}; "
                f"the rows to write have {_name(kind)}",
                fix=f"cast it in the transform: CAST({name} AS {_name(table[name]).upper()})",
                uri=handle.location.uri,
                column=name,
            )


def _plain(kind: Any) -> Any:
    """A type without nullability and field metadata, which do not decide whether values fit."""
    if isinstance(kind, dict):
        return {
            key: _plain(value)
            for key, value in kind.items()
            if key not in {"nullable", "metadata", "containsNull", "valueContainsNull"}
        }
    return [_plain(item) for item in kind] if isinstance(kind, list) else kind


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(_plain(kind))
