"""Schemas of DataFrames against those of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STORABLE = re.compile(
    r"string|long|integer|short|byte|float|double|boolean|binary|date|timestamp|timestamp_ntz"
    r"|decimal\(\d+,\s*\d+\)|(?:var)?char\(\d+\)"
)
"""Delta's primitive types (protocol, "Primitive Types"), and what Spark stores as text. Others need table features: a
table that gets a VARIANT column without its feature cannot be opened afterwards."""


def delta_schema(df: DataFrame, uri: str) -> str:
    """The schema of ``df`` in Delta's JSON form, every field nullable, as Spark writes Parquet.

    Raises:
        TableError: a column has a type that Delta cannot store, or two have one name.
    """
    schema = json.loads(df.schema.json())
    _require_distinct_names([field["name"] for field in schema["fields"]], uri)
    for field in schema["fields"]:
        kind = next(_not_storable(field["type"]), None)
        if kind is not None:
            inside = "" if kind == field["type"] else ", within it,"
            raise TableError(
                f"column `{field['name']}` has{inside} type {kind}, which Delta cannot store ({uri})",
                fix=f"cast it in the transform, for example CAST({field['name']} AS STRING)",
                uri=uri,
                column=field["name"],
            )
    return json.dumps(_nullable(schema))


def _not_storable(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        if not _STORABLE.fullmatch(kind):
            yield kind
        return
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    for one in (*inner, *(field["type"] for field in kind.get("fields", ()))):
        yield from _not_storable(one)


def _require_distinct_names(names: Sequence[str], uri: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise TableError(
                f"the rows for {uri} have two columns `{seen[name.lower()]}` and `{name}`; names know no capitals",
                fix="give one of them another name in the transform",
                uri=uri,
                column=name,
            )
        seen[name.lower()] = name


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


def spelled_as(name: str, columns: Sequence[str]) -> str:
    """``name`` as ``columns`` spells it, capitals aside; as it is if it is not among them."""
    return next((column for column in columns if column.lower() == name.lower()), name)


def require_boolean(df: DataFrame, column: str, uri: str) -> None:
    """Raises TableError unless ``column`` of ``df`` is BOOLEAN."""
    kind = df.schema[column].dataType.simpleString()
    if kind != "boolean":
        raise TableError(
            f"`delete_when` of {uri} names `{column}`, which is {kind} and not boolean",
            fix=f"make it a condition in the transform, for example {column} = 'D' AS {column}",
            uri=uri,
            column=column,
        )


def with_boolean(schema_json: str, column: str) -> str:
    """The schema with a BOOLEAN column at its end."""
    schema = json.loads(schema_json)
    schema["fields"].append({"name": column, "type": "boolean", "nullable": True, "metadata": {}})
    return json.dumps(schema)
