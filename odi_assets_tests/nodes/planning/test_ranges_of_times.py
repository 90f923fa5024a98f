"""Ranges of partitions whose column is a TIMESTAMP or TIMESTAMP_NTZ: a partition is in a range by its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

Make = Callable[..., Sandbox]
PIPELINE = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: in/, schema: "id BIGINT, at KIND, v STRING",
       options: {header: "true"}, incremental: files}
    partition: {column: at, every: EVERY, start: 2024-01-01}
    write: {connection: lake, path: raw, mode: MODE}
  - name: below
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT at, count(*) AS rows FROM raw GROUP BY at"}
    partition: {column: at, every: EVERY, start: 2024-01-01}
    write: {connection: lake, path: below, mode: partition_overwrite}
"""
HEADER = "id,at,v"


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def made(kind: str = "TIMESTAMP", every: str = "day", mode: str = "append") -> Sandbox:
        text = PIPELINE.replace("KIND", kind).replace("EVERY", every).replace("MODE", mode)
        return Sandbox(tmp_path, spark, text)

    return made


def stored(box: Sandbox, node: str, *columns: str) -> list[tuple[object, ...]]:
    rows = read_table(box.spark, box.table(node)).selectExpr(*columns)
    return sorted((tuple(row) for row in rows.collect()), key=str)


@pytest.mark.parametrize("mode", ["append", "partition_overwrite", "upsert, keys: [id]"])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_range_of_days_replaces_all_times_of_its_days(make: Make, kind: str, mode: str) -> None:
    box = make(kind, mode=mode)
    box.land("in/a.csv", [HEADER, "1,2024-01-01 00:00:00,a", "2,2024-01-01 23:59:59.999999,a", "3,2024-01-02,a"])
    box.run("raw")
    box.land("in/b.csv", [HEADER, "4,2024-01-01 10:15:00,b"])
    box.run("raw")
    result = box.run("raw", start="2024-01-01", end="2024-01-02")
    assert (result.status, result.rows_written) == (RunStatus.SUCCESS, 3)
    assert stored(box, "raw", "id", "v") == [(1, "a"), (2, "a"), (3, "a"), (4, "b")]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_range_holds_what_its_sources_have_and_nothing_else_of_its_days(make: Make, kind: str) -> None:
    box = make(kind, mode="partition_overwrite")
    box.land("in/a.csv", [HEADER, "1,2024-01-01 08:00:00,a", "2,2024-01-01 09:00:00,a", "3,2024-01-02 08:00:00,a"])
    box.run("raw")
    box.land("in/a.csv", [HEADER, "1,2024-01-01 08:00:00,b", "4,2024-01-01 07:30:00,b", "3,2024-01-02 08:00:00,b"])
    box.run("raw", start="2024-01-01", end="2024-01-02")
    assert stored(box, "raw", "id", "v") == [(1, "b"), (3, "a"), (4, "b")]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_node_below_a_table_of_times_takes_a_range_of_it(make: Make, kind: str) -> None:
    box = make(kind)
    box.land("in/a.csv", [HEADER, "1,2024-01-01 00:00:00,a", "2,2024-01-01 10:15:00,a", "3,2024-01-02 00:00:00,a"])
    box.run("raw")
    box.run("below", start="2024-01-01", end="2024-01-02")
    assert stored(box, "below", "cast(at AS string)", "rows") == [
        ("2024-01-01 00:00:00", 1),
        ("2024-01-01 10:15:00", 1),
    ]
    box.run("below")
    box.run("below", start="2024-01-01", end="2024-01-03")
    assert stored(box, "below", "date_format(at, 'dd HH')", "rows") == [("01 00", 1), ("01 10", 1), ("02 00", 1)]


@pytest.mark.parametrize("every", ["hour", "day"])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_range_is_one_of_utc_whatever_zone_the_session_has_and_where_clocks_change(
    make: Make, zone: str, kind: str, every: str
) -> None:
    del zone
    box = make(kind, every)
    # In Berlin, 02:30 is no time of 31 March 2024, and comes twice on 27 October.
    times = ["2024-03-30 23:00:00", "2024-03-31 00:00:00", "2024-03-31 02:30:00", "2024-10-27 02:30:00"]
    box.land("in/a.csv", [HEADER, *[f"{number},{time},a" for number, time in enumerate(times, 1)]])
    box.run("raw")
    end = "2024-03-31T03:00" if every == "hour" else "2024-04-01"
    assert box.run("raw", start="2024-03-31", end=end).rows_written == 2
    assert box.run("raw", start="2024-10-27", end="2024-10-28").rows_written == 1
    assert box.run("below", start="2024-03-31", end=end).rows_written == 2
    assert [row[0] for row in stored(box, "raw", "id")] == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_a_range_of_months_holds_all_days_of_its_months(make: Make, kind: str) -> None:
    box = make(kind, "month")
    box.land("in/a.csv", [HEADER, "1,2024-01-01,a", "2,2024-01-31,a", "3,2024-02-01,a"])
    box.run("raw")
    assert box.run("raw", start="2024-01-01", end="2024-02-01").rows_written == 2
    assert box.run("below", start="2024-01-01", end="2024-02-01").rows_written == 2
    assert [row[0] for row in stored(box, "raw", "id")] == [1, 2, 3]


def test_a_range_of_days_as_text_replaces_the_days_that_it_names(make: Make) -> None:
    box = make("STRING")
    box.land("in/a.csv", [HEADER, "1,2024-01-01,a", "2,2024-01-02,a"])
    box.run("raw")
    assert box.run("raw", start="2024-01-01", end="2024-01-02").rows_written == 1
    assert [row[0] for row in stored(box, "raw", "id")] == [1, 2]
