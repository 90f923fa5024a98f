"""Columns of Parquet's type NULL: pandas and pyarrow write it for a column that has no value in a whole file.

Spark takes the type for INT, which it is on disk. Here it is the type of no value, which fits every other type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from odi_assets.delta.schema_evolution import UNDECIDED
from odi_assets.spark.lazy import F, T
from odi_assets.tables.columns import quoted
from odi_assets.tables.schema import as_type
from odi_assets.util.lazy import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


def with_nulls(rows: DataFrame, columns: pa.Schema) -> DataFrame:
    """``rows`` as Spark reads them, with the type of no value where the files have type NULL."""
    schema = types_with_nulls(rows.schema, columns)
    if schema is rows.schema or schema == rows.schema:
        return rows
    pairs = zip(rows.schema, schema, strict=True)
    return rows.select(
        *[as_type(F.col(quoted(own.name)), own.dataType, field.dataType).alias(own.name) for own, field in pairs]
    )


def types_with_nulls(schema: StructType, columns: pa.Schema) -> StructType:
    """The types of columns as Spark has them, with the type of no value where ``columns``, of the footer, have NULL."""
    whole = pa.struct(list(columns))
    return cast("StructType", _typed(schema, whole)) if any(_has_null(field.type) for field in columns) else schema


def has_nulls(kind: DataType) -> bool:
    """Whether a type is the type of no value, or has it within."""
    return isinstance(kind, T.NullType) or any(map(has_nulls, _inner(kind)))


def readable(kind: DataType) -> DataType:
    """The type that Spark reads files as that have a column of ``kind``: INT for the type of no value, BIGINT for
    Arrow's durations, which count units that Parquet does not name."""
    if isinstance(kind, T.NullType):
        return T.IntegerType()
    if isinstance(kind, T.DayTimeIntervalType):
        return T.LongType()
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, readable(field.dataType), field.nullable) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(readable(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(readable(kind.keyType), readable(kind.valueType), kind.valueContainsNull)
    return kind


def marked_as_open(rows: DataFrame) -> DataFrame:
    """``rows`` with a mark at each column whose type is open in part: whoever writes them may leave that part out."""
    schema = rows.schema
    if not any(has_nulls(field.dataType) for field in schema):
        return rows
    mark = {UNDECIDED: "true"}
    columns = [(F.col(quoted(field.name)), field) for field in schema]
    return rows.select(
        *[column.alias(field.name, metadata=mark) if has_nulls(field.dataType) else column for column, field in columns]
    )


def _inner(kind: DataType) -> Iterator[DataType]:
    if isinstance(kind, T.StructType):
        yield from (field.dataType for field in kind)
    elif isinstance(kind, T.ArrayType):
        yield kind.elementType
    elif isinstance(kind, T.MapType):
        yield kind.keyType
        yield kind.valueType


def _has_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_has_null(kind.field(index).type) for index in range(kind.num_fields))


def _typed(kind: DataType, own: pa.DataType) -> DataType:
    if pa.types.is_null(own):
        return T.NullType()
    if isinstance(kind, T.StructType) and pa.types.is_struct(own):
        of_file: dict[str, Any] = {own.field(index).name: own.field(index).type for index in range(own.num_fields)}
        return T.StructType(
            [
                T.StructField(
                    field.name, _typed(field.dataType, of_file[field.name]) if field.name in of_file else field.dataType
                )
                for field in kind
            ]
        )
    if isinstance(kind, T.ArrayType) and pa.types.is_list(own):
        return T.ArrayType(_typed(kind.elementType, own.value_type))
    if isinstance(kind, T.MapType) and pa.types.is_map(own):
        return T.MapType(kind.keyType, _typed(kind.valueType, own.item_type))
    return kind
