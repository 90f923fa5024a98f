"""Texts of Parquet files, which are to be UTF-8, and which Spark takes as they are.

A table with other bytes in a text can be read by Spark alone: other readers of Delta stop at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from odi_assets.spark.lazy import F, T
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def stopping_texts(rows: DataFrame, kinds: StructType) -> dict[str, Column]:
    """The columns of ``kinds`` that hold texts, by name; a text with bytes that are not UTF-8 stops the read.

    Args:
        rows: as Spark reads them from files, not selected from yet.
    """
    # Of input_file_name() Spark does not know that it is the same for a row each time: no condition would reach the
    # files, and each row group would be read.
    path = rows.metadataColumn("_metadata").getField("file_path")
    columns = {}
    for field in kinds:
        own = F.col(quoted(field.name))
        wrong = not_utf_8(own, field.dataType)
        if wrong is None:
            continue
        fix = (
            f"land the file again with UTF-8 in its texts; or name the columns in `read.schema`: `{field.name}` as "
            "BINARY keeps the bytes of a text; or `read.strict: false` takes them for a text; nothing was loaded"
        )
        text = F.substring(F.make_valid_utf8(own), 1, 100) if field.dataType.typeName() == "string" else F.lit("a text")
        stopped = stopped_by(path, f": column `{field.name}`: ", text, " has bytes that are not UTF-8", fix=fix)
        columns[field.name] = F.when(wrong, stopped.cast(field.dataType)).otherwise(own)
    return columns


def with_utf_8(rows: DataFrame) -> DataFrame:
    """``rows`` as Spark reads them from files; a text with bytes that are not UTF-8 stops the read."""
    values = stopping_texts(rows, rows.schema)
    if not values:
        return rows
    return rows.select(*[values.get(name, F.col(quoted(name))).alias(name) for name in rows.columns])


def not_utf_8(column: Column, kind: DataType) -> Column | None:
    """Whether a value is, or holds, a text that is not UTF-8; None if it holds no texts. NULL counts as no."""
    if isinstance(kind, T.StringType):
        return ~F.is_valid_utf8(column)
    if isinstance(kind, T.StructType):
        parts = [not_utf_8(column.getField(field.name), field.dataType) for field in kind]
        return _any([part for part in parts if part is not None])
    if isinstance(kind, T.ArrayType):
        return _in_one(column, kind.elementType)
    if isinstance(kind, T.MapType):
        keys, values = _in_one(F.map_keys(column), kind.keyType), _in_one(F.map_values(column), kind.valueType)
        return _any([part for part in (keys, values) if part is not None])
    return None


def _in_one(values: Column, kind: DataType) -> Column | None:
    if not_utf_8(F.lit(None).cast(kind), kind) is None:
        return None
    wrong = cast("Callable[[Column], Column]", lambda inner_value: not_utf_8(inner_value, kind))
    return F.exists(values, lambda inner_value: F.coalesce(wrong(inner_value), F.lit(False)))


def _any(columns: list[Column]) -> Column | None:
    if not columns:
        return None
    condition = F.coalesce(columns[0], F.lit(False))
    for column in columns[1:]:
        condition = condition | F.coalesce(column, F.lit(False))
    return condition
