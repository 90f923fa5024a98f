"""Late and rewritten files, and partitions that an increment holds only a part of, run on real Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, IncrementError, SourceError
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.recovery.accept import accept
from odi_assets.state.records import RunStatus
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.execution.test_shapes_of_files import FILES, Zone
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[[str, str], Sandbox]

NODE = """
- pipeline: p
  nodes:
  - name: n
    read:
      {connection: landing, format: csv, path: "e/*.csv", schema: "id BIGINT, day DATE, at TIMESTAMP",
       options: {header: "true"}, incremental: {INCREMENT}}
    write: {connection: lake, path: n, WRITE}
"""
HEADER = "id,day,at"
BY_DAY = "mode: partition_overwrite, partition_by: [day]"


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    return lambda increment, write: Sandbox(
        tmp_path, spark, NODE.replace("INCREMENT", increment).replace("WRITE", write)
    )


def ids(box: Sandbox) -> list[int]:
    return [row[0] for row in box.rows("n")]


def test_files_that_land_with_old_times_are_loaded_once_and_rewritten_ones_stop_the_run(make: Make) -> None:
    box = make("mode: files", "mode: append")
    box.land("e/b.csv", [HEADER, "1,2024-01-01,"])
    box.run("n")
    late = box.land("e/a.csv", [HEADER, "2,2024-01-01,"])
    os.utime(late, (1, 1))
    empty = box.land("e/empty.csv", [])
    empty.write_text("")
    result = box.run("n")
    assert (result.rows_written, str(result.hwm_after)) == (1, "e/b.csv")
    assert "1 empty, skipped (e/empty.csv)" in result.increment
    assert box.run("n").status is RunStatus.NO_DATA
    box.land("e/a.csv", [HEADER, "3,2024-01-01,"])
    with pytest.raises(IncrementError, match=r"has other content now: e/a\.csv"):
        box.run("n")
    assert ids(box) == [1, 2]
    assert box.run("n", full_refresh=True).rows_written == 2
    assert box.run("n").status is RunStatus.NO_DATA


def test_an_hwm_of_old_is_carried_on_when_nothing_is_new(make: Make) -> None:
    box = make("mode: files", "mode: append")
    box.land("e/b.csv", [HEADER, "1,2024-01-01,"])
    box.run("n")
    entry = box.state.get_entry("p.n")
    assert entry is not None
    old = {"mtime_ns": entry.value["mtime_ns"], "path": "e/b.csv"}
    box.state.compare_and_set("p.n", old, expected_revision=entry.revision)
    assert box.run("n").status is RunStatus.NO_DATA
    os.utime(box.land("e/a.csv", [HEADER, "2,2024-01-01,"]), (1, 1))
    assert box.run("n").rows_written == 1


ROLLING = "mode: rolling_window, column: at, lookback: 3, unit: hour"


@pytest.mark.parametrize(
    ("increment", "mark"), [(ROLLING, None), ("mode: stateful, column: id", 2)], ids=["window", "accepted mark"]
)
def test_a_first_run_of_a_part_computes_each_partition_that_it_touches_from_all_rows(
    make: Make, increment: str, mark: int | None
) -> None:
    box, now = make(increment, BY_DAY), datetime.now(UTC)
    times = {3: now - timedelta(hours=1), 2: now - timedelta(hours=5), 1: now - timedelta(hours=5)}
    days = {3: "2024-01-01", 2: "2024-01-01", 1: "2024-01-02"}
    box.land("e/a.csv", [HEADER, *(f"{number},{days[number]},{at.isoformat()}" for number, at in times.items())])
    if mark is not None:
        box.state.compare_and_set("p.n", mark, expected_revision=None)
        accept(box.project, box.state, NodeKey("p", "n"))
    assert "the whole of each day they affect" in box.run("n").increment
    assert ids(box) == [2, 3]
    box.run("n")
    assert ids(box) == [2, 3]


@pytest.mark.parametrize(
    ("increment", "write"),
    cases(
        ["mode: files", "mode: stateful, column: at", "mode: stateful, column: id, initial_value: 2", ROLLING],
        [BY_DAY, "mode: overwrite", "mode: upsert, keys: [id]", "mode: append_once, keys: [id]"],
    ),
)
def test_a_first_run_holds_what_a_second_one_over_the_same_source_does(make: Make, increment: str, write: str) -> None:
    box, now = make(increment, write), datetime.now(UTC)
    hours = {1: 9, 2: 9, 3: 9, 4: 1, 5: 1}
    days = {number: f"2024-01-0{1 + number % 2}" for number in hours}
    files = {"a": (1, 2, 4), "b": (3, 5)}
    for name, numbers in files.items():
        lines = (f"{one},{days[one]},{(now - timedelta(hours=hours[one])).isoformat()}" for one in numbers)
        box.land(f"e/{name}.csv", [HEADER, *lines])
    wanted = {number for number in hours if "initial" not in increment or number >= 2}
    # Both days have a row of the window: partitions are whole.
    if increment == ROLLING and write != BY_DAY:
        wanted = {number for number in hours if hours[number] < 3}
    for _ in range(2):
        box.run("n")
        assert ids(box) == sorted(wanted)


@pytest.mark.parametrize("left", [{}, {1: "2024-01-01"}, {1: "2024-01-01", 2: "2024-01-01"}, {1: "2024-01-02"}])
def test_a_partition_whose_rows_left_a_window_or_moved_is_computed_again(make: Make, left: dict[int, str]) -> None:
    box, now = make(ROLLING, BY_DAY), datetime.now(UTC)
    recent, old = ((now - timedelta(hours=hours)).isoformat() for hours in (1, 9))
    kept = f"3,2024-01-03,{old}"
    box.land("e/a.csv", [HEADER, f"1,2024-01-01,{recent}", f"2,2024-01-02,{recent}", kept])
    box.run("n", full_refresh=True)
    assert ids(box) == [1, 2, 3]
    box.land("e/a.csv", [HEADER, *(f"{number},{day},{recent}" for number, day in left.items()), kept])
    for _ in range(2):
        box.run("n")
        assert sorted((row[0], str(row[1])) for row in box.rows("n")) == [*sorted(left.items()), (3, "2024-01-03")]


def test_no_audit_says_which_rows_of_a_rolling_window_are_missing(make: Make, spark: SparkSession) -> None:
    box = make(ROLLING, "mode: overwrite")
    box.land("e/a.csv", [HEADER, f"1,2024-01-01,{datetime.now(UTC).isoformat()}", "2,2024-01-01,2024-01-01T00:00:00Z"])
    box.run("n")
    assert ids(box) == [1]
    with pytest.raises(ConfigError, match=r"p\.n reads a rolling window of .*: no mark says which"):
        audit(box.project, spark, box.state, NodeKey("p", "n"))


def test_a_partition_that_new_files_touch_is_computed_from_all_files(make: Make) -> None:
    box = make("mode: files", BY_DAY)
    box.land("e/a.csv", [HEADER, "1,2024-01-01,", "2,2024-01-02,"])
    box.run("n")
    file = box.land("e/b.csv", [HEADER, "3,2024-01-02,"])
    assert box.run("n").rows_written == 2
    assert ids(box) == [1, 2, 3]
    box.land("e/b.csv", [HEADER, "4,2024-01-01,"])
    box.run("n")
    assert ids(box) == [1, 2, 4]
    file.unlink()
    box.land("e/c.csv", [HEADER, "5,2024-01-01,"])
    with pytest.raises(IncrementError, match=r"1 loaded file of landing:e/\*\.csv is gone"):
        box.run("n")


@pytest.mark.parametrize("increment", ["mode: stateful, column: at", "mode: rolling_window, column: at, lookback: 2"])
def test_a_partition_that_a_window_cuts_is_computed_whole(make: Make, increment: str) -> None:
    box = make(increment, BY_DAY)
    now = datetime.now(UTC)
    old, new = (f"{now - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}" for hours in (60, 1))
    lines = [HEADER, f"1,2024-01-01,{old}", f"2,2024-01-02,{new}"]
    box.land("e/a.csv", lines)
    box.run("n", full_refresh=True)
    later = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    box.land("e/a.csv", [*lines, f"3,2024-01-01,{later}"])
    box.run("n")
    assert ids(box) == [1, 2, 3]


TWO_INPUTS = """
- pipeline: p
  nodes:
  - {name: left, read: {connection: landing, format: csv, path: "l/*.csv", schema: "id BIGINT, day DATE, at BIGINT",
     options: {header: "true"}, incremental: files}, write: {connection: lake, path: left, mode: append}}
  - {name: right, read: {connection: landing, format: csv, path: "r/*.csv", schema: "id BIGINT, day DATE, at BIGINT",
     options: {header: "true"}, incremental: files}, write: {connection: lake, path: right, mode: append}}
  - name: n
    inputs:
      left: {node: left, incremental: {mode: stateful, column: at}}
      right: {node: right, incremental: {mode: stateful, column: at}}
    transform: {sql: "SELECT l.id, l.day, r.at FROM left l JOIN right r USING (id)"}
    write: {connection: lake, path: n, mode: partition_overwrite, partition_by: [day]}
"""


def test_a_partition_is_computed_anew_from_inputs_that_gained_nothing_too(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, TWO_INPUTS)
    box.land("l/1.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-01,2"])
    box.land("r/1.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-01,2"])
    for node in ("left", "right"):
        box.run(node)
    box.run("n", full_refresh=True)
    assert ids(box) == [1, 2]
    box.land("l/2.csv", [HEADER, "1,2024-01-01,3"])
    box.run("left")
    box.run("n")
    assert ids(box) == [1, 1, 2]


BOTH = """
- pipeline: p
  nodes:
  - {name: up, read: {connection: landing, format: csv, path: "u/*.csv", schema: "id BIGINT, day DATE, at BIGINT",
     options: {header: "true"}, incremental: files}, write: {connection: lake, path: up, mode: append}}
  - name: n
    read: {connection: landing, format: csv, path: "e/*.csv", schema: "id BIGINT, day DATE, at BIGINT",
           options: {header: "true"}, incremental: files}
    inputs: {up: {node: up, incremental: version}}
    transform: {sql: "SELECT * FROM df UNION ALL SELECT * FROM up"}
    write: {connection: lake, path: n, mode: partition_overwrite, partition_by: [day]}
"""


def test_a_node_that_follows_files_and_a_table_remembers_both(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, BOTH)
    box.land("u/1.csv", [HEADER, "1,2024-01-01,1"])
    box.land("e/1.csv", [HEADER, "2,2024-01-01,1"])
    box.run("up")
    assert set(box.run("n").hwm_after.value) == {"df", "up"}
    assert box.run("n").status is RunStatus.NO_DATA
    box.land("e/2.csv", [HEADER, "3,2024-01-02,1"])
    assert box.run("n").rows_written == 1
    assert ids(box) == [1, 2, 3]


RANGE = """
- pipeline: p
  nodes:
  - name: n
    read:
      {connection: landing, format: csv, path: "e/*.csv", schema: "id BIGINT, day DATE, at BIGINT",
       options: {header: "true"}, incremental: {mode: stateful, column: at, initial_value: "10"}}
    partition: {column: day, start: 2024-01-01}
    write: {connection: lake, path: n, mode: append}
"""


def test_a_range_of_an_appending_node_leaves_out_what_lies_before_the_first_value(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, RANGE)
    box.land("e/1.csv", [HEADER, "1,2024-01-01,5", "2,2024-01-01,15"])
    box.run("n")
    assert ids(box) == [2]
    box.run("n", start="2024-01-01", end="2024-01-02")
    assert ids(box) == [2]


def test_a_full_refresh_that_finds_no_row_says_so_and_keeps_the_table(make: Make) -> None:
    """The table would keep rows of another definition, and its mark, while the run says that all is well."""
    box = make('mode: stateful, column: id, initial_value: "2"', "mode: append")
    box.land("e/1.csv", [HEADER, "1,2024-01-01,", "2,2024-01-01,"])
    box.run("n")
    (box.root / "landing" / "e" / "1.csv").write_text(f"{HEADER}\n1,2024-01-01,\n")
    with pytest.raises(SourceError, match=r"a full refresh finds no row in .*, so it replaces nothing"):
        box.run("n", full_refresh=True, accept_loss=True)
    assert (ids(box), box.hwm("n")) == ([2], 2)
    box.land("e/2.csv", [HEADER, "3,2024-01-01,"])
    box.run("n", full_refresh=True, accept_loss=True)
    assert ids(box) == [3]


EMPTIED = """
- pipeline: p
  nodes:
  - name: up
    read: {connection: landing, format: csv, path: "up.csv", schema: "id BIGINT", options: {header: "true"}}
    write: {connection: lake, path: up, mode: overwrite}
  - name: down
    inputs: {up: {node: up, incremental: version}}
    write: {connection: lake, path: down, mode: append}
"""


def test_a_full_refresh_below_a_table_that_was_emptied_leaves_no_row(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, EMPTIED)
    box.land("up.csv", ["id", "1"])
    box.run("up")
    box.run("down")
    box.land("up.csv", ["id"])
    box.run("up")
    box.run("down", full_refresh=True, accept_loss=True)
    assert box.rows("down") == []


def test_a_full_refresh_without_a_mark_that_finds_no_row_says_so_too(make: Make) -> None:
    box = make('mode: stateful, column: id, initial_value: "2"', "mode: append")
    file = box.land("e/1.csv", [HEADER, "2,2024-01-01,"])
    box.run("n")
    box.state.delete_hwm("p.n")
    file.write_text(f"{HEADER}\n1,2024-01-01,\n")
    with pytest.raises(SourceError, match="so it replaces nothing: the table stays as it is"):
        box.run("n", full_refresh=True, accept_loss=True)
    assert ids(box) == [2]


def test_the_two_zeros_of_a_float_are_one_partition(tmp_path: Path, spark: SparkSession) -> None:
    """The run stopped: rows of `-0.0` came out of an increment that covers `0.0`."""
    box = Zone(tmp_path, spark, f"format: parquet, {FILES}", "mode: partition_overwrite, partition_by: [k]")
    box.parquet("in/1.parquet", k=[-0.0, 1.0], n=[1, 2])
    box.run("raw")
    box.parquet("in/2.parquet", k=[0.0], n=[3])
    box.run("raw")
    assert [(row["k"], row["n"]) for row in box.stored()] == [(0.0, 1), (0.0, 3), (1.0, 2)]
    assert {file.partition["k"] for file in box.table("raw").live_files} == {"0.0", "1.0"}
