"""The contract of a table engine: each mode is one commit, counts come out right, and what was there stays readable."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.commit import Stamp
from odi_assets.delta.files.spans import PartitionBox, Span, TimePartition
from odi_assets.errors import FencedError, TableError
from odi_assets.tables.engine import WriteSpec, engine_of
from odi_assets_tests.tables.support import APP, ENGINE, Write, rows_of


@pytest.mark.every_engine
@pytest.mark.contract
def test_an_append_adds_rows_in_one_commit_and_counts_them(spark: SparkSession, table: Location, write: Write) -> None:
    first = write([(1, "a"), (2, "b")])
    second = write([(3, None)])
    assert (first.version, second.version) == (0, 1)
    assert (second.rows_written, second.rows_total) == (1, 3)
    assert rows_of(spark, table) == [(1, "a"), (2, "b"), (3, None)]
    assert rows_of(spark, table, version=0) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("partition_by", [(), ("name",)])
def test_a_write_leaves_files_of_rows_and_of_the_log_and_no_others(
    table: Location, write: Write, partition_by: tuple[str, ...]
) -> None:
    write([(1, "a"), (2, "b")], partition_by=partition_by)
    write([(3, "a")], partition_by=partition_by)
    left = [path for path in table.local_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} == {".parquet", ".json"}
    assert not [path for path in left if path.name.startswith((".", "_"))]


def test_other_readers_of_delta_see_the_same_rows(table: Location, write: Write) -> None:
    write([(1, "a"), (2, "b")])
    rows = DeltaTable(table.uri).scan(columns=["id", "name"]).read_all()
    assert sorted(pa.table(rows).column("id").to_pylist()) == [1, 2]


@pytest.mark.every_engine
@pytest.mark.contract
def test_no_rows_make_a_commit_that_carries_only_the_stamp(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a")])
    result = write([])
    assert (result.version, result.rows_written, result.files_added) == (1, 0, 0)
    assert ENGINE.open(table).transaction_number(APP) == 2
    assert rows_of(spark, table) == [(1, "a")]


@pytest.mark.every_engine
def test_a_table_can_begin_without_rows(spark: SparkSession, table: Location, write: Write) -> None:
    write([])
    assert rows_of(spark, table) == []
    write([(1, "a")])
    assert rows_of(spark, table) == [(1, "a")]


@pytest.mark.every_engine
@pytest.mark.contract
def test_an_overwrite_replaces_rows_and_schema_in_one_commit(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a"), (2, "b")])
    result = write([("x", 1.5)], "id STRING, price DOUBLE", mode=WriteMode.OVERWRITE)
    assert (result.version, result.rows_total, result.files_removed > 0) == (1, 1, True)
    assert rows_of(spark, table) == [("x", 1.5)]
    assert rows_of(spark, table, version=0) == [(1, "a"), (2, "b")]


@pytest.mark.every_engine
@pytest.mark.contract
@pytest.mark.usefixtures("rewritten_by")
def test_an_upsert_updates_known_keys_and_inserts_new_ones(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a"), (2, "b"), (3, "c")])
    result = write([(2, "B"), (4, "d")], mode=WriteMode.UPSERT, keys=("id",))
    assert (result.rows_written, result.rows_updated, result.rows_total) == (2, 1, 4)
    assert rows_of(spark, table) == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]


def test_an_upsert_of_keys_beyond_the_table_reads_and_rewrites_nothing(write: Write) -> None:
    write([(1, "a"), (2, "b")])
    result = write([(10, "x"), (11, "y")], mode=WriteMode.UPSERT, keys=("id",))
    assert (result.files_removed, result.rows_updated, result.rows_total) == (0, 0, 4)


@pytest.mark.usefixtures("rewritten_by")
def test_an_upsert_with_several_keys_and_null_among_them_inserts_once(
    spark: SparkSession, table: Location, write: Write
) -> None:
    schema = "a BIGINT, b STRING, v BIGINT"
    write([(1, None, 1), (1, "x", 2), (None, None, 3)], schema, mode=WriteMode.UPSERT, keys=("a", "b"))
    result = write([(1, None, 10), (None, None, 30), (2, None, 40)], schema, mode=WriteMode.UPSERT, keys=("a", "b"))
    assert result.rows_updated == 2
    assert rows_of(spark, table) == sorted([(1, None, 10), (1, "x", 2), (None, None, 30), (2, None, 40)], key=str)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("TIMESTAMP", ["2013-01-01 00:00:00.123456", "2013-01-01 00:00:00.123457", "2013-06-01 00:00:00"]),
        ("TIMESTAMP_NTZ", ["2013-01-01 00:00:00.000001", "2013-01-01 00:00:00.000002", "2013-06-01 00:00:00"]),
        ("DATE", ["1969-12-31", "1970-01-01", "2013-01-01"]),
        ("DECIMAL(9,2)", ["0.70", "0.10", "-0.30"]),
        ("DECIMAL(38,4)", ["12345678901234567890123456789012.0001", "0.0001", "-5"]),
        ("STRING", ["a" * 300 + "1", "a" * 300 + "2", "ü"]),
        ("DOUBLE", ["-0.5", "1e300", "NaN"]),
        ("BINARY", ["ab", "cd", "ef"]),
        ("BOOLEAN", ["true", "false", None]),
    ],
)
def test_an_upsert_finds_keys_of_every_type(
    spark: SparkSession, table: Location, write: Write, kind: str, values: list[str]
) -> None:
    def frame(chosen: list[str], mark: int) -> DataFrame:
        rows = spark.createDataFrame([(value,) for value in chosen], "t STRING")
        return rows.selectExpr(f"cast(t AS {kind}) AS k", f"{mark} AS mark")

    write(frame(values, 1), mode=WriteMode.UPSERT, keys=("k",))
    result = write(frame(values[:2], 2), mode=WriteMode.UPSERT, keys=("k",))
    assert (result.rows_updated, result.rows_total) == (2, 3)
    assert sorted(row[1] for row in rows_of(spark, table)) == [1, 2, 2]


@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.APPEND_ONCE])
@pytest.mark.parametrize("value", ["0.10", "1.10", "-0.30", "0.70", "12345678901.37"])
def test_a_decimal_key_is_found_in_a_file_that_holds_no_other(
    spark: SparkSession, write: Write, mode: WriteMode, value: str
) -> None:
    frame = spark.sql(f"SELECT CAST('{value}' AS DECIMAL(15,2)) AS k, 1 AS mark")
    write(frame, mode=mode, keys=("k",))
    assert write(frame, mode=mode, keys=("k",)).rows_total == 1


@pytest.mark.usefixtures("rewritten_by")
def test_two_rows_with_the_same_keys_in_one_upsert_are_refused_and_nothing_changes(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a")])
    with pytest.raises(TableError, match=r"2 rows of one increment .* have the same keys \(id=7\)"):
        write([(7, "x"), (7, "y")], mode=WriteMode.UPSERT, keys=("id",))
    assert rows_of(spark, table) == [(1, "a")]


@pytest.mark.every_engine
@pytest.mark.contract
@pytest.mark.usefixtures("rewritten_by")
def test_the_log_of_an_upsert_tells_exactly_the_rows_that_changed(table: Location, write: Write) -> None:
    write([(number, "old") for number in range(100)])
    write([(5, "new"), (200, "new")], mode=WriteMode.UPSERT, keys=("id",))
    gained = changes(ENGINE.open(table), after=0, upto=1)
    assert (gained.kind, gained.rows, gained.commits[0].updated) == ("rows", 2, 1)


@pytest.mark.every_engine
@pytest.mark.contract
def test_append_once_adds_only_rows_whose_keys_are_not_there(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a"), (2, "b")])
    result = write([(2, "other"), (3, "c"), (3, "c")], mode=WriteMode.APPEND_ONCE, keys=("id",))
    assert result.rows_written == 1
    assert rows_of(spark, table) == [(1, "a"), (2, "b"), (3, "c")]


def test_append_once_reads_only_files_that_may_hold_its_keys(table: Location, write: Write) -> None:
    write([(1, "a"), (2, "b")])
    far = ENGINE.open(table).live_files
    write([(1001, "c"), (1002, "d")])
    for file in far:
        Path(table.uri, file.path).unlink()
    result = write([(1002, "other"), (1003, "e")], mode=WriteMode.APPEND_ONCE, keys=("id",))
    assert (result.rows_written, result.rows_total) == (1, 5)


def test_append_once_knows_a_row_with_null_in_its_keys(write: Write) -> None:
    keyed: dict[str, Any] = {"mode": WriteMode.APPEND_ONCE, "keys": ("id", "name")}
    write([(1, None), (None, "b"), (None, None), (1, "a")], **keyed)
    result = write([(1, None), (None, "b"), (None, None), (None, "c"), (None, "c")], **keyed)
    assert (result.rows_written, result.rows_total) == (1, 5)
    assert write([(None, "c"), (None, None)], **keyed).rows_written == 0


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.PARTITION_OVERWRITE, WriteMode.OVERWRITE])
def test_rows_in_the_table_are_counted_as_they_are_when_others_committed_meanwhile(
    spark: SparkSession, table: Location, write: Write, mode: WriteMode
) -> None:
    write([(1, "a")], partition_by=("name",))
    behind = ENGINE.open(table)
    write_deltalake(table.uri, pa.table({"id": [7, 8], "name": ["z", "z"]}), mode="append", partition_by=["name"])
    frame = spark.createDataFrame([(2, "a")], "id BIGINT, name STRING")
    result = engine_of(table).write(frame, behind, WriteSpec(mode, partition_by=("name",)), Stamp(APP, 2))
    assert (result.version, result.rows_total) == (2, len(rows_of(spark, table)))


DAYS = "day DATE, carrier STRING, n BIGINT"


def days(spark: SparkSession, *rows: tuple[str, str | None, int]) -> DataFrame:
    frame = spark.createDataFrame(list(rows), "day STRING, carrier STRING, n BIGINT")
    return frame.selectExpr("cast(day AS DATE) AS day", "carrier", "n")


@pytest.mark.every_engine
@pytest.mark.contract
def test_partition_overwrite_replaces_just_the_partitions_it_writes(
    spark: SparkSession, table: Location, write: Write
) -> None:
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("day",)}
    write(days(spark, ("2013-01-01", "UA", 1), ("2013-01-02", "UA", 2)), **spec)
    result = write(days(spark, ("2013-01-02", "AA", 20), ("2013-01-03", "AA", 30)), **spec)
    assert [p["day"] for p in result.partitions] == ["2013-01-02", "2013-01-03"]
    assert [row[2] for row in rows_of(spark, table)] == [1, 20, 30]


@pytest.mark.every_engine
def test_partition_overwrite_empties_a_named_partition_that_gets_no_row(
    spark: SparkSession, table: Location, write: Write
) -> None:
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("day",)}
    write(days(spark, ("2013-01-01", "UA", 1), ("2013-01-02", "UA", 2)), **spec)
    both = ({"day": "2013-01-01"}, {"day": "2013-01-02"})
    write(days(spark, ("2013-01-02", "AA", 20)), replace=both, **spec)
    assert [row[2] for row in rows_of(spark, table)] == [20]


@pytest.mark.every_engine
def test_partition_overwrite_refuses_rows_outside_the_partitions_it_covers(
    spark: SparkSession, table: Location, write: Write
) -> None:
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("day",)}
    write(days(spark, ("2013-01-01", "UA", 1)), **spec)
    with pytest.raises(TableError, match=r"day=2013-01-01 .* would lose its other rows"):
        write(days(spark, ("2013-01-01", "AA", 20)), replace=({"day": "2013-01-02"},), **spec)
    assert [row[2] for row in rows_of(spark, table)] == [1]


@pytest.mark.every_engine
@pytest.mark.contract
def test_partition_values_of_every_spelling_come_back_as_they_were(
    spark: SparkSession, table: Location, write: Write
) -> None:
    odd = ["007", "a b/c:ü%", "{x}*?[y]", None, "1", "=", "a=b/c=d"]
    frame = spark.createDataFrame([(value, number) for number, value in enumerate(odd)], "p STRING, n INT")
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("p",)}
    write(frame, **spec)
    assert {(row[0], row[1]) for row in rows_of(spark, table)} == {(value, n) for n, value in enumerate(odd)}
    write(frame.where("p = 'a b/c:ü%' or p is null").selectExpr("p", "n + 100 AS n"), **spec)
    changed = {row[0]: row[1] for row in rows_of(spark, table)}
    assert changed == {**{value: n for n, value in enumerate(odd)}, "a b/c:ü%": 101, None: 103}


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["INT", "TIMESTAMP", "DATE", "BOOLEAN", "DECIMAL(10,2)"])
def test_partition_columns_of_other_types_are_replaced_by_value(
    spark: SparkSession, table: Location, write: Write, kind: str
) -> None:
    text = {"INT": "12", "TIMESTAMP": "2013-01-01 05:00:00", "DATE": "2013-01-01", "BOOLEAN": "true"}.get(kind, "1.50")
    frame = spark.sql(f"SELECT CAST('{text}' AS {kind}) AS p, 1 AS n")
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("p",)}
    write(frame, **spec)
    write(frame.selectExpr("p", "2 AS n"), **spec)
    assert [row[1] for row in rows_of(spark, table)] == [2]


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_partition_of_a_time_is_named_by_its_day_too(
    spark: SparkSession, table: Location, write: Write, kind: str
) -> None:
    frame = spark.sql(f"SELECT CAST('2013-01-01' AS {kind}) AS p, 1 AS n")
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("p",), "replace": ({"p": "2013-01-01"},)}
    write(frame, **spec)
    write(frame.selectExpr("p", "2 AS n"), **spec)
    assert [row[1] for row in rows_of(spark, table)] == [2]


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_partition_overwrite_of_a_span_replaces_all_partitions_in_it(
    spark: SparkSession, table: Location, write: Write, kind: str
) -> None:
    times = "'2013-01-01 08:00:00', '2013-01-02 00:00:00', '2013-01-31 23:30:00', '2013-02-01 00:00:00'"
    frame = spark.sql(f"SELECT CAST(at AS {kind}) AS p, 1 AS n FROM (SELECT explode(array({times})) AS at)")
    spec = {"mode": WriteMode.PARTITION_OVERWRITE, "partition_by": ("p",)}
    write(frame, **spec)
    january = TimePartition("2013-01-01", datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 2, 1, tzinfo=UTC))
    rows = spark.sql(f"SELECT CAST('2013-01-31 05:00:00' AS {kind}) AS p, 2 AS n")
    write(rows, replace=({"p": "2013-01-01"},), span=PartitionBox((Span("p", (january,), "month"),)), **spec)
    assert sorted(row[1] for row in rows_of(spark, table)) == [1, 2]


@pytest.mark.every_engine
@pytest.mark.usefixtures("rewritten_by")
def test_an_upsert_into_a_partitioned_table_may_move_a_row_to_another_partition(
    spark: SparkSession, table: Location, write: Write
) -> None:
    spec = {"mode": WriteMode.UPSERT, "partition_by": ("day",), "keys": ("carrier",)}
    write(days(spark, ("2013-01-01", "UA", 1), ("2013-01-01", "AA", 2)), **spec)
    write(days(spark, ("2013-01-05", "UA", 10)), **spec)
    assert sorted((str(row[0]), row[1], row[2]) for row in rows_of(spark, table)) == [
        ("2013-01-01", "AA", 2),
        ("2013-01-05", "UA", 10),
    ]


@pytest.mark.every_engine
@pytest.mark.contract
def test_the_second_of_two_writers_with_one_fence_is_told_who_won_and_writes_nothing(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a")])
    one, two = ENGINE.open(table), ENGINE.open(table)
    frame = spark.createDataFrame([(2, "b")], "id BIGINT, name STRING")
    engine_of(table).write(frame, one, WriteSpec(WriteMode.APPEND), Stamp(APP, 2, {"run_id": "winner"}))
    with pytest.raises(FencedError, match="run winner committed it first") as caught:
        engine_of(table).write(frame, two, WriteSpec(WriteMode.APPEND), Stamp(APP, 2, {"run_id": "loser"}))
    assert (caught.value.winner, caught.value.run_id) == ("winner", "loser")
    assert rows_of(spark, table) == [(1, "a"), (2, "b")]


@pytest.mark.every_engine
def test_two_writers_that_both_create_the_table_leave_one_of_them_out(spark: SparkSession, table: Location) -> None:
    one, two = ENGINE.open(table), ENGINE.open(table)
    frame = spark.createDataFrame([(2, "b")], "id BIGINT, name STRING")
    engine_of(table).write(frame, one, WriteSpec(WriteMode.APPEND), Stamp(APP, 1, {"run_id": "winner"}))
    with pytest.raises(FencedError, match="winner"):
        engine_of(table).write(frame, two, WriteSpec(WriteMode.APPEND), Stamp(APP, 1, {"run_id": "loser"}))
    assert rows_of(spark, table) == [(2, "b")]


def test_a_stamp_is_found_again_below_commits_of_others(table: Location, write: Write) -> None:
    write([(1, "a")])
    for number in range(40):
        write_deltalake(table.uri, pa.table({"id": [number], "name": ["z"]}), mode="append")
    stamp = ENGINE.open(table).last_stamp(APP)
    assert stamp is not None
    assert (stamp.version, stamp.number, stamp.facts["run_id"]) == (0, 1, "run")


def test_a_new_column_is_refused_by_name(write: Write) -> None:
    write([(1, "a")])
    with pytest.raises(TableError, match="has no column `extra`"):
        write([(1, "a", 2)], "id BIGINT, name STRING, extra INT")


def test_a_column_of_another_type_is_refused_with_both_types(write: Write) -> None:
    write([(1, "a")])
    with pytest.raises(TableError, match=r"column `id` .* is long; the rows to write have string"):
        write([("1", "a")], "id STRING, name STRING")


def test_columns_in_another_order_land_by_name(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a")])
    write([("b", 2)], "name STRING, id BIGINT")
    assert rows_of(spark, table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("NULL", "has type void, which Delta cannot store"),
        ("array(named_struct('x', NULL))", "is array<struct<x: void>>: nothing in the rows says what type void is"),
        ("map('k', INTERVAL 1 DAY)", "has, within it, type interval day, which Delta cannot store"),
        ("parse_json('1')", "has type variant, which Delta cannot store"),
    ],
)
def test_a_column_of_a_type_that_no_table_holds_is_refused_by_name_and_the_table_stays(
    spark: SparkSession, table: Location, write: Write, value: str, message: str
) -> None:
    write(spark.sql("SELECT 1 AS id"))
    with pytest.raises(TableError, match=f"column `odd` {message}"):
        write(spark.sql(f"SELECT 2 AS id, {value} AS odd"), schema_policy="evolve")
    assert rows_of(spark, table) == [(1,)]


def test_a_name_with_the_character_nul_is_refused(spark: SparkSession, write: Write) -> None:
    with pytest.raises(TableError, match=r"named '\\x00a'; Delta stores no name with the character NUL"):
        write(spark.sql("SELECT 2 AS id").withColumnRenamed("id", "\0a"))


@pytest.mark.every_engine
@pytest.mark.contract
def test_nested_values_survive(spark: SparkSession, table: Location, write: Write) -> None:
    write(spark.sql("SELECT 1 AS id, named_struct('x', 1, 'y', array('a', null)) AS s, map('k', 1.5D) AS m"))
    row = engine_of(table).read(spark, ENGINE.open(table)).collect()[0]
    assert (row["s"]["x"], row["s"]["y"], row["m"]) == (1, ["a", None], {"k": 1.5})


@pytest.mark.every_engine
def test_another_partitioning_is_refused(spark: SparkSession, write: Write) -> None:
    write(days(spark, ("2013-01-01", "UA", 1)), partition_by=("day",))
    with pytest.raises(TableError, match=r"is partitioned by \['day'\], and the node asks for \['carrier'\]"):
        write(days(spark, ("2013-01-01", "UA", 1)), partition_by=("carrier",))


def test_statistics_bound_values_and_leave_out_what_could_lie(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write(
        spark.sql(
            "SELECT * FROM VALUES (1, CAST(1.5 AS DOUBLE), 'a', DATE'2013-01-01', CAST(1.25 AS DECIMAL(10,2))), "
            "(2, CAST('NaN' AS DOUBLE), 'b', DATE'2013-01-05', NULL) AS t(i, d, s, day, dec)"
        ).coalesce(1)
    )
    log = Path(table.uri, "_delta_log", f"{0:020d}.json").read_text().splitlines()
    stats = json.loads(next(json.loads(line)["add"]["stats"] for line in log if '"add"' in line))
    assert stats["numRecords"] == 2
    assert (stats["minValues"]["i"], stats["maxValues"]["i"]) == (1, 2)
    assert (stats["minValues"]["day"], stats["maxValues"]["day"]) == ("2013-01-01", "2013-01-05")
    assert "d" not in stats["maxValues"] or math.isfinite(stats["maxValues"]["d"]) is False
    assert (stats["nullCount"]["dec"], stats["maxValues"]["dec"]) == (1, float(Decimal("1.25")))


@pytest.mark.every_engine
@pytest.mark.contract
def test_tables_of_other_writers_are_read_whatever_their_folders_are_called(
    spark: SparkSession, table: Location
) -> None:
    rows = pa.table({"p": ["x", "y", None], "n": [1, 2, 3]})
    write_deltalake(table.uri, rows, partition_by=["p"])
    assert {tuple(row) for row in rows_of(spark, table)} == {("x", 1), ("y", 2), (None, 3)}


@pytest.mark.every_engine
@pytest.mark.contract
@pytest.mark.usefixtures("rewritten_by")
def test_rows_of_other_writers_can_be_upserted(spark: SparkSession, table: Location, write: Write) -> None:
    write_deltalake(table.uri, pa.table({"p": ["x", "y"], "n": pa.array([1, 2], pa.int64())}), partition_by=["p"])
    write([("x", 10)], "p STRING, n BIGINT", mode=WriteMode.UPSERT, keys=("p",), partition_by=("p",))
    assert rows_of(spark, table) == [("x", 10), ("y", 2)]
    rows = [("x", 11), ("y", 3), ("z", 4)]
    write(rows, "p STRING, n BIGINT", mode=WriteMode.UPSERT, keys=("p",), partition_by=("p",))
    assert rows_of(spark, table) == rows


@pytest.mark.every_engine
def test_a_table_with_deletion_vectors_or_a_change_feed_is_refused_by_name(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write_deltalake(table.uri, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(TableError, match="uses a change data feed, and cannot be written"):
        write([(1,)], "id BIGINT")
    assert rows_of(spark, table) == [(1,)]


def test_files_of_a_write_that_never_committed_are_not_in_the_table_and_vacuum_removes_them(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a")])
    orphan = Path(table.uri) / "odi_write=dead"
    spark.createDataFrame([(9, "z")], "id BIGINT, name STRING").write.parquet(str(orphan))
    assert rows_of(spark, table) == [(1, "a")]
    DeltaTable(table.uri).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not list(orphan.glob("*.parquet"))
    assert rows_of(spark, table) == [(1, "a")]
