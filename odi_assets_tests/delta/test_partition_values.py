"""Partition values are compared by value, however Spark, this package or another writer spells them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.partition_values import same_spelling
from odi_assets.errors import TableError
from odi_assets_tests.tables.support import ENGINE, Write, read_table, rows_of


@pytest.mark.parametrize(
    ("kind", "spelled", "expected"),
    [
        ("timestamp", ["2024-01-01 12:00:00.5", "2024-01-01T12:00:00.500000Z"], "2024-01-01 12:00:00.500000"),
        ("timestamp", ["2024-01-01 00:00:00", "2024-01-01T01:00:00+01:00"], "2024-01-01 00:00:00"),
        ("timestamp_ntz", ["2024-01-01 12:00:00.5", "2024-01-01T12:00:00.500000"], "2024-01-01 12:00:00.500000"),
        ("double", ["1.0E20", "1e20", "100000000000000000000"], "1e+20"),
        ("double", ["NaN", "nan"], "NaN"),
        ("double", ["-Infinity", "-inf"], "-Infinity"),
        ("double", ["-0.0", "0.0", "-0", "0E1"], "0.0"),
        ("float", ["-0.0", "0.0"], "0.0"),
        ("decimal(10,2)", ["-0.00", "0.00"], "0.00"),
        ("decimal(10,2)", ["-0.50"], "-0.50"),
        ("float", ["0.1", "0.10000000149011612"], "0.10000000149011612"),
        ("decimal(10,7)", ["1E-7", "0.0000001"], "0.0000001"),
        ("decimal(20,3)", ["0E-3", "0.000", "0"], "0.000"),
        ("decimal(38,0)", ["12345678901234567890123456789012345678"], "12345678901234567890123456789012345678"),
        ("boolean", ["true", "True"], "true"),
        ("integer", ["7", "007"], "7"),
        ("date", ["2024-02-29"], "2024-02-29"),
        ("date", ["+12345-01-01"], "+12345-01-01"),
        ("string", ["007"], "007"),
        ("string", ["", None], None),
        ("integer", ["", None], None),
    ],
)
def test_each_value_has_one_spelling(kind: str, spelled: list[str | None], expected: str | None) -> None:
    assert {same_spelling(text, kind) for text in spelled} == {expected}


VALUES = """
    timestamp_micros(id * 500000) AS instant, TIMESTAMP_NTZ'2024-01-01 00:00:00.5' AS wall_clock,
    cast(id * 1e20 AS DOUBLE) AS large, cast('NaN' AS DOUBLE) AS nothing, cast(id AS FLOAT) / 10 AS small,
    cast(0 AS DECIMAL(20,10)) AS zero, cast(id AS DECIMAL(10,7)) / 10000000 AS tiny
"""
COLUMNS = ("instant", "wall_clock", "large", "nothing", "small", "zero", "tiny")


def test_partitions_that_spark_spells_otherwise_than_python_are_replaced_and_upserted(
    spark: SparkSession, table: Location, write: Write
) -> None:
    rows = spark.sql(f"SELECT id, {VALUES} FROM range(1, 3)").coalesce(1)
    write(rows, mode=WriteMode.PARTITION_OVERWRITE, partition_by=COLUMNS)
    before = rows_of(spark, table)
    write(rows, mode=WriteMode.PARTITION_OVERWRITE, partition_by=COLUMNS)
    assert str(rows_of(spark, table)) == str(before)
    known = [name for name in COLUMNS if name != "nothing"]
    write(rows, mode=WriteMode.UPSERT, keys=tuple(known), partition_by=COLUMNS)
    assert str(rows_of(spark, table)) == str(before)
    live = {tuple(file.partition.values()) for file in ENGINE.open(table).live_files}
    handle = ENGINE.open(table)
    assert {tuple(values[name] for name in COLUMNS) for values in changes(handle, 0, 1).commits[0].partitions} == live


def test_text_that_another_writer_escaped_is_read_as_it_is_and_replaced(
    spark: SparkSession, table: Location, write: Write
) -> None:
    names = ["é/ü=100% 日本", "plain"]
    write_deltalake(table.uri, pa.table({"id": [1, 2], "name": names}), partition_by=["name"])
    assert rows_of(spark, table) == list(zip([1, 2], names, strict=True))
    rows = read_table(spark, ENGINE.open(table)).localCheckpoint()
    write(rows, mode=WriteMode.PARTITION_OVERWRITE, partition_by=("name",))
    assert rows_of(spark, table) == list(zip([1, 2], names, strict=True))


def test_an_empty_text_that_another_writer_made_a_partition_is_null_and_is_read(
    spark: SparkSession, table: Location, write: Write
) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["", None, "a"]})
    write_deltalake(table.uri, rows, partition_by=["name"])
    assert rows_of(spark, table) == [(1, None), (2, None), (3, "a")]
    more = spark.createDataFrame([(4, None), (5, None)], "id BIGINT, name STRING").coalesce(1)
    write(more, partition_by=("name",))
    write(more, mode=WriteMode.UPSERT, keys=("id",), partition_by=("name",))
    assert rows_of(spark, table) == [(1, None), (2, None), (3, "a"), (4, None), (5, None)]


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_the_two_zeros_are_one_partition_also_where_another_writer_has_made_the_other(
    spark: SparkSession, table: Location, write: Write, kind: str
) -> None:
    def rows(*values: tuple[int, str]) -> DataFrame:
        made = [f"SELECT {n} AS n, CAST('{zero}' AS {kind}) AS k" for n, zero in values]
        return spark.sql(" UNION ALL ".join(made)).coalesce(1)

    floats = pa.array([-0.0, 1.0], pa.float64() if kind == "DOUBLE" else pa.float32())
    write_deltalake(table.uri, pa.table({"n": pa.array([1, 2], pa.int32()), "k": floats}), partition_by=["k"])
    write(rows((3, "0.0")), mode=WriteMode.PARTITION_OVERWRITE, partition_by=("k",))
    assert rows_of(spark, table) == [(2, 1.0), (3, 0.0)]
    write(rows((4, "-0.0"), (5, "0.0")), mode=WriteMode.PARTITION_OVERWRITE, partition_by=("k",))
    assert rows_of(spark, table) == [(2, 1.0), (4, 0.0), (5, 0.0)]
    write(rows((6, "-0.0")), mode=WriteMode.PARTITION_OVERWRITE, partition_by=("k",))
    write(rows((6, "0.0")), mode=WriteMode.UPSERT, keys=("k",), partition_by=("k",))
    assert rows_of(spark, table) == [(2, 1.0), (6, 0.0)]


def test_a_negative_decimal_is_a_partition_and_one_that_deltalake_has_spoiled_is_named(
    spark: SparkSession, table: Location, write: Write
) -> None:
    """The message said to check permissions and the free space."""
    amounts = [Decimal("-0.50"), Decimal("-1.50"), Decimal("0.50")]
    rows = spark.createDataFrame(list(enumerate(amounts)), "n INT, k DECIMAL(10,2)").coalesce(1)
    write(rows, mode=WriteMode.PARTITION_OVERWRITE, partition_by=("k",))
    write(rows, mode=WriteMode.PARTITION_OVERWRITE, partition_by=("k",))
    assert rows_of(spark, table) == list(enumerate(amounts))
    spoiled = replace(table, uri=f"{table.uri}-spoiled")
    arrow = pa.table({"n": [1], "k": pa.array([Decimal("-1.50")], pa.decimal128(10, 2))})
    with suppress(DeltaError):
        # It fails at what it has written.
        write_deltalake(spoiled.uri, arrow, partition_by=["k"])
    with pytest.raises(TableError, match=r"a partition of the value '-1\.-50', which is no decimal\(10,2\)") as caught:
        ENGINE.open(spoiled)
    assert "permissions" not in str(caught.value)
