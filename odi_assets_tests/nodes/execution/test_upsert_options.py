"""Nodes that delete and keep the newest, and what becomes of the nodes below them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import TableError
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[[str], Sandbox]

PIPELINE = """
- pipeline: p
  nodes:
  - name: orders
    read:
      {connection: landing, format: csv, path: "*.csv", options: {header: "true"}, incremental: {mode: files},
       schema: "id BIGINT, day DATE, at INT, gone BOOLEAN"}
    write: {connection: lake, path: orders, mode: upsert, keys: [id], delete_when: gone, only_if_newer: at}
  - name: copy
    inputs: {orders: {node: orders, incremental: {mode: version}}}
    write: {connection: lake, path: copy, mode: upsert, keys: [id]}
  - name: log
    inputs: {orders: {node: orders, incremental: {mode: version}}}
    write: {connection: lake, path: log, mode: append}
  - name: by_day
    inputs: {orders: {node: orders, incremental: {mode: version}}}
    transform: {sql: "SELECT day, count(*) AS orders FROM orders GROUP BY day"}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: by_day, mode: partition_overwrite}
"""
HEAD = "id,day,at,gone"
BELOW = ("copy", "log", "by_day")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, PIPELINE)


def test_deleted_rows_leave_the_tables_below_in_every_mode(box: Sandbox) -> None:
    box.land("1.csv", [HEAD, "1,2024-01-01,1,", "2,2024-01-01,1,", "3,2024-01-02,1,", "4,2024-01-03,1,"])
    for node in ("orders", *BELOW):
        box.run(node)
    box.land("2.csv", [HEAD, "1,2024-01-01,2,true", "3,2024-01-04,2,", "9,2024-01-05,1,true"])
    result = box.run("orders")
    assert (result.metrics["rows_deleted"], result.metrics["rows_updated"], result.rows_written) == (1, 1, 1)
    for node in BELOW:
        box.run(node)
    assert [row[0] for row in box.rows("orders")] == [2, 3, 4]
    assert box.rows("copy") == box.rows("log") == box.rows("orders")
    assert [(str(row[0]), row[1]) for row in box.rows("by_day")] == [
        ("2024-01-01", 1),
        ("2024-01-03", 1),
        ("2024-01-04", 1),
    ]
    assert {box.run(node).status for node in BELOW} == {RunStatus.NO_DATA}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_only_the_days_of_deleted_rows_are_computed_anew(box: Sandbox) -> None:
    box.land("1.csv", [HEAD, "1,2024-01-01,1,", "2,2024-01-02,1,", "3,2024-01-03,1,"])
    box.run("orders")
    box.run("by_day")
    box.land("2.csv", [HEAD, "2,,2,true"])
    box.run("orders")
    assert box.run("by_day").partitions == ("2024-01-02",)
    assert [str(row[0]) for row in box.rows("by_day")] == ["2024-01-01", "2024-01-03"]


def test_an_increment_of_late_rows_moves_the_hwm_and_nothing_else(box: Sandbox) -> None:
    box.land("1.csv", [HEAD, "1,2024-01-01,5,"])
    box.run("orders")
    box.run("copy")
    box.land("2.csv", [HEAD, "1,2024-01-09,4,", "7,2024-01-09,4,true"])
    result = box.run("orders")
    assert (result.rows_read, result.rows_written, str(result.hwm_after)) == (2, 0, "2.csv")
    assert box.run("copy").status is RunStatus.NO_DATA
    assert box.run("orders").status is RunStatus.NO_DATA


def test_a_full_refresh_ends_in_the_same_rows_as_the_increments(box: Sandbox) -> None:
    for number, line in enumerate(["1,2024-01-01,1,", "1,2024-01-01,3,", "1,2024-01-01,2,", "2,2024-01-01,1,"]):
        box.land(f"{number}.csv", [HEAD, line])
        box.run("orders")
    box.land("9.csv", [HEAD, "2,2024-01-01,2,true"])
    box.run("orders")
    rows = box.rows("orders")
    box.run("orders", full_refresh=True)
    assert box.rows("orders") == rows
    assert [(row[0], row[2]) for row in rows] == [(1, 3)]


EVOLVING = """
- pipeline: p
  nodes:
  - name: raw
    read: {{connection: landing, format: parquet, path: "*.parquet", options: {{mergeSchema: "true"}},
            incremental: {{mode: files}}}}
    write: {{connection: lake, path: raw, mode: append, schema: {policy}}}
"""


@pytest.mark.parametrize("policy", ["fail", "evolve", "ignore"])
def test_a_new_column_of_the_source_does_what_the_node_says(tmp_path: Path, spark: SparkSession, policy: str) -> None:
    box = Sandbox(tmp_path, spark, EVOLVING.format(policy=policy))
    folder = tmp_path / "landing"
    spark.sql("SELECT 1L AS id").coalesce(1).write.parquet(str(folder / "a"))
    next((folder / "a").glob("*.parquet")).rename(folder / "1.parquet")
    box.run("raw")
    spark.sql("SELECT 2L AS id, 'x' AS extra").coalesce(1).write.parquet(str(folder / "b"))
    next((folder / "b").glob("*.parquet")).rename(folder / "2.parquet")
    if policy == "fail":
        with pytest.raises(TableError, match="no column `extra`"):
            box.run("raw")
        assert box.rows("raw") == [(1,)]
        return
    result = box.run("raw")
    name = "columns_added" if policy == "evolve" else "columns_ignored"
    assert result.metrics[name] == ["extra"]
    assert box.rows("raw") == ([(1, None), (2, "x")] if policy == "evolve" else [(1,), (2,)])
    assert box.run("raw").status is RunStatus.NO_DATA
