"""Columns in Spark's DDL, as Spark's types."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from odi_assets.spark.lazy import T

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def struct_of(ddl: str) -> StructType:
    """The columns that a DDL text names. It needs a session, classic or of Spark Connect.

    An empty frame has them too, but PySpark imports pandas to make one.
    """
    return cast(T.StructType, T.StructType.fromDDL(ddl))
