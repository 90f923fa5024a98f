"""Nodes run by plan, compute and commit, on real Spark and real Delta."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.errors import (
    ConfigError,
    FencedError,
    IncrementError,
    SourceError,
    StateError,
    TableError,
    TargetBehindStateError,
    TransformError,
)
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.mark import NodeMark
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[[str], Sandbox]


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    return lambda pipelines: Sandbox(tmp_path, spark, pipelines)


RAW = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, day DATE, amount DOUBLE",
       options: {header: "true"}, incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
"""

ORDERS = (
    RAW
    + """
  - name: orders
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform:
      sql: >
        SELECT id, day, amount FROM
        (SELECT *, row_number() OVER (PARTITION BY id ORDER BY amount DESC) AS n FROM raw) WHERE n = 1
    write: {connection: lake, path: orders, mode: upsert, keys: [id]}
  - name: by_day
    inputs: {orders: {node: orders, incremental: {mode: version}}}
    transform: {sql: "SELECT day, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY day"}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: by_day, mode: partition_overwrite}
"""
)

HEADER = "id,day,amount"


@pytest.mark.contract
def test_a_first_run_loads_every_file_a_second_only_new_ones_and_a_third_nothing(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1.5", "2,2024-01-01,2.5"])
    first = box.run("raw")
    assert (first.status, first.rows_read, first.rows_written, first.table_version) == (RunStatus.SUCCESS, 2, 2, 0)
    box.land("orders/b.csv", [HEADER, "3,2024-01-02,3.5"])
    second = box.run("raw")
    assert (second.rows_read, second.rows_written, second.table_version) == (1, 1, 1)
    assert (str(second.hwm_before), str(second.hwm_after)) == ("orders/a.csv", "orders/b.csv")
    third = box.run("raw")
    assert (third.status, third.rows_read, third.table_version) == (RunStatus.NO_DATA, 0, 1)
    assert [row[0] for row in box.rows("raw")] == [1, 2, 3]


def test_a_file_that_is_still_being_written_under_a_hidden_name_is_left_alone(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1.5"])
    box.land("orders/.b.csv", [HEADER, "2,2024"])
    box.land("orders/_c.csv", [HEADER, "3,2024"])
    assert box.run("raw").rows_written == 1


def test_a_line_that_does_not_fit_the_schema_stops_the_run_and_loads_nothing(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1.5", "x,2024-01-01,2.5"])
    with pytest.raises(SourceError, match=r'orders/a\.csv cannot be read: .*MALFORMED.*: For input string: "x"'):
        box.run("raw")
    assert not box.table("raw").exists
    assert box.hwm("raw") is None


PARQUET = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: parquet, path: "*.parquet", incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
"""


def test_a_half_written_file_is_named_and_loaded_once_it_is_whole(make: Make) -> None:
    box = make(PARQUET)
    torn = box.land("a.parquet", [""])
    pq.write_table(pa.table({"id": [1]}), torn)
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"landing:\*\.parquet: a\.parquet cannot be read: .*not a parquet file"):
        box.run("raw")
    torn.write_bytes(whole)
    assert box.run("raw").rows_written == 1


def test_a_file_whose_columns_stand_in_another_order_is_not_loaded_into_the_wrong_ones(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", ["id,amount,day", "1,1.5,2024-01-01"])
    with pytest.raises(Exception, match=r"header|amount"):
        box.run("raw")
    assert not box.table("raw").exists


COUNTED = [
    ("mode: append", "", 3),
    ("mode: overwrite", "", 3),
    ("mode: upsert, keys: [id]", "", 3),
    ("mode: partition_overwrite, partition_by: [day]", "", 3),
    ("mode: upsert, keys: [id], delete_when: gone", ", gone BOOLEAN", 2),
    ("mode: upsert, keys: [id], only_if_newer: day", "", 3),
    ("mode: append_once, keys: [day]", "", 2),
]


@pytest.mark.parametrize(("write", "more", "stored"), COUNTED, ids=[write for write, _, _ in COUNTED])
def test_rows_read_are_counted_before_the_write_drops_any(make: Make, write: str, more: str, stored: int) -> None:
    box = make(
        f"""
- pipeline: p
  nodes:
  - name: raw
    read:
      {{connection: landing, format: csv, path: "o/*.csv", schema: "id INT, day DATE, amount DOUBLE{more}",
       options: {{header: "true"}}, incremental: {{mode: files}}}}
    write: {{connection: lake, path: raw, {write}}}
"""
    )
    gone = ("true", "false", "false") if more else ()
    days = ("2024-01-01", "2024-01-01", "2024-01-02")
    lines = [",".join([str(n), days[n], "1.5", *gone[n : n + 1]]) for n in range(3)]
    box.land("o/a.csv", [HEADER + (",gone" if more else ""), *lines])
    result = box.run("raw")
    assert (result.rows_read, result.rows_written) == (3, stored)


def test_an_upsert_is_fed_only_by_what_is_new_upstream(make: Make) -> None:
    box = make(ORDERS)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-02,2"])
    box.run("raw")
    assert box.run("orders").rows_read == 2
    box.land("orders/b.csv", [HEADER, "2,2024-01-02,20", "3,2024-01-03,3"])
    box.run("raw")
    result = box.run("orders")
    assert (result.rows_read, result.rows_written, result.metrics["rows_updated"]) == (2, 2, 1)
    assert [(row[0], row[2]) for row in box.rows("orders")] == [(1, 1.0), (2, 20.0), (3, 3.0)]
    assert box.run("orders").status is RunStatus.NO_DATA


def run_all(box: Sandbox) -> dict[str, RunStatus]:
    return {node: box.run(node).status for node in ("raw", "orders", "by_day")}


@pytest.mark.contract
def test_only_the_partitions_that_an_increment_touches_are_computed_anew(make: Make) -> None:
    box = make(ORDERS)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-02,2"])
    run_all(box)
    box.land("orders/b.csv", [HEADER, "3,2024-01-02,3", "4,2024-01-03,4"])
    box.run("raw")
    box.run("orders")
    result = box.run("by_day")
    assert result.partitions == ("2024-01-02", "2024-01-03")
    assert [(str(row[0]), row[1], row[2]) for row in box.rows("by_day")] == [
        ("2024-01-01", 1, 1.0),
        ("2024-01-02", 2, 5.0),
        ("2024-01-03", 1, 4.0),
    ]


def test_a_row_that_moves_to_another_partition_takes_its_old_partition_along(make: Make) -> None:
    box = make(ORDERS)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-01,2", "3,2024-01-03,3"])
    run_all(box)
    box.land("orders/b.csv", [HEADER, "2,2024-01-02,20"])
    box.run("raw")
    box.run("orders")
    assert box.run("by_day").partitions == ("2024-01-01", "2024-01-02")
    assert [(str(row[0]), row[1]) for row in box.rows("by_day")] == [
        ("2024-01-01", 1),
        ("2024-01-02", 1),
        ("2024-01-03", 1),
    ]


@pytest.mark.contract
def test_several_upstream_commits_are_read_as_one_increment_with_the_newest_row_of_each_key(make: Make) -> None:
    box = make(
        ORDERS
        + """
  - name: copy
    inputs: {orders: {node: orders, incremental: {mode: version}}}
    write: {connection: lake, path: copy, mode: upsert, keys: [id]}
"""
    )
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-01,2"])
    box.run("raw")
    box.run("orders")
    box.run("copy")
    for amount in (10, 20):
        box.land(f"orders/{amount}.csv", [HEADER, f"2,2024-01-01,{amount}", f"{amount},2024-01-01,0"])
        box.run("raw")
        box.run("orders")
    result = box.run("copy")
    assert result.rows_written == 3
    assert box.rows("copy") == box.rows("orders")


def test_compaction_upstream_changes_nothing_downstream(make: Make) -> None:
    box = make(ORDERS)
    for number in range(3):
        box.land(f"orders/{number}.csv", [HEADER, f"{number},2024-01-01,1"])
        box.run("raw")
    box.run("orders")
    DeltaTable(box.table("raw").location.uri).optimize.compact()
    assert box.run("orders").status is RunStatus.NO_DATA
    box.land("orders/new.csv", [HEADER, "9,2024-01-01,1"])
    box.run("raw")
    assert box.run("orders").rows_read == 1


def test_an_upstream_that_was_refreshed_is_read_whole_and_replaces_the_table(make: Make) -> None:
    box = make(ORDERS)
    old = box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-02,2"])
    run_all(box)
    old.unlink()
    box.land("orders/b.csv", [HEADER, "5,2024-01-05,5"])
    assert box.run("raw", full_refresh=True, accept_loss=True).rows_written == 1
    assert "rewritten" in box.plan("orders").summary
    box.run("orders")
    box.run("by_day")
    assert [row[0] for row in box.rows("orders")] == [5]
    assert [str(row[0]) for row in box.rows("by_day")] == ["2024-01-05"]
    assert run_all(box) == dict.fromkeys(("raw", "orders", "by_day"), RunStatus.NO_DATA)


@pytest.mark.contract
def test_a_run_that_died_after_its_commit_is_repaired_from_the_tables_log(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1"])

    def dies(*_: Any, **__: Any) -> None:
        raise StateError("killed here")

    with monkeypatch.context() as fault:
        fault.setattr(type(box.state), "compare_and_set", dies)
        with pytest.raises(StateError):
            box.run("raw")
    assert box.hwm("raw") is None
    assert box.run("raw").status is RunStatus.NO_DATA
    assert box.hwm("raw")["path"] == "orders/a.csv"
    box.land("orders/b.csv", [HEADER, "2,2024-01-01,1"])
    box.run("raw")
    assert [row[0] for row in box.rows("raw")] == [1, 2]


def test_an_hwm_that_was_set_by_hand_is_not_undone_by_repair(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1"])
    box.run("raw")
    entry = box.state.get_entry("p.raw")
    assert entry is not None
    box.state.compare_and_set("p.raw", {"mtime_ns": 0, "path": ""}, expected_revision=entry.revision)
    assert box.plan("raw").start.hwm == NodeMark({"mtime_ns": 0, "path": ""})


@pytest.mark.contract
def test_of_two_runs_planned_at_once_one_commits_and_the_other_writes_nothing(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1"])
    box.run("raw")
    box.land("orders/b.csv", [HEADER, "2,2024-01-01,1"])
    one, two = box.plan("raw"), box.plan("raw")
    box.finish(one)
    with pytest.raises(FencedError, match="committed it first"):
        box.finish(two)
    assert [row[0] for row in box.rows("raw")] == [1, 2]


def test_a_table_that_was_dropped_is_an_error_that_names_the_ways_out(make: Make) -> None:
    box = make(RAW)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1"])
    box.run("raw")
    shutil.rmtree(box.table("raw").location.uri)
    with pytest.raises(TargetBehindStateError, match=r"does not exist[\s\S]*--full-refresh[\s\S]*state accept p.raw"):
        box.run("raw")
    assert box.run("raw", full_refresh=True).rows_written == 1


def test_a_bounded_run_replaces_its_days_and_leaves_the_hwm_alone(make: Make) -> None:
    box = make(ORDERS)
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-02,2", "3,2024-01-03,3"])
    run_all(box)
    before = box.hwm("by_day")
    box.table("by_day").table.delete("day >= '2024-01-02'")
    result = box.run("by_day", start="2024-01-02", end="2024-01-04")
    assert result.partitions == ("2024-01-02", "2024-01-03")
    assert [str(row[0]) for row in box.rows("by_day")] == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert box.hwm("by_day") == before
    assert box.run("by_day").status is RunStatus.NO_DATA


STATEFUL = """
- pipeline: p
  nodes:
  - name: events
    read:
      {connection: landing, format: csv, path: events.csv, schema: "id BIGINT, at TIMESTAMP, seen TIMESTAMP",
       options: {header: "true"}, incremental: {mode: stateful, column: at FALLBACK}}
    write: {connection: lake, path: events, mode: append}
"""


def test_a_stateful_increment_reads_above_the_hwm_up_to_a_bound_fixed_before(make: Make) -> None:
    box = make(STATEFUL.replace(" FALLBACK", ""))
    lines = ["id,at,seen", "1,2024-01-01T00:00:00Z,", "2,2024-01-02T00:00:00Z,"]
    box.land("events.csv", lines)
    assert box.run("events").rows_written == 2
    assert box.hwm("events") == datetime(2024, 1, 2, tzinfo=UTC)
    box.land("events.csv", [*lines, "3,2024-01-03T00:00:00.000001Z,"])
    assert box.run("events").rows_written == 1
    assert box.run("events").status is RunStatus.NO_DATA
    assert [row[0] for row in box.rows("events")] == [1, 2, 3]


def test_rows_without_a_cursor_stop_the_run_with_their_number(make: Make) -> None:
    box = make(STATEFUL.replace(" FALLBACK", ""))
    box.land("events.csv", ["id,at,seen", "1,,2024-01-01T00:00:00Z", "2,2024-01-02T00:00:00Z,"])
    with pytest.raises(IncrementError, match=r"1 rows .* NULL in the cursor column `at`"):
        box.run("events")


def test_the_fallback_column_orders_rows_without_a_cursor(make: Make) -> None:
    box = make(STATEFUL.replace(" FALLBACK", ", fallback_column: seen"))
    box.land("events.csv", ["id,at,seen", "1,,2024-01-05T00:00:00Z", "2,2024-01-02T00:00:00Z,"])
    assert box.run("events").rows_written == 2
    assert box.hwm("events") == datetime(2024, 1, 5, tzinfo=UTC)


def test_a_cursor_column_that_does_not_exist_is_named(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"`stamp` is no column of `read.schema`: id, at, seen"):
        make(STATEFUL.replace("column: at FALLBACK", "column: stamp"))


def test_a_stateful_increment_of_a_delta_source_is_bounded_by_statistics_alone(make: Make) -> None:
    box = make(
        RAW
        + """
  - name: recent
    inputs: {raw: {node: raw, incremental: {mode: stateful, column: id}}}
    write: {connection: lake, path: recent, mode: append}
"""
    )
    box.land("orders/a.csv", [HEADER, "1,2024-01-01,1", "2,2024-01-01,2"])
    box.run("raw")
    assert box.plan("recent").hwm_after == NodeMark({"raw": 2})
    box.run("recent")
    assert box.plan("recent").nothing_new
    box.land("orders/b.csv", [HEADER, "3,2024-01-01,3"])
    box.run("raw")
    assert box.run("recent").rows_written == 1
    assert [row[0] for row in box.rows("recent")] == [1, 2, 3]


def test_a_node_that_overwrites_shows_its_files_as_they_are_when_one_of_them_changes(make: Make) -> None:
    box = make(
        """
- pipeline: p
  nodes:
  - name: shops
    read: {connection: landing, format: csv, path: "shops/*.csv", schema: "id BIGINT", options: {header: "true"},
           incremental: {mode: files}}
    write: {connection: lake, path: shops, mode: overwrite}
"""
    )
    box.land("shops/a.csv", ["id", "1"])
    box.land("shops/b.csv", ["id", "2"])
    box.run("shops")
    assert box.run("shops").status is RunStatus.NO_DATA
    box.land("shops/a.csv", ["id", "10"])
    assert box.run("shops").rows_written == 2
    assert [row[0] for row in box.rows("shops")] == [2, 10] or [row[0] for row in box.rows("shops")] == [10, 2]


FUNCTIONS = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: a.csv, schema: "id BIGINT", options: {header: "true"}}
    transform: TRANSFORM
    write: {connection: lake, path: raw}
"""


def functions(make: Make, tmp_path: Path, transform: str, code: str = "") -> Sandbox:
    module = tmp_path / "transforms_of_this_test.py"
    module.write_text(code, encoding="utf-8")
    box = make(FUNCTIONS.replace("TRANSFORM", transform))
    box.land("a.csv", ["id", "1", "2"])
    return box


@pytest.fixture(autouse=True)
def forget_modules() -> Any:
    import sys

    yield
    sys.modules.pop("transforms_of_this_test", None)


def test_a_function_gets_its_source_its_parameters_and_the_session(make: Make, tmp_path: Path) -> None:
    code = "def more(df, spark, by):\n    return df.selectExpr(f'id * {by} AS id')\n"
    box = functions(make, tmp_path, "{function: 'transforms_of_this_test:more', params: {by: 10}}", code)
    assert box.run("raw").rows_read == 2
    assert [row[0] for row in box.rows("raw")] == [10, 20]


def test_a_function_that_wants_what_the_node_does_not_offer_is_told_what_there_is(make: Make, tmp_path: Path) -> None:
    # Where the text of a module does not tell what it has, only the run can.
    code = "if 1:\n    def more(df, wether):\n        return df\n"
    box = functions(make, tmp_path, "{function: 'transforms_of_this_test:more'}", code)
    with pytest.raises(TransformError, match="wants `wether`; the node offers df, spark"):
        box.run("raw")


def test_a_function_that_returns_no_dataframe_is_an_error(make: Make, tmp_path: Path) -> None:
    box = functions(make, tmp_path, "{function: 'transforms_of_this_test:f'}", "def f(rows):\n    return 1\n")
    with pytest.raises(TransformError, match="returned int, not a Spark DataFrame"):
        box.run("raw")


def test_a_function_that_does_not_exist_is_an_error_that_lists_those_that_do(make: Make, tmp_path: Path) -> None:
    box = functions(
        make, tmp_path, "{function: 'transforms_of_this_test:g'}", "if 1:\n    def f(rows):\n        return rows\n"
    )
    with pytest.raises(ConfigError, match=r"has no function `g`[\s\S]*it has: f"):
        box.run("raw")


def test_sql_that_names_a_missing_column_is_an_error_with_the_nodes_name(make: Make, tmp_path: Path) -> None:
    box = functions(make, tmp_path, '{sql: "SELECT nme FROM df"}')
    with pytest.raises(TransformError, match=r"the SQL of p.raw is not right: .*nme"):
        box.run("raw")


@pytest.mark.contract
def test_views_of_a_node_are_gone_when_it_is_done(make: Make, tmp_path: Path, spark: SparkSession) -> None:
    box = functions(make, tmp_path, '{sql: "SELECT id FROM df"}')
    box.run("raw")
    assert not spark.catalog.tableExists("df")


def test_a_source_that_the_transform_does_not_use_does_not_hold_the_run_up(make: Make, tmp_path: Path) -> None:
    box = functions(make, tmp_path, '{sql: "SELECT 7 AS id"}')
    assert box.run("raw").rows_written == 1


def test_a_source_that_is_used_twice_is_still_written_right(make: Make, tmp_path: Path) -> None:
    box = functions(
        make, tmp_path, '{sql: "SELECT a.id FROM df a JOIN df b ON a.id = b.id UNION ALL SELECT id FROM df"}'
    )
    assert box.run("raw").rows_written == 4


def test_computing_a_plan_starts_no_write(make: Make, tmp_path: Path, spark: SparkSession) -> None:
    box = functions(make, tmp_path, '{sql: "SELECT id FROM df"}')
    compute(box.plan("raw"), spark)
    assert not box.table("raw").exists


def test_a_changed_schema_is_refused_and_a_full_refresh_takes_it(make: Make, tmp_path: Path) -> None:
    box = functions(make, tmp_path, '{sql: "SELECT id FROM df"}')
    box.run("raw")
    text = (tmp_path / "odibi.yaml").read_text()
    changed = text.replace("SELECT id FROM", "SELECT id, 1 AS extra FROM").replace(
        "path: raw}", "path: raw, mode: append}"
    )
    (tmp_path / "odibi.yaml").write_text(changed)
    box.project = type(box.project).load(tmp_path / "odibi.yaml")
    with pytest.raises(TableError, match="has no column `extra`"):
        box.run("raw")
    box.run("raw", full_refresh=True)
    assert box.table("raw").columns == {"id": "long", "extra": "integer"}


def test_the_hwm_of_a_timestamp_does_not_depend_on_the_zone_of_the_machine(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make(STATEFUL.replace(" FALLBACK", ""))
    lines = ["id,at,seen", "1,2024-01-01T12:00:00Z,"]
    box.land("events.csv", lines)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        box.run("events")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert box.hwm("events") == datetime(2024, 1, 1, 12, tzinfo=UTC)
    box.land("events.csv", [*lines, "2,2024-01-01T12:00:01Z,"])
    assert box.run("events").rows_written == 1


HOURLY = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: "r/*.csv", schema: "id BIGINT, hour TIMESTAMP",
           options: {header: "true"}, incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: upsert, keys: [id]}
  - name: by_hour
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT hour, count(*) AS n FROM raw GROUP BY hour"}
    partition: {column: hour, every: hour, start: 2024-01-01}
    write: {connection: lake, path: by_hour, mode: partition_overwrite}
"""


def test_hourly_partitions_are_replaced_by_the_hour(make: Make) -> None:
    box = make(HOURLY)
    box.land("r/a.csv", ["id,hour", "1,2024-01-01T05:00:00Z", "2,2024-01-01T06:00:00Z"])
    box.run("raw")
    box.run("by_hour")
    box.land("r/b.csv", ["id,hour", "2,2024-01-01T07:00:00Z"])
    box.run("raw")
    assert box.run("by_hour").partitions == ("2024-01-01 06:00:00", "2024-01-01 07:00:00")
    assert sorted(box.table("by_hour").live_files[i].partition["hour"] for i in range(2)) == [
        "2024-01-01 05:00:00",
        "2024-01-01 07:00:00",
    ]
    bounded = box.run("by_hour", start="2024-01-01T05:00", end="2024-01-01T06:00")
    assert bounded.partitions == ("2024-01-01 05:00:00",)
