"""Rows that an upsert only carries along: Arrow copies them exactly, and leaves to Spark what it would not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets_tests.tables.support import ENGINE, Write, rows_of

KEYED = {"mode": WriteMode.UPSERT, "keys": ("id",)}
EVERY_TYPE = """
    id,
    cast(id AS TINYINT) AS byte, cast(id AS SMALLINT) AS short, cast(id AS INT) AS int, cast(id AS FLOAT) / 3 AS float,
    if(id = 1, cast('NaN' AS DOUBLE), id / 7) AS double, id = 1 AS boolean, encode(concat('b', id), 'UTF-8') AS binary,
    cast(id / 7 AS DECIMAL(9,4)) AS small, cast(id / 7 AS DECIMAL(18,9)) AS medium,
    cast('12345678901234567890123456789.123456789' AS DECIMAL(38,9)) AS large,
    timestamp_micros(id * 1000001) AS instant, TIMESTAMP_NTZ'0099-03-01 00:00:00.000001' AS wall_clock,
    DATE'1400-02-28' + cast(id AS INT) AS day, named_struct('a', id, 'b', named_struct('c', 'x')) AS struct,
    array(id, NULL) AS array, map('k', array(id), 'none', NULL) AS map, array(named_struct('a', id)) AS structs,
    if(id = 2, NULL, concat('text ', id)) AS text, cast(NULL AS STRING) AS nothing
"""


def copied_by_arrow(table: Location) -> bool:
    files = Path(table.local_path).rglob("odi_write=*-moved/**/*.parquet")
    writers = {str(pq.read_metadata(file).created_by).startswith("parquet-cpp-arrow") for file in files}
    assert len(writers) == 1
    return writers.pop()


@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
def test_values_of_every_type_stay_as_they_are_in_either_calendar(
    spark: SparkSession, table: Location, write: Write, mode: str
) -> None:
    frame = spark.sql(f"SELECT {EVERY_TYPE} FROM range(1, 6)")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", mode)
    try:
        write(frame.coalesce(1))
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    before = rows_of(spark, table)
    assert write(frame.where("id = 3"), **KEYED).rows_updated == 1
    assert copied_by_arrow(table)
    assert str(rows_of(spark, table)) == str(before)
    assert write(frame.where("id = 4"), **KEYED).rows_updated == 1
    assert str(rows_of(spark, table)) == str(before)


def test_a_file_without_a_column_that_joined_later_keeps_its_rows(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write(spark.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, name STRING").coalesce(1))
    write([(3, "c", 3)], "id BIGINT, name STRING, age INT", schema_policy="evolve")
    write([(1, "A", 1)], "id BIGINT, name STRING, age INT", **KEYED)
    assert copied_by_arrow(table)
    assert rows_of(spark, table) == [(1, "A", 1), (2, "b", None), (3, "c", 3)]
    by = {"mode": WriteMode.UPSERT, "keys": ("id", "age")}
    assert write([(3, "C", 3), (2, "new", 2)], "id BIGINT, name STRING, age INT", **by).rows_updated == 1
    assert rows_of(spark, table) == [(1, "A", 1), (2, "b", None), (2, "new", 2), (3, "C", 3)]


def test_partitions_keep_the_spelling_of_their_folders(spark: SparkSession, table: Location, write: Write) -> None:
    names = ["a/b=c", "ü %20", None, "x:y"]
    schema = "id BIGINT, other INT, name STRING, v INT"
    rows = [(n, 0, name, 0) for n, name in enumerate(names)] + [(n + 10, 0, name, 0) for n, name in enumerate(names)]
    write(spark.createDataFrame(rows, schema).coalesce(1), partition_by=("name",))
    by = {"mode": WriteMode.UPSERT, "keys": ("id", "other"), "partition_by": ("name",)}
    assert write([(n, 0, name, 1) for n, name in enumerate(names)], schema, **by).rows_updated == 4
    assert copied_by_arrow(table)
    wanted = [(n, 0, name, int(n < 10)) for n, _, name, _ in rows]
    assert rows_of(spark, table) == sorted(wanted, key=str)
    assert {file.partition["name"] for file in ENGINE.open(table).live_files} == set(names)


def test_tables_of_other_writers_are_copied_with_their_types(
    spark: SparkSession, table: Location, write: Write
) -> None:
    kinds = {
        "id": pa.int64(),
        "text": pa.string_view(),
        "list": pa.large_list(pa.large_string()),
        "raw": pa.binary_view(),
    }
    columns = [[1, 2, 3], ["a", None, "long enough to stand outside"], [["x"], [], None], [b"1", None, b"3"]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
    write_deltalake(table.uri, pa.table(arrays, list(kinds)))
    before = rows_of(spark, table)
    write(spark.createDataFrame(before[1:2], "id BIGINT, text STRING, list ARRAY<STRING>, raw BINARY"), **KEYED)
    assert copied_by_arrow(table)
    assert rows_of(spark, table) == before


def test_times_of_96_bits_are_left_to_spark(spark: SparkSession, table: Location, write: Write) -> None:
    rows = spark.range(3).selectExpr("id", "timestamp_micros(id) AS at")
    write(rows.coalesce(1))
    before = rows_of(spark, table)
    for file in Path(table.local_path).rglob("*.parquet"):
        pq.write_table(pq.ParquetFile(file).read(), file, use_deprecated_int96_timestamps=True)
    write(rows.where("id = 1"), **KEYED)
    assert not copied_by_arrow(table)
    assert rows_of(spark, table) == before
