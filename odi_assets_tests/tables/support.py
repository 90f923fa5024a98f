"""What the contract suite of a table engine shares: the engine, and tables as lists of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import StructType

from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.tables.embedded.engine import EmbeddedEngine
from odi_assets.tables.engine import WriteResult, engine_of

ENGINE = EmbeddedEngine()
APP = "odi_assets:test.node"
Write = Callable[..., WriteResult]


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
    """Rows as Spark Connect sends them; a classic session would have Python workers hand each of them over."""
    struct = StructType.fromDDL(schema)
    if not rows:
        return spark.createDataFrame([], struct)
    return spark.createDataFrame(LocalDataToArrowConversion.convert(rows, struct, False), struct)


def read_table(spark: SparkSession, handle: TableHandle) -> DataFrame:
    """The rows of the handle's version, read by the table's engine."""
    return engine_of(handle).read(spark, handle)


def rows_of(spark: SparkSession, table: Location, version: int | None = None) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(row) for row in read_table(spark, TableHandle.open(table, version)).collect()), key=lambda r: str(r)
    )
