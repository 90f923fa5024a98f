"""Schemas of rows and tables: what can be stored, what must be there, and rows brought into a table's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odi_assets.delta.schema_evolution import UNDECIDED
from odi_assets.delta.table import TableHandle
from odi_assets.delta.types import type_name
from odi_assets.errors import TableError
from odi_assets.spark.lazy import F, T
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_STORABLE = re.compile(
    r"string|long|integer|short|byte|float|double|boolean|binary|date|timestamp|timestamp_ntz"
    r"|decimal\(\d+,\s*\d+\)|(?:var)?char\(\d+\)"
)
"""Delta's primitive types (protocol, "Primitive Types"), and what Spark stores as text. Others need table features: a
table that gets a VARIANT column without its feature cannot be opened afterwards."""

# What of a column's description does not matter for its values, as Spark writes Parquet: every column is nullable.
_RELAXED: dict[str, Any] = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}


def delta_schema(df: DataFrame, uri: str) -> str:
    """The schema of ``df`` in Delta's JSON form, every field nullable, as Spark writes Parquet.

    Raises:
        TableError: a column has a type that Delta cannot store, or two have one name.
    """
    text = df.schema.json()
    schema = json.loads(text, object_hook=lambda part: {key: _RELAXED.get(key, part[key]) for key in part})
    spelled: dict[str, str] = {}
    for name in (field["name"] for field in schema["fields"]):
        if name.lower() in spelled:
            raise TableError(
                f"the rows for {uri} have two columns `{spelled[name.lower()]}` and `{name}`; names know no capitals",
                fix="give one of them another name in the transform",
                uri=uri,
                column=name,
            )
        spelled[name.lower()] = name
    for field in schema["fields"]:
        if "\0" in field["name"]:
            raise TableError(
                f"a column is named {field['name']!r}; Delta stores no name with the character NUL ({uri})",
                fix="correct the name, in the header of a file for example",
                uri=uri,
                column=field["name"],
            )
        kind = next(_not_storable(field["type"]), None)
        if kind == "void" and kind != field["type"]:
            raise TableError(
                f"column `{field['name']}` is {type_name(field['type'])}: nothing in the rows says what type void is, "
                f"and the table at {uri} has no such column",
                fix="name the columns in `read.schema`, this one with a whole type, such as ARRAY<STRING>; or leave it "
                "out in the transform until there are rows with values in it",
                uri=uri,
                column=field["name"],
            )
        if kind is not None:
            inside = "" if kind == field["type"] else ", within it,"
            raise TableError(
                f"column `{field['name']}` has{inside} type {kind}, which Delta cannot store ({uri})",
                fix=f"cast it in the transform, for example CAST({field['name']} AS STRING); or, if files have it, "
                "name the columns to read in `read.schema`, without it",
                uri=uri,
                column=field["name"],
            )
    return json.dumps(schema)


def is_storable(kind: Any) -> bool:
    """Whether Delta can store values of a type in Spark's JSON form."""
    return next(_not_storable(kind), None) is None


def _not_storable(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        if not _STORABLE.fullmatch(kind):
            yield kind
        return
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    for inner_kind in (*inner, *(field["type"] for field in kind.get("fields", ()))):
        yield from _not_storable(inner_kind)


def with_open_types(df: DataFrame, handle: TableHandle) -> DataFrame:
    """``df`` with the table's types for columns whose type is open: files have no value in them. What the table lacks
    is left out, until rows come that say what type it has."""
    open_ones = {field.name for field in df.schema if UNDECIDED in field.metadata}
    if not open_ones:
        return df
    fields = json.loads(handle.schema_json)["fields"] if handle.exists else []
    known = {field["name"].lower(): field["type"] for field in fields}
    columns = []
    for field in df.schema:
        value = F.col(quoted(field.name))
        if field.name in open_ones:
            kind = _closed(json.loads(field.dataType.json()), known.get(field.name.lower()))
            if kind is None:
                continue
            target = spark_schema(json.dumps({"type": "struct", "fields": [{**_RELAXED, "name": "v", "type": kind}]}))
            value = as_type(value, field.dataType, target[0].dataType).alias(field.name, metadata={})
        columns.append(value)
    return df.select(*columns)


def _closed(rows: Any, table: Any) -> Any:
    """A type of rows without parts of the type of no value: with the table's type there, or left out.

    Returns:
        None if nothing is left; within a list or a map, whose values say how many there are, ``void`` is left then.
    """
    if rows == "void":
        return table
    if not isinstance(rows, dict):
        return rows
    table_type = table if isinstance(table, dict) and table["type"] == rows["type"] else {}
    if rows["type"] != "struct":
        parts = ("elementType", "keyType", "valueType")
        return {**rows, **{part: _closed(rows[part], table_type.get(part)) or "void" for part in parts if part in rows}}
    known = {field["name"].lower(): field["type"] for field in table_type.get("fields", ())}
    closed = [(field, _closed(field["type"], known.get(field["name"].lower()))) for field in rows["fields"]]
    fields = [{**field, "type": kind} for field, kind in closed if kind is not None]
    return {**rows, "fields": fields} if fields else rows


def require_same_partitioning(handle: TableHandle, partition_by: Sequence[str]) -> None:
    """Raises TableError if the table is partitioned otherwise."""
    if tuple(partition_by) != handle.partition_columns:
        raise TableError(
            f"the table at {handle.location.uri} is partitioned by {list(handle.partition_columns)}, "
            f"and the node asks for {list(partition_by)}",
            fix="make `partition_by` agree, or write to another path: partitioning is fixed when a table is made",
            uri=handle.location.uri,
        )


def require_partitioned(columns: Sequence[str], present: Sequence[str], uri: str) -> None:
    """Raises TableError if the rows lack one of the partition ``columns``, or have no others, which files hold."""
    require_columns(columns, present, "partition", uri)
    if columns and len(columns) == len(present):
        raise TableError(
            f"the rows for {uri} have no column but those that the table is partitioned by, {', '.join(columns)}",
            fix="partition by fewer columns, or add one to the rows",
            uri=uri,
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


def delete_marker(df: DataFrame, name: str, uri: str) -> str:
    """The column that ``delete_when`` names, as ``df`` spells it.

    Raises:
        TableError: there is no such column, or it is not BOOLEAN.
    """
    marker = spelled_as(name, df.columns)
    require_columns([marker], df.columns, "`delete_when`", uri)
    kind = df.schema[marker].dataType.simpleString()
    if kind != "boolean":
        raise TableError(
            f"`delete_when` of {uri} names `{marker}`, which is {kind} and not boolean",
            fix=f"make it a condition in the transform, for example {marker} = 'D' AS {marker}",
            uri=uri,
            column=marker,
        )
    return marker


def spark_schema(schema_json: str) -> StructType:
    """A Delta schema as Spark's."""
    return T.StructType.fromJson(json.loads(schema_json))


def aligned(df: DataFrame, schema_json: str, extra: Sequence[str] = ()) -> DataFrame:
    """``df`` with the columns of a table: its names, its order, its types. Columns that ``df`` lacks are NULL.

    Args:
        extra: columns of ``df`` to keep beside them.
    """
    rows, table = df.schema.fields, spark_schema(schema_json).fields
    if not extra and [_shape(field) for field in rows] == [_shape(field) for field in table]:
        return df
    columns = _columns(rows, table, lambda name: F.col(quoted(name)))
    return df.select(*columns, *map(F.col, map(quoted, extra)))


def _shape(field: StructField) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()


def _columns(rows: list[StructField], table: list[StructField], value: Callable[[str], Column]) -> list[Column]:
    """For each field of ``table``, the ``value`` of the one in ``rows`` that has its name, capitals aside."""
    row_fields = {field.name.lower(): field for field in rows}
    columns = []
    for field in table:
        own = row_fields.get(field.name.lower())
        missing = F.lit(None).cast(field.dataType)
        column = missing if own is None else as_type(value(own.name), own.dataType, field.dataType)
        columns.append(column.alias(field.name))
    return columns


def as_type(value: Column, source: DataType, target: DataType) -> Column:
    """A value of type ``source`` as one of ``target``: parts of a STRUCT by their names, which know no capitals.

    Where one of the types is the type of no value, the result is NULL.
    """
    if isinstance(source, T.NullType) or isinstance(target, T.NullType):
        return F.lit(None).cast(target)
    if source.simpleString() == target.simpleString():
        return value
    if isinstance(source, T.StructType) and isinstance(target, T.StructType):
        return F.when(value.isNotNull(), F.struct(*_columns(source.fields, target.fields, value.getField)))
    if isinstance(source, T.ArrayType) and isinstance(target, T.ArrayType):
        inner, wanted = source.elementType, target.elementType
        return F.transform(value, lambda item: as_type(item, inner, wanted))
    if isinstance(source, T.MapType) and isinstance(target, T.MapType):
        keys, values = (source.keyType, target.keyType), (source.valueType, target.valueType)

        def entry(pair: Column) -> Column:
            return F.struct(as_type(pair.getField("key"), *keys), as_type(pair.getField("value"), *values))

        return F.map_from_entries(F.transform(F.map_entries(value), entry))
    return value.cast(target)
