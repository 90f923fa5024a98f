"""Rows whose columns are not those of the table: refused, joining it in the same commit, or left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.commit import Stamp
from odi_assets.errors import TableError
from odi_assets.tables.engine import WriteSpec, engine_of
from odi_assets_tests.tables.support import APP, ENGINE, Write, rows_of

EVOLVE: dict[str, Any] = {"schema_policy": "evolve"}
IGNORE: dict[str, Any] = {"schema_policy": "ignore"}
UPSERT: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("id",)}
WIDE = "id BIGINT, name STRING, extra INT"


def columns(table: Location) -> list[str]:
    return list(ENGINE.open(table).columns)


def actions(table: Location, version: int) -> list[str]:
    log = Path(table.uri, "_delta_log", f"{version:020d}.json").read_text().splitlines()
    return sorted({next(iter(json.loads(line))) for line in log})


@pytest.mark.every_engine
@pytest.mark.contract
def test_an_appended_column_joins_the_table_in_the_commit_of_its_rows(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a")])
    result = write([(2, "b", 7)], WIDE, **EVOLVE)
    assert (result.version, result.columns_added, result.rows_total) == (1, ("extra",), 2)
    assert actions(table, 1) == ["add", "commitInfo", "metaData", "txn"]
    assert rows_of(spark, table) == [(1, "a", None), (2, "b", 7)]
    assert rows_of(spark, table, version=0) == [(1, "a")]


@pytest.mark.every_engine
def test_downstream_readers_see_only_the_new_rows_of_a_commit_that_adds_a_column(table: Location, write: Write) -> None:
    write([(1, "a")])
    before = ENGINE.open(table).table_id
    write([(2, "b", 7)], WIDE, **EVOLVE)
    gained = changes(ENGINE.open(table), 0, 1)
    assert (gained.kind, gained.rows, ENGINE.open(table).table_id) == ("rows", 1, before)


@pytest.mark.every_engine
@pytest.mark.parametrize("rows", [[(9, "z", 1)], [(1, "A", 1), (9, "z", 2)]])
def test_an_upserted_column_joins_in_one_commit_and_untouched_rows_stay(
    spark: SparkSession, table: Location, write: Write, rows: list[tuple[Any, ...]]
) -> None:
    write([(1, "a"), (2, "b")], **UPSERT)
    write([(3, "c")], **UPSERT)
    result = write(rows, WIDE, **UPSERT, **EVOLVE)
    expected = {1: (1, "a", None), 2: (2, "b", None), 3: (3, "c", None)} | {row[0]: row for row in rows}
    assert rows_of(spark, table) == sorted(expected.values(), key=str)
    assert (result.version, result.rows_total) == (2, len(expected))
    gained = changes(ENGINE.open(table), 1, 2)
    assert (gained.kind, gained.rows) == ("rows", len(rows))


@pytest.mark.every_engine
def test_a_replaced_partition_may_bring_a_column_and_other_partitions_keep_their_rows(
    spark: SparkSession, table: Location, write: Write
) -> None:
    spec: dict[str, Any] = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("name",)}
    write([(1, "a"), (2, "b"), (3, "b")], **spec)
    result = write([(4, "b", 7)], WIDE, **spec, **EVOLVE)
    assert rows_of(spark, table) == [(1, "a", None), (4, "b", 7)]
    assert (result.version, [p["name"] for p in result.partitions]) == (1, ["b"])
    assert changes(ENGINE.open(table), 0, 1).kind == "partitions"
    write([(5, "c", 7, 1)], WIDE + ", more INT", **spec, **EVOLVE)
    assert rows_of(spark, table) == [(1, "a", None, None), (4, "b", 7, None), (5, "c", 7, 1)]


def test_append_once_takes_a_new_column_with_its_new_keys(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a")])
    write([(1, "other", 1), (2, "b", 2)], WIDE, mode=WriteMode.APPEND_ONCE, keys=("id",), **EVOLVE)
    assert rows_of(spark, table) == [(1, "a", None), (2, "b", 2)]


def test_an_ignored_column_is_left_out_and_told(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a")])
    result = write([(2, "b", 7)], WIDE, **IGNORE)
    assert (result.columns_ignored, result.columns_added) == (("extra",), ())
    assert (columns(table), rows_of(spark, table)) == (["id", "name"], [(1, "a"), (2, "b")])


@pytest.mark.parametrize("how", [EVOLVE, IGNORE])
def test_a_column_that_is_missing_is_null_and_stays_in_the_table(
    spark: SparkSession, table: Location, write: Write, how: dict[str, Any]
) -> None:
    write([(1, "a")])
    write([(2,)], "id BIGINT", **how)
    assert rows_of(spark, table) == [(1, "a"), (2, None)]
    write([(2,)], "id BIGINT", **UPSERT, **how)
    assert rows_of(spark, table) == [(1, "a"), (2, None)]


def test_by_default_a_missing_column_is_refused_by_name(write: Write) -> None:
    write([(1, "a")])
    with pytest.raises(TableError, match="have no column `name`, which the table has") as caught:
        write([(2,)], "id BIGINT")
    assert caught.value.column == "name"


def test_names_know_no_capitals(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a")])
    write([("B", 1)], "NAME STRING, Id BIGINT", **UPSERT)
    assert (columns(table), rows_of(spark, table)) == (["id", "name"], [(1, "B")])


@pytest.mark.parametrize(
    ("stored", "arriving", "value"),
    [
        ("BIGINT", "INT", "7"),
        ("DOUBLE", "FLOAT", "1.5"),
        ("DOUBLE", "INT", "3"),
        ("DECIMAL(20,4)", "DECIMAL(10,2)", "1.25"),
        ("DECIMAL(20,0)", "BIGINT", "7"),
        ("TIMESTAMP_NTZ", "DATE", "DATE'2013-01-01'"),
    ],
)
def test_narrower_values_are_cast_to_the_tables_type_without_loss(
    spark: SparkSession, table: Location, write: Write, stored: str, arriving: str, value: str
) -> None:
    write(spark.sql(f"SELECT CAST({value} AS {stored}) AS v"))
    narrow = spark.sql(f"SELECT CAST({value} AS {arriving}) AS v")
    with pytest.raises(TableError, match="column `v`"):
        write(narrow)
    write(narrow, **EVOLVE)
    one, two = (row[0] for row in rows_of(spark, table))
    assert one == two


@pytest.mark.parametrize("how", [EVOLVE, IGNORE, {}])
@pytest.mark.parametrize(
    ("stored", "arriving", "names"),
    [
        ("INT", "BIGINT", ("integer", "long")),
        ("FLOAT", "DOUBLE", ("float", "double")),
        ("DECIMAL(10,2)", "DECIMAL(10,4)", (r"decimal\(10,2\)", r"decimal\(10,4\)")),
        ("BIGINT", "STRING", ("long", "string")),
        ("FLOAT", "INT", ("float", "integer")),
        ("DATE", "TIMESTAMP", ("date", "timestamp")),
        ("STRUCT<x: INT>", "INT", ("struct", "integer")),
        ("INT", "MAP<STRING, ARRAY<STRUCT<`a b`: INT>>>", ("integer", "map<string, array<struct<`a b`: integer>>>")),
    ],
)
def test_a_type_that_would_lose_values_is_refused_with_both_types_under_every_policy(
    spark: SparkSession, write: Write, stored: str, arriving: str, names: tuple[str, str], how: dict[str, Any]
) -> None:
    write(spark.sql(f"SELECT CAST(NULL AS {stored}) AS v"))
    with pytest.raises(TableError, match=rf"column `v` .* is .*{names[0]}.*; the rows to write have {names[1]}"):
        write(spark.sql(f"SELECT CAST(NULL AS {arriving}) AS v"), **how)


NESTED = (
    "SELECT 1 AS id, named_struct('x', 1, 'in', array(named_struct('p', 1))) AS s, map('k', named_struct('a', 1)) AS m"
)
MORE = (
    "SELECT 2 AS id, named_struct('y', 'Y', 'in', array(named_struct('p', 2, 'q', 'Q')), 'X', 2) AS s, "
    "map('k', named_struct('b', 2, 'a', 1)) AS m"
)


@pytest.mark.contract
def test_fields_join_structs_at_any_depth(spark: SparkSession, table: Location, write: Write) -> None:
    write(spark.sql(NESTED))
    with pytest.raises(TableError, match=r"no column `s\.y`|no column `s\.in\.element\.q`"):
        write(spark.sql(MORE))
    result = write(spark.sql(MORE), **EVOLVE)
    assert set(result.columns_added) == {"s.y", "s.in.element.q", "m.value.b"}
    first, second = engine_of(table).read(spark, ENGINE.open(table)).orderBy("id").collect()
    assert (first["s"]["x"], first["s"]["y"], first["s"]["in"][0]["q"], first["m"]["k"]["b"]) == (1, None, None, None)
    assert (second["s"]["x"], second["s"]["y"], second["s"]["in"][0]["q"]) == (2, "Y", "Q")
    assert (second["m"]["k"]["a"], second["m"]["k"]["b"]) == (1, 2)


def test_fields_of_structs_are_ignored_by_their_path(spark: SparkSession, table: Location, write: Write) -> None:
    write(spark.sql(NESTED))
    result = write(spark.sql(MORE), **IGNORE)
    assert set(result.columns_ignored) == {"s.y", "s.in.element.q", "m.value.b"}
    assert [row["s"]["x"] for row in engine_of(table).read(spark, ENGINE.open(table)).orderBy("id").collect()] == [1, 2]


def test_other_readers_of_delta_see_the_added_column(table: Location, write: Write) -> None:
    write([(1, "a"), (2, "b")], **UPSERT)
    write([(1, "A", 5)], WIDE, **UPSERT, **EVOLVE)
    rows = DeltaTable(table.uri).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["extra"]) for row in rows) == [(1, 5), (2, None)]


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
def test_a_column_of_times_without_zone_joins_a_table_that_had_none(
    spark: SparkSession, table: Location, write: Write, mode: WriteMode
) -> None:
    write([(1, "a")])
    write(spark.sql("SELECT 2L AS id, 'b' AS name, TIMESTAMP_NTZ'2013-01-01 05:00:00' AS t"), mode=mode, **EVOLVE)
    assert [row[2] is not None for row in rows_of(spark, table)][-1]


def test_two_columns_that_differ_in_capitals_only_are_refused(spark: SparkSession, write: Write) -> None:
    frame = spark.createDataFrame([(1, 2)], "a INT, b INT").toDF("a", "A")
    with pytest.raises(TableError, match="two columns `a` and `A`"):
        write(frame)


def test_a_commit_that_adds_a_column_beside_a_concurrent_append_loses_neither(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a")])
    stale = ENGINE.open(table)
    engine_of(table).write(
        spark.createDataFrame([(2, "b")], "id BIGINT, name STRING"),
        ENGINE.open(table),
        WriteSpec(WriteMode.APPEND),
        Stamp("another", 1),
    )
    spec = WriteSpec(WriteMode.APPEND, schema_policy="evolve")
    engine_of(table).write(spark.createDataFrame([(3, "c", 7)], WIDE), stale, spec, Stamp(APP, 2))
    assert rows_of(spark, table) == [(1, "a", None), (2, "b", None), (3, "c", 7)]
