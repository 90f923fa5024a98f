"""Rows brought into the shape of a table: its names, its order, its types; columns they lack are NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.tables.reader import quoted, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

    from odi_assets.delta.schema_evolution import SchemaPlan


def aligned(df: DataFrame, plan: SchemaPlan, extra: str | None = None) -> DataFrame:
    """``df`` with the columns of the plan's schema; ``extra`` names a column to keep beside them."""
    from pyspark.sql import functions as F

    rows, table = df.schema.fields, spark_schema(plan.schema_json).fields
    if extra is None and [_shape(field) for field in rows] == [_shape(field) for field in table]:
        return df
    given = {field.name.lower(): field for field in rows}
    columns = [_column(given.get(field.name.lower()), field) for field in table]
    return df.select(*columns, *([F.col(quoted(extra))] if extra else []))


def _shape(field: StructField) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()


def _column(source: StructField | None, target: StructField) -> Column:
    from pyspark.sql import functions as F

    if source is None:
        return F.lit(None).cast(target.dataType).alias(target.name)
    return _converted(F.col(quoted(source.name)), source.dataType, target.dataType).alias(target.name)


def _converted(value: Column, source: DataType, target: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if source.simpleString() == target.simpleString():
        return value
    if isinstance(source, StructType) and isinstance(target, StructType):
        given = {field.name.lower(): field for field in source.fields}
        members = []
        for field in target.fields:
            own = given.get(field.name.lower())
            member = (
                F.lit(None).cast(field.dataType)
                if own is None
                else _converted(value.getField(own.name), own.dataType, field.dataType)
            )
            members.append(member.alias(field.name))
        return F.when(value.isNotNull(), F.struct(*members))
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        inner, wanted = source.elementType, target.elementType
        return F.transform(value, lambda item: _converted(item, inner, wanted))
    if isinstance(source, MapType) and isinstance(target, MapType):
        keys, values = (source.keyType, target.keyType), (source.valueType, target.valueType)
        return F.map_from_entries(
            F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _converted(entry.getField("key"), *keys), _converted(entry.getField("value"), *values)
                ),
            )
        )
    return value.cast(target)
