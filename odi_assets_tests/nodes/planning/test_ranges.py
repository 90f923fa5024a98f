"""Bounded runs: what a range is, and that a backfill beside increments neither repeats a row nor loses one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, TableError
from odi_assets.nodes.execution.materialize import Computed, compute
from odi_assets.nodes.planning.range import require_ranges
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds, RunRequest
from odi_assets.nodes.result import RunInfo
from odi_assets.nodes.run_node import commit
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

HEADER = "id,day,amount"
ORDERS = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, day DATE, amount DOUBLE",
       options: {header: "true"}, incremental: {mode: files}}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: raw, mode: append}
  - name: by_day
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT day, count(*) AS orders, sum(amount) AS amount FROM raw GROUP BY day"}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: by_day, mode: partition_overwrite}
  - name: latest
    read:
      {connection: landing, format: csv, path: "events.csv", schema: "id BIGINT, at TIMESTAMP, what STRING",
       options: {header: "true"}, incremental: {mode: stateful, column: at}}
    write: {connection: lake, path: latest, mode: upsert, keys: [id]}
  - name: log
    read:
      {connection: landing, format: csv, path: "events.csv", schema: "id BIGINT, at TIMESTAMP, what STRING",
       options: {header: "true"}, incremental: {mode: stateful, column: at}}
    write: {connection: lake, path: log, mode: append}
  - name: kept
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: kept, mode: upsert, keys: [id]}
"""
NUMBERED = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, at STRING",
       options: {header: "true"}, incremental: {mode: stateful, column: id}}
    write: {connection: lake, path: raw, mode: upsert, keys: [id]}
  - name: below
    inputs: {raw: {node: raw, incremental: {mode: stateful, column: at}}}
    write: {connection: lake, path: below, mode: upsert, keys: [id]}
"""
MOVING = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, k STRING, n BIGINT",
       options: {header: "true"}, incremental: files}
    partition: {column: k, values: [a, b c, d, eu, us]}
    write: {connection: lake, path: raw, mode: upsert, keys: [id]}
"""
TIED = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, k STRING, n BIGINT",
       options: {header: "true"}, incremental: {mode: stateful, column: n, boundary: closed}}
    partition: {column: k, values: [eu, us]}
    write: {connection: lake, path: raw, mode: append}
"""
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, ORDERS)


def computed(box: Sandbox, node: str, start: str = "", end: str = "") -> Computed:
    bounds = Bounds.of(start, end) if start else None
    return compute(box.plan(node, bounds=bounds), box.spark)


def finish(box: Sandbox, work: Computed) -> RunStatus:
    return commit(work, box.state, RunInfo(f"run-{id(work)}")).status


def ids(box: Sandbox, node: str) -> list[Any]:
    return [row[0] for row in box.rows(node)]


def test_a_range_of_an_appending_node_holds_what_its_increments_loaded_and_they_append_the_rest(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"nothing of landing:orders/\*\.csv was loaded yet"):
        box.run("raw", start=D1, end=D2)
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D2},2"])
    box.run("raw")
    box.land("orders/b.csv", [HEADER, f"3,{D1},3"])
    before = box.hwm("raw")
    assert box.run("raw", start=D3, end="2024-01-05").status is RunStatus.SUCCESS
    assert (ids(box, "raw"), "gone" in caplog.text) == ([1, 2], False)
    assert box.run("raw", start=D1, end=D2).rows_written == 1
    assert (ids(box, "raw"), box.hwm("raw")) == ([1, 2], before)
    box.run("raw")
    assert ids(box, "raw") == [1, 2, 3]


def test_a_range_takes_no_rows_that_a_rewritten_file_has_now_where_these_are_ignored(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, ORDERS.replace("{mode: files}", "{mode: files, on_change: ignore}"))
    file = box.land("orders/a.csv", [HEADER, f"1,{D1},1"])
    box.run("raw")
    file.write_text("\n".join([HEADER, f"9,{D1},9"]) + "\n", "utf-8")
    box.run("raw")
    with pytest.raises(ConfigError, match=r"present rows of 1 file of .*, among them orders/a\.csv"):
        box.run("raw", start=D1, end=D2)
    assert ids(box, "raw") == [1]


def test_a_range_that_the_sources_have_no_rows_of_any_more_is_emptied_and_says_so(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D2},2"])
    box.run("raw")
    box.run("by_day")
    box.table("raw").table.delete(f"day = '{D2}'")
    assert box.run("by_day", start=D2, end=D3).metrics["rows_removed"] == 1
    assert [str(row[0]) for row in box.rows("by_day")] == [D1]
    assert "no rows from 2024-01-02 until before 2024-01-03: what its table had there is gone, 1 row" in caplog.text


@pytest.mark.parametrize("node", ["raw", "by_day"])
@pytest.mark.parametrize("first", ["increment", "backfill"])
@pytest.mark.parametrize("day", [D1, D3], ids=["of rows", "of none yet"])
def test_a_backfill_and_an_increment_of_the_same_day_both_succeed_and_each_row_is_there_once(
    box: Sandbox, node: str, first: str, day: str
) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D2},2"])
    box.run("raw")
    box.run("by_day")
    before = box.hwm(node)
    box.land("orders/b.csv", [HEADER, f"3,{day},3"])
    if node == "by_day":
        box.run("raw")
    work = {
        "increment": computed(box, node),
        "backfill": computed(box, node, day, "2024-01-04" if day == D3 else D2),
    }
    order = [first, *(other for other in work if other != first)]
    assert [finish(box, work[which]) for which in order] == [RunStatus.SUCCESS] * 2
    expected = Counter({D1: 1, D2: 1}) + Counter({day: 1})
    if node == "raw":
        assert ids(box, "raw") == [1, 2, 3]
    else:
        assert {str(row[0]): row[1] for row in box.rows("by_day")} == dict(expected)
        assert len(box.rows("by_day")) == len(expected)
    assert box.hwm(node) != before
    assert box.run(node).status is RunStatus.NO_DATA


def test_two_backfills_at_once_of_different_days_are_both_computed_once(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D2},2", f"3,{D3},3"])
    box.run("raw")
    box.run("by_day")
    one, two = computed(box, "by_day", D1, D2), computed(box, "by_day", D2, D3)
    monkeypatch.setattr("odi_assets.nodes.run_node.plan_node", None)
    assert [finish(box, work) for work in (one, two)] == [RunStatus.SUCCESS] * 2
    assert [(str(row[0]), row[1]) for row in box.rows("by_day")] == [(D1, 1), (D2, 1), (D3, 1)]


def test_two_backfills_at_once_of_the_same_empty_day_fill_it_once(box: Sandbox) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D2},2"])
    box.run("raw")
    box.run("by_day")
    box.table("by_day").table.delete(f"day = '{D2}'")
    one, two = computed(box, "by_day", D2, D3), computed(box, "by_day", D2, D3)
    assert [finish(box, work) for work in (one, two)] == [RunStatus.SUCCESS] * 2
    assert [(str(row[0]), row[1]) for row in box.rows("by_day")] == [(D1, 1), (D2, 1)]


def test_a_full_refresh_that_a_backfill_overtook_leaves_nothing_twice(box: Sandbox) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D2},2"])
    box.run("raw")
    refresh = compute(box.plan("raw", full_refresh=True), box.spark)
    assert box.run("raw", start=D1, end=D2).status is RunStatus.SUCCESS
    assert finish(box, refresh) is RunStatus.SUCCESS
    assert ids(box, "raw") == [1, 2]


def test_a_node_without_partitions_that_upserts_takes_a_range_of_its_cursor(box: Sandbox) -> None:
    lines = ["id,at,what", f"1,{D1}T00:00:00Z,a", f"2,{D1}T23:59:59.999Z,a", f"3,{D2}T00:00:00Z,a"]
    box.land("events.csv", lines)
    box.run("latest")
    before = box.hwm("latest")
    box.land("events.csv", [lines[0], *(line.replace(",a", ",b") for line in lines[1:])])
    result = box.run("latest", start=D1, end=D2)
    assert (result.rows_written, result.metrics["rows_updated"]) == (2, 2)
    assert [(row[0], row[2]) for row in box.rows("latest")] == [(1, "b"), (2, "b"), (3, "a")]
    assert box.hwm("latest") == before
    assert box.run("latest").status is RunStatus.NO_DATA


@pytest.mark.parametrize("first", ["increment", "backfill"])
def test_an_upsert_of_a_range_beside_an_increment_never_puts_an_old_row_back_or_a_key_in_twice(
    box: Sandbox, first: str
) -> None:
    box.land("events.csv", ["id,at,what", f"1,{D1}T00:00:00Z,a"])
    box.run("latest")
    box.land("events.csv", ["id,at,what", f"1,{D1}T00:00:00Z,a", f"2,{D1}T01:00:00Z,a"])
    work = {"backfill": computed(box, "latest", D1, D2), "increment": computed(box, "latest")}
    order = [first, *(other for other in work if other != first)]
    for which in order:
        if which == "backfill" and first == "increment":
            box.land("events.csv", ["id,at,what", f"1,{D2}T00:00:00Z,new", f"2,{D1}T01:00:00Z,a"])
            box.run("latest")
        assert finish(box, work[which]) is RunStatus.SUCCESS
    newest = "new" if first == "increment" else "a"
    assert [(row[0], row[2]) for row in box.rows("latest")] == [(1, newest), (2, "a")]


def test_rows_whose_keys_may_stand_in_another_partition_are_upserted_and_stay_unique(box: Sandbox) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D1},2"])
    box.run("raw")
    box.run("kept")
    box.table("kept").table.delete("id = 2")
    assert box.run("kept", start=D1, end=D2).metrics["mode"] == "upsert"
    assert ids(box, "kept") == [1, 2]


def test_a_part_of_a_node_puts_no_older_row_of_a_key_back(box: Sandbox) -> None:
    box.land("orders/a.csv", [HEADER, f"1,{D1},1", f"2,{D1},2"])
    box.land("events.csv", ["id,at,what", f"1,{D1}T00:00:00Z,a", f"2,{D1}T00:00:00Z,a"])
    nodes = ("raw", "kept", "latest")
    for node in nodes:
        box.run(node)
    box.land("orders/b.csv", [HEADER, f"1,{D2},3"])
    box.land("events.csv", ["id,at,what", f"1,{D1}T00:00:00Z,a", f"2,{D1}T00:00:00Z,c", f"1,{D2}T00:00:00Z,b"])
    for node in nodes:
        box.run(node)
    before = {node: box.rows(node) for node in ("kept", "latest")}
    moved = r"from 2024-01-01.*other partitions \(id=1, day=2024-01-02\): nothing says[\s\S]*only_if_newer"
    with pytest.raises(TableError, match=moved):
        box.run("kept", start=D1, end=D2)
    with pytest.raises(TableError, match=r"later cursor \(id=1, at=2024-01-02 00:00:00\)[\s\S]*only_if_newer"):
        box.run("latest", start=D1, end=D2)
    assert {node: box.rows(node) for node in before} == before
    file = box.root / "odibi.yaml"
    file.write_text(file.read_text().replace("path: kept, mode", "path: kept, only_if_newer: day, mode"))
    box.project = Project.load(file)
    box.run("kept", start=D1, end=D2)
    assert box.rows("kept") == before["kept"]


def test_a_part_leaves_rows_that_came_to_the_mark_later_to_the_next_increment(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, TIED)
    box.land("1.csv", ["id,k,n", "1,eu,1", "2,us,2", "2,us,2"])
    box.run("raw")
    box.land("2.csv", ["id,k,n", "3,us,2", "2,us,2"])
    box.run("raw", partitions=("us",))
    assert ids(box, "raw") == [1, 2, 2]
    box.land("3.csv", ["id,k,n", "4,eu,3"])
    box.run("raw")
    assert ids(box, "raw") == [1, 2, 2, 2, 3, 4]


def test_a_part_of_a_node_brings_no_row_back_that_was_deleted(tmp_path: Path, spark: SparkSession) -> None:
    marked = MOVING.replace("n BIGINT", "n BIGINT, gone BOOLEAN").replace("keys: [id]", "keys: [id], delete_when: gone")
    box = Sandbox(tmp_path, spark, marked)
    box.land("1.csv", ["id,k,n,gone", "1,eu,1,false", "2,eu,2,false", "3,eu,3,false"])
    box.run("raw")
    box.land("2.csv", ["id,k,n,gone", "1,us,,true", "2,eu,,true"])
    box.run("raw")
    with pytest.raises(TableError, match=r"the table does not have \(id=1\): a row with `gone`"):
        box.run("raw", partitions=("eu",))
    box.run("raw", partitions=("eu", "us"))
    assert [row[0] for row in box.rows("raw")] == [3]


def test_of_partitions_that_are_run_at_once_the_newest_file_of_a_key_counts(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, MOVING)
    values = ("a", "b c", "d", "eu", "us")
    box.land("1.csv", ["id,k,n", *(f"{number},eu,1" for number in range(6))])
    box.run("raw")
    box.land("2.csv", ["id,k,n", *(f"{number},{value},10" for number, value in enumerate(values))])
    box.run("raw")
    before = box.rows("raw")
    with pytest.raises(TableError, match=r"id=\d, k=") as stopped:
        box.run("raw", partitions=("eu",))
    named = "--partition eu --partition a --partition 'b c' --partition d --partition us"
    assert f"(odi run p --node raw {named})" in str(stopped.value.fix)
    box.run("raw", partitions=values)
    assert box.rows("raw") == before


def test_a_table_engine_that_does_not_say_what_it_replaces_is_refused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Sandbox(tmp_path, spark, MOVING)
    box.land("1.csv", ["id,k,n", "1,eu,1"])
    box.run("raw")
    monkeypatch.setattr("odi_assets.tables.embedded.engine.EmbeddedEngine.admits", False)
    with pytest.raises(ConfigError, match="the table engine `embedded` does not say which rows"):
        box.run("raw", partitions=("eu",))
    assert box.table("raw").version == 0


def test_what_takes_no_range_is_refused_with_its_remedy(box: Sandbox) -> None:
    bounds = Bounds.of(D1, D2)
    with pytest.raises(ConfigError, match=r"p\.log has no `partition`[\s\S]*append[\s\S]*mode upsert"):
        box.plan("log", bounds=bounds)
    with pytest.raises(ConfigError, match="cuts a partition in two: there is one per day"):
        box.plan("by_day", bounds=Bounds.of("2024-01-01T05:00", D2))
    keys = [NodeKey("p", name) for name in ("by_day", "log")]
    with pytest.raises(ConfigError, match=r"p\.log has no"):
        require_ranges(box.project, keys, RunRequest(bounds=bounds))


def test_a_range_of_a_cursor_that_is_no_time_is_refused_before_spark_meets_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, NUMBERED)
    box.land("a.csv", ["id,at", f"1,{D1}"])
    with pytest.raises(ConfigError, match=r"p\.raw takes ranges of its cursor `id`, which is long in landing:\*\.csv"):
        computed(box, "raw", D1, D2)
    box.run("raw")
    with pytest.raises(ConfigError, match=r"`at`, which is string in p\.raw[\s\S]*incremental\.date_format"):
        box.plan("below", bounds=Bounds.of(D1, D2))


def test_increments_that_arrive_while_backfills_run_end_in_what_the_files_hold(
    box: Sandbox, spark: SparkSession
) -> None:
    box.land("orders/0.csv", [HEADER, *(f"{i},{D1},1" for i in range(3))])
    box.run("raw")
    box.run("by_day")
    errors: list[Exception] = []

    def beside(work: Callable[[Sandbox, int], None]) -> threading.Thread:
        # Views belong to a session, so each thread needs one of its own.
        own = Sandbox.__new__(Sandbox)
        own.__dict__.update(box.__dict__, spark=spark.newSession(), state=box.project.open_state())

        def run() -> None:
            try:
                for number in range(1, 4):
                    work(own, number)
            except Exception as error:  # noqa: BLE001  told by the test itself
                errors.append(error)

        return threading.Thread(target=run)

    def increments(own: Sandbox, number: int) -> None:
        days = (D1, D2, D3)
        own.land(f"orders/{number}.csv", [HEADER, *(f"{number}{i},{day},1" for i, day in enumerate(days))])
        own.run("raw")
        own.run("by_day")

    def backfills(own: Sandbox, number: int) -> None:
        start, end = ((D1, D2), (D2, D3), (D3, "2024-01-04"))[number - 1]
        own.run("raw", start=start, end=end)
        own.run("by_day", start=start, end=end)

    threads = [beside(increments), beside(backfills)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    assert errors == []
    assert Counter(ids(box, "raw")) == Counter([*range(3), *(int(f"{n}{i}") for n in (1, 2, 3) for i in range(3))])
    box.run("by_day")
    assert [(str(row[0]), row[1]) for row in box.rows("by_day")] == [(D1, 6), (D2, 3), (D3, 3)]
