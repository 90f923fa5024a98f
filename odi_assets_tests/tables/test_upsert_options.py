"""Upserts that delete by a marker, and that replace a row only by a newer one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.commit import Stamp
from odi_assets.errors import TableError
from odi_assets.tables.engine import WriteResult, WriteSpec
from odi_assets_tests.tables.support import APP, ENGINE, Write, rows_of

MARKED = "id BIGINT, name STRING, gone BOOLEAN"
DELETING: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("id",), "delete_when": "gone"}
DATED = "id BIGINT, name STRING, at INT"
NEWER: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("id",), "only_if_newer": "at"}
BOTH = "id BIGINT, name STRING, at INT, gone BOOLEAN"
CHANGES: dict[str, Any] = {**NEWER, "delete_when": "gone"}


@pytest.mark.usefixtures("rewritten_by")
def test_a_marked_row_deletes_its_keys_and_the_marker_is_not_stored(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a", False), (2, "b", None), (3, "c", False)], MARKED, **DELETING)
    result = write([(1, None, True), (2, "B", False), (4, "d", None)], MARKED, **DELETING)
    assert (result.rows_written, result.rows_updated, result.rows_deleted, result.rows_total) == (2, 1, 1, 3)
    assert [name for name, _ in result.columns] == ["id", "name"]
    assert rows_of(spark, table) == [(2, "B"), (3, "c"), (4, "d")]


@pytest.mark.usefixtures("rewritten_by")
def test_deleting_what_is_not_there_does_nothing_and_takes_the_fence_along(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a", True), (2, "b", False)], MARKED, **DELETING)
    result = write([(1, None, True), (9, None, True)], MARKED, **DELETING)
    assert (result.files_added, result.files_removed, result.rows_deleted) == (0, 0, 0)
    assert ENGINE.open(table).transaction_number(APP) == 2
    assert changes(ENGINE.open(table), 0, 1).kind == "none"
    assert rows_of(spark, table) == [(2, "b")]


@pytest.mark.usefixtures("rewritten_by")
def test_the_log_tells_that_rows_were_deleted(write: Write, table: Location) -> None:
    write([(1, "a", False), (2, "b", False)], MARKED, **DELETING)
    write([(1, "a", True), (3, "c", False)], MARKED, **DELETING)
    gained = changes(ENGINE.open(table), 0, 1)
    assert (gained.kind, gained.commits[0].kind, gained.commits[0].deleted) == ("partitions", "rows", 1)
    assert gained.rows == 1


@pytest.mark.usefixtures("rewritten_by")
def test_rows_keep_their_values_and_partitions_where_others_are_deleted(
    spark: SparkSession, table: Location, write: Write
) -> None:
    how = {**DELETING, "partition_by": ("part",)}
    values = "id, CAST(id / 7 AS DECIMAL(20,4)) AS price, array(id, NULL) AS list, named_struct('a', id, 'b', 'x') AS s"
    rows = f"SELECT {values}, map('k', id) AS m, id % 2 AS part, {{gone}} AS gone FROM range({{begin}}, {{end}})"
    write(spark.sql(rows.format(gone="false", begin=0, end=8)), **how)
    result = write(spark.sql(rows.format(gone="id IN (2, 3, 11)", begin=2, end=12)), **how)
    assert (result.rows_written, result.rows_updated, result.rows_deleted, result.rows_total) == (7, 4, 2, 9)
    kept = spark.sql(rows.format(gone="false", begin=0, end=11)).drop("gone").where("id NOT IN (2, 3)")
    assert rows_of(spark, table) == sorted(map(tuple, kept.collect()), key=str)
    files = {file.path for file in ENGINE.open(table).live_files}
    assert not any("gone" in pq.read_schema(table.local_path / path).names for path in files)


@pytest.mark.parametrize("partition_by", [(), ("name",)], ids=["no partitions", "partitions"])
def test_rows_of_this_process_delete_by_a_marker_without_spark(
    spark: SparkSession, table: Location, partition_by: tuple[str, ...]
) -> None:
    def open_spark() -> SparkSession:
        raise AssertionError("Arrow can do it")

    def write(rows: list[tuple[int, str | None, bool | None]]) -> WriteResult:
        columns = zip(*rows, strict=True) if rows else ([], [], [])
        kinds = (pa.int64(), pa.string(), pa.bool_())
        made = pa.table(list(map(pa.array, columns, kinds)), ["id", "name", "gone"])
        handle = ENGINE.open(table)
        stamp = Stamp(APP, handle.transaction_number(APP) + 1, {"run_id": "run"})
        return ENGINE.write_arrow(made, handle, WriteSpec(**DELETING, partition_by=partition_by), stamp, open_spark)

    write([(1, "a", False), (2, "b", None), (3, "c", False), (5, "e", True)])
    result = write([(1, None, True), (2, "B", False), (4, "d", None), (9, None, True)])
    assert (result.rows_written, result.rows_updated, result.rows_deleted, result.rows_total) == (2, 1, 1, 3)
    gained = changes(ENGINE.open(table), 0, 1)
    assert (gained.kind, gained.rows, gained.commits[0].deleted) == ("partitions", 2, 1)
    assert write([(3, "C", False)]).rows_deleted == 0
    assert write([(4, None, True)]).rows_deleted == 1
    write([])
    assert rows_of(spark, table) == [(2, "B"), (3, "C")]
    files = ENGINE.open(table).live_files
    assert not any("gone" in pq.read_schema(table.local_path / file.path).names for file in files)


@pytest.mark.parametrize("column", ["name", "nothing"])
def test_a_marker_that_is_no_boolean_or_not_there_is_refused_by_name(write: Write, column: str) -> None:
    with pytest.raises(TableError, match=f"`{column}`"):
        write([(1, "a")], **{**DELETING, "delete_when": column})


def test_only_a_greater_value_replaces_a_row(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a", 5), (2, "b", 5), (3, "c", 5), (4, "d", None), (5, "e", 5)], DATED, **NEWER)
    result = write(
        [(1, "older", 4), (2, "equal", 5), (3, "newer", 6), (4, "dated", 1), (5, "undated", None), (6, "new", None)],
        DATED,
        **NEWER,
    )
    assert (result.rows_written, result.rows_updated) == (3, 2)
    assert [row[1] for row in rows_of(spark, table)] == ["a", "b", "newer", "dated", "e", "new"]


def test_of_several_rows_of_one_key_the_newest_counts(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a", 1), (1, "b", 2), (1, "b", 2), (2, "x", None), (2, "y", 1)], DATED, **NEWER)
    assert rows_of(spark, table) == [(1, "b", 2), (2, "y", 1)]
    write([(1, "c", 4), (1, "d", 3), (2, "z", 0)], DATED, **NEWER)
    assert rows_of(spark, table) == [(1, "c", 4), (2, "y", 1)]


def test_two_different_newest_rows_of_one_key_are_refused(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a", 1)], DATED, **NEWER)
    with pytest.raises(TableError, match=r"2 different rows .* \(id=7\) and the same `at`"):
        write([(7, "x", 3), (7, "y", 3)], DATED, **NEWER)
    assert rows_of(spark, table) == [(1, "a", 1)]


def test_late_rows_alone_change_nothing_but_the_fence(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a", 5)], DATED, **NEWER)
    result = write([(1, "late", 3)], DATED, **NEWER)
    assert (result.version, result.files_added, result.files_removed, result.rows_total) == (1, 0, 0, 1)
    assert ENGINE.open(table).transaction_number(APP) == 2
    assert rows_of(spark, table) == [(1, "a", 5)]


@pytest.mark.contract
def test_deletes_and_updates_of_one_increment_end_as_their_newest_says(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a", 1, False), (2, "b", 5, False), (3, "c", 1, False)], BOTH, **CHANGES)
    result = write(
        [
            (1, "again", 2, False), (1, None, 3, True),
            (2, None, 4, True),
            (3, None, 2, True), (3, "back", 3, False),
            (4, "new", 1, False), (4, None, 2, True),
        ],
        BOTH,
        **CHANGES,
    )  # fmt: skip
    assert (result.rows_written, result.rows_updated, result.rows_deleted) == (1, 1, 1)
    assert rows_of(spark, table) == [(2, "b", 5), (3, "back", 3)]


@pytest.mark.parametrize("mode", [WriteMode.OVERWRITE, WriteMode.PARTITION_OVERWRITE])
def test_a_full_refresh_or_backfill_of_an_upsert_resolves_deletes_and_older_rows_too(
    spark: SparkSession, table: Location, write: Write, mode: WriteMode
) -> None:
    partition_by = ("name",) if mode is WriteMode.PARTITION_OVERWRITE else ()
    how = {**CHANGES, "mode": mode, "declared": WriteMode.UPSERT, "partition_by": partition_by}
    rows = [(1, "a", 1, False), (1, "a", 2, False), (2, "b", 1, False), (2, "b", 2, True)]
    write(rows, BOTH, **how)
    assert rows_of(spark, table) == [(1, "a", 2)]


def test_a_full_refresh_of_an_upsert_refuses_two_rows_of_one_key(write: Write) -> None:
    with pytest.raises(TableError, match=r"have the same keys \(id=1\)"):
        write([(1, "a"), (1, "b")], mode=WriteMode.OVERWRITE, declared=WriteMode.UPSERT, keys=("id",))


def test_options_work_on_partitions_and_null_keys(spark: SparkSession, table: Location, write: Write) -> None:
    how = {**CHANGES, "keys": ("id", "name"), "partition_by": ("name",)}
    write([(None, "p", 1, False), (1, None, 1, False), (2, "q", 1, False)], BOTH, **how)
    write([(None, "p", 2, True), (1, None, 2, True), (2, "q", 0, True)], BOTH, **how)
    assert rows_of(spark, table) == [(2, "q", 1)]
