"""A node's table and its HWM go back together, and forward again; what was built on it goes along."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.maintenance.maintain import MaintenanceOptions
from odi_assets.errors import ConfigError, FencedError, IdentityMismatchError, StateError, TableError
from odi_assets.nodes.node import Node
from odi_assets.nodes.recovery import table_versions as points
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.maintenance import maintain_node
from odi_assets.nodes.recovery.recover import apply_recovery, find_recovery
from odi_assets.nodes.recovery.rewind import Rewind, apply_rewind, plan_rewind
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, day DATE",
       options: {header: "true"}, incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
  - name: copy
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT id, day FROM raw"}
    write: {connection: lake, path: copy, mode: append, partition_by: [day]}
  - name: days
    inputs: [copy]
    transform: {sql: "SELECT day, count(*) AS orders FROM copy GROUP BY day"}
    write: {connection: lake, path: days, mode: overwrite}
"""
RAW = NodeKey("p", "raw")
ALL = ("raw", "copy", "days")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, NODES)


def land(box: Sandbox, number: int) -> None:
    box.land(f"orders/{number}.csv", ["id,day", f"{number},2024-01-0{number}"])


def load(box: Sandbox, *numbers: int, nodes: tuple[str, ...] = ("raw",)) -> None:
    for number in numbers:
        land(box, number)
        for node in nodes:
            box.run(node)


def ids(box: Sandbox, node: str = "raw") -> list[int]:
    return [row[0] for row in box.rows(node)]


def back(box: Sandbox, choose: points.Choice, node: str = "raw", *, cascade: bool = False) -> list[tuple[Rewind, int]]:
    plan = plan_rewind(box.project, box.state, NodeKey("p", node), choose, cascade=cascade)
    return apply_rewind(box.project, box.state, plan)


def test_a_project_that_was_copied_goes_on_after_a_rewind_too(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "first").mkdir()
    first = Sandbox(tmp_path / "first", spark, NODES)
    load(first, 1, 2)
    shutil.copytree(first.root, tmp_path / "second")
    box = Sandbox(tmp_path / "second", spark, NODES)
    back(box, points.at_version(0))
    assert box.run("raw").rows_written == 1
    land(box, 3)
    box.run("raw")
    assert (ids(box), ids(first)) == ([1, 2, 3], [1, 2])


def test_table_and_hwm_go_back_in_one_commit_and_what_was_undone_loads_again(box: Sandbox) -> None:
    load(box, 1, 2, 3)
    before = box.table("raw").version
    ((rewind, version),) = back(box, points.at_version(0))
    assert (rewind.from_version, rewind.to_version, version) == (2, 0, 3)
    assert [stamp.version for stamp in rewind.undone] == [2, 1]
    assert before == 2
    assert ids(box) == [1]
    assert box.hwm("raw")["path"] == "orders/1.csv"
    assert box.run("raw").rows_written == 2
    assert ids(box) == [1, 2, 3]


def test_a_rewind_names_files_that_no_run_can_read_again(box: Sandbox) -> None:
    load(box, 1, 2, 3)
    for number in (1, 3):
        (box.root / "landing" / "orders" / f"{number}.csv").unlink()
    ((rewind, _),) = back(box, points.at_version(0))
    assert rewind.gone == ("orders/3.csv",)
    assert rewind.to_json()["gone"] == ["orders/3.csv"]


def test_what_was_undone_can_be_done_again(box: Sandbox) -> None:
    load(box, 1, 2)
    land(box, 3)
    box.run("raw")
    ((rewind, _),) = back(box, points.at_version(1))
    assert [stamp.version for stamp in rewind.undone] == [2]
    assert maintain_node(box.project, box.state, RAW, MaintenanceOptions()) is not None
    ((rewind, _),) = back(box, points.before_last_rewind(Node.of(box.project, RAW)))
    assert [stamp.version for stamp in rewind.undone] == [3]
    assert ids(box) == [1, 2, 3]
    assert box.hwm("raw")["path"] == "orders/3.csv"
    assert box.run("raw").status is RunStatus.NO_DATA
    load(box, 4)
    with pytest.raises(ConfigError, match="is no rewind"):
        back(box, points.before_last_rewind(Node.of(box.project, RAW)))


def test_a_version_is_named_by_its_run_by_the_run_after_it_or_by_a_time(box: Sandbox) -> None:
    load(box, 1, 2, 3)
    handle = box.table("raw")
    runs = {stamp.version: str(stamp.facts["run_id"]) for stamp in handle.stamps()}
    made = {version.number: version.made_at for version in points.versions(handle)}
    assert points.after_run(runs[1], box.state, RAW)(handle) == 1
    assert points.before_run(runs[1], box.state, RAW)(handle) == 0
    assert box.run("raw").status is RunStatus.NO_DATA
    nothing_new = max(box.state.list_runs(node="raw"), key=lambda run: run.started_at).run_id
    assert points.before_run(nothing_new, box.state, RAW)(handle) == 2
    assert points.at_time(made[1])(handle) == 1
    assert points.at_time(made[2] - timedelta(milliseconds=1))(handle) == 1
    assert points.at_time(datetime.now(UTC))(handle) == 2


def test_a_version_that_is_not_there_is_an_error_that_tells_what_is(box: Sandbox) -> None:
    load(box, 1, 2)
    handle = box.table("raw")
    first = str(next(s for s in handle.stamps() if s.version == 0).facts["run_id"])
    wrong = {
        "is at version 1": points.at_version(7),
        "log begins with version 0": points.at_time(datetime(2001, 1, 1, tzinfo=UTC)),
        "knows no run nowhere": points.after_run("nowhere", box.state, RAW),
        "several runs": points.before_run("run-", box.state, RAW),
        "nothing before it": points.before_run(first, box.state, RAW),
    }
    for message, choose in wrong.items():
        with pytest.raises(ConfigError, match=message):
            choose(handle)


def test_a_version_whose_files_were_vacuumed_is_refused_before_anything_changes(box: Sandbox) -> None:
    load(box, 1, nodes=ALL)
    load(box, 2, nodes=ALL)
    DeltaTable(box.table("days").location.uri).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )
    stands = box.table("days").version
    with pytest.raises(TableError, match="cannot go back to version 0: 1 of its files are gone"):
        back(box, points.at_version(0), "days")
    assert box.table("days").version == stands
    for file in Path(box.table("raw").location.uri).glob("odi_write=*/*.parquet"):
        file.unlink()
    with pytest.raises(TableError, match=r"cannot go back to version 0: 1 of its files are gone[\s\S]*--full-refresh"):
        back(box, points.at_version(0))


def test_of_a_rewind_and_a_run_planned_at_once_one_commits(box: Sandbox) -> None:
    load(box, 1, 2)
    land(box, 3)
    run = box.plan("raw")
    plan = plan_rewind(box.project, box.state, RAW, points.at_version(0))
    box.finish(run)
    with pytest.raises(FencedError):
        apply_rewind(box.project, box.state, plan)
    assert ids(box) == [1, 2, 3]


def test_a_rewind_that_died_after_its_commit_is_completed_by_the_next_run_or_by_recovery(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(box, 1, 2)

    def dies(*_: object, **__: object) -> None:
        raise StateError("killed here")

    with monkeypatch.context() as fault:
        fault.setattr(type(box.state), "compare_and_set", dies)
        with pytest.raises(StateError):
            back(box, points.at_version(0))
    assert box.hwm("raw")["path"] == "orders/2.csv"
    assert str(box.plan("raw").start.hwm) == "orders/1.csv"
    found = find_recovery(box.project, box.state, RAW)
    assert found is not None
    apply_recovery(box.project, box.state, found)
    assert box.hwm("raw")["path"] == "orders/1.csv"
    assert find_recovery(box.project, box.state, RAW) is None
    box.run("raw")
    assert ids(box) == [1, 2]


def test_a_cascade_takes_along_what_read_the_undone_rows_and_all_load_again(box: Sandbox) -> None:
    load(box, 1, 2, 3, nodes=ALL)
    made = back(box, points.at_version(1), cascade=True)
    assert [str(rewind.key) for rewind, _ in made] == ["p.days", "p.copy", "p.raw"]
    assert [ids(box, node) for node in ("raw", "copy")] == [[1, 2], [1, 2]]
    assert len(box.rows("days")) == 2
    assert back(box, points.at_version(3), cascade=True) == []
    again = {node: box.run(node) for node in ALL}
    assert again["raw"].rows_written == again["copy"].rows_written == 1
    assert ids(box) == ids(box, "copy") == [1, 2, 3]


def test_nodes_that_have_not_read_what_is_undone_go_on_from_the_version_that_came_back(box: Sandbox) -> None:
    load(box, 1, 2, nodes=("raw", "copy"))
    load(box, 3)
    plan = plan_rewind(box.project, box.state, RAW, points.at_version(1), cascade=True)
    assert plan.left[NodeKey("p", "copy")] == "read nothing of what is undone"
    apply_rewind(box.project, box.state, plan)
    assert box.run("copy").status is RunStatus.NO_DATA
    load(box, 4, nodes=("raw", "copy"))
    assert ids(box) == ids(box, "copy") == [1, 2, 3, 4]


def test_without_a_cascade_a_node_that_read_undone_rows_is_read_whole_by_its_next_run(box: Sandbox) -> None:
    load(box, 1, 2, nodes=("raw", "copy"))
    back(box, points.at_version(0))
    assert box.run("copy").rows_total == 1
    assert ids(box, "copy") == [1]
    box.run("raw")
    box.run("copy")
    assert ids(box) == ids(box, "copy") == [1, 2]


def test_a_rewind_stands_in_the_run_history(box: Sandbox) -> None:
    load(box, 1, 2)
    back(box, points.at_version(0))
    row = box.state.list_runs(pipeline="p", node="raw", limit=1)[0]
    assert (row.trigger, row.status, row.table_version) == ("rewind", RunStatus.SUCCESS, 2)
    assert (row.hwm_before["path"], row.hwm_after["path"]) == ("orders/2.csv", "orders/1.csv")


TIED = """
- pipeline: p
  nodes:
  - name: events
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, day DATE", options: {header: "true"},
       incremental: {mode: stateful, column: day, boundary: closed}}
    write: {connection: lake, path: events, mode: append}
"""


def test_what_a_closed_boundary_remembers_goes_back_with_the_hwm(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, TIED)
    box.land("a.csv", ["id,day", "1,2024-01-01", "2,2024-01-02"])
    box.run("events")
    box.land("b.csv", ["id,day", "3,2024-01-02", "4,2024-01-03"])
    box.run("events")
    back(box, points.at_version(0), "events")
    box.run("events")
    assert ids(box, "events") == [1, 2, 3, 4]


def test_rows_from_before_the_first_run_stay_when_all_runs_are_undone_and_load_again(box: Sandbox) -> None:
    rows = pa.table({"id": pa.array([100], pa.int64()), "day": [date(2024, 1, 5)]})
    write_deltalake(box.table("raw").location.uri, rows)
    load(box, 1, 2)
    back(box, points.at_version(0))
    assert (ids(box), box.hwm("raw")) == ([100], None)
    assert box.run("raw").rows_written == 2
    assert sorted(ids(box)) == [1, 2, 100]
    box.state.delete_hwm("p.raw")
    box.run("raw")
    assert ids(box) == [1, 2]


BELOW_UPSERT = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: csv, path: orders/*.csv, schema: "id BIGINT, n INT, day STRING",
           options: {header: "true"}, incremental: files}
    write: {connection: lake, path: orders, mode: upsert, keys: [id]}
  - name: added
    inputs: {orders: {node: orders, incremental: {mode: stateful, column: n}}}
    write: {connection: lake, path: added, mode: append}
  - name: newest
    inputs: {orders: {node: orders, incremental: {mode: stateful, column: n}}}
    write: {connection: lake, path: newest, mode: upsert, keys: [id]}
  - name: parts
    inputs: {orders: {node: orders, incremental: {mode: stateful, column: n}}}
    write: {connection: lake, path: parts, mode: partition_overwrite, partition_by: [day]}
"""
BELOW = ("added", "newest", "parts")


@pytest.fixture
def upserted(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """An upsert moves the row 1 above the mark of the nodes below, which follow a column."""
    box = Sandbox(tmp_path, spark, BELOW_UPSERT)
    for number, rows in enumerate([["1,10,a", "2,20,a"], ["1,30,a", "3,40,b"]]):
        box.land(f"orders/{number}.csv", ["id,n,day", *rows])
        for node in ("orders", *BELOW):
            box.run(node)
    return box


def test_below_an_upsert_all_load_again_after_a_rewind_with_its_cascade(upserted: Sandbox) -> None:
    box = upserted
    before = {node: box.rows(node) for node in ("orders", *BELOW)}
    back(box, points.at_version(0), "orders", cascade=True)
    assert {node: len(box.rows(node)) for node in BELOW} == dict.fromkeys(BELOW, 2)
    for node in ("orders", *BELOW):
        box.run(node)
    assert {node: box.rows(node) for node in before} == before
    assert examine(box.project, box.state, [NodeKey("p", node) for node in before]) == []


def test_below_an_upsert_a_rewind_without_its_cascade_stops_what_read_the_undone_rows(upserted: Sandbox) -> None:
    box = upserted
    back(box, points.at_version(0), "orders")
    box.land("orders/1.csv", ["id,n,day", "1,31,a", "3,5,b"])
    box.run("orders")
    for node in BELOW:
        with pytest.raises(IdentityMismatchError, match="rows below the HWM are other ones now"):
            box.run(node)


def test_a_rewind_undone_again_is_no_rewrite_and_one_before_the_mark_stays_one(upserted: Sandbox) -> None:
    box = upserted
    back(box, points.at_version(0), "orders")
    back(box, points.before_last_rewind(Node.of(box.project, NodeKey("p", "orders"))), "orders")
    assert all(box.run(node).status is RunStatus.NO_DATA for node in BELOW)
    box.land("orders/2.csv", ["id,n,day", "2,50,a"])
    for node in ("orders", *BELOW):
        box.run(node)
    assert [row[:2] for row in box.rows("newest")] == [(1, 30), (2, 50), (3, 40)]
    back(box, points.at_version(0), "orders")
    back(box, points.at_version(1), "orders")
    with pytest.raises(IdentityMismatchError, match="rows below the HWM are other ones now"):
        box.run("newest")
