"""What Odibi's documents say to look at when state misbehaves, each case as a run."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import FencedError, IncrementError, StateError, TargetBehindStateError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.state import CatalogStateBackend, LocalJSONStateBackend, StateBackend
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, day DATE", options: {header: "true"},
       incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
  - name: daily
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT * FROM raw"}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: daily, mode: append}
- pipeline: q
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, day DATE", options: {header: "true"},
       incremental: {mode: stateful, column: id}}
    write: {connection: lake, path: other, mode: append}
"""


@pytest.fixture(params=["local", "catalog"])
def box(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Sandbox:
    box = Sandbox(tmp_path, spark, NODES)
    if request.param == "local":
        box.state = LocalJSONStateBackend(tmp_path / ".odibi" / "state.json")
    return box


def land(box: Sandbox, *numbers: int | str) -> None:
    box.land(f"orders/{numbers[0]}.csv", ["id,day", *(f"{n},2024-01-0{n or 1}" for n in numbers)])


def ids(box: Sandbox, node: str = "raw") -> list[int]:
    return [row[0] for row in box.rows(node)]


def dies_before_it_advances(box: Sandbox, node: str, patch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any, **__: Any) -> None:
        raise StateError("killed here")

    with patch.context() as fault:
        fault.setattr(type(box.state), "compare_and_set", dies)
        with pytest.raises(StateError, match="killed here"):
            box.run(node)


def lose(state: StateBackend) -> None:
    if isinstance(state, CatalogStateBackend):
        shutil.rmtree(state.meta_state_path)
    elif isinstance(state, LocalJSONStateBackend):
        state.path.unlink()


def test_the_first_run_loads_all_and_sets_the_hwm_that_the_next_goes_on_from(box: Sandbox) -> None:
    land(box, 1)
    land(box, 2)
    assert box.run("raw").rows_written == 2
    assert box.hwm("raw")["path"] == "orders/2.csv"
    land(box, 3)
    assert box.run("raw").rows_written == 1
    assert (ids(box), box.state.get_entry("p.raw").revision) == ([1, 2, 3], 2)


def test_rows_without_a_cursor_are_an_error_that_counts_them_and_move_nothing(box: Sandbox) -> None:
    land(box, 1)
    box.pipeline = "q"
    box.run("raw")
    land(box, 2, "")
    with pytest.raises(IncrementError, match=r"1 row.*`id`"):
        box.run("raw")
    assert (box.state.get_hwm("q.raw"), ids(box)) == (1, [1])


def test_pipelines_with_a_node_of_one_name_share_no_hwm(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    box.pipeline = "q"
    assert box.plan("raw").start.hwm is None
    box.run("raw")
    assert {entry.key: type(entry.value) for entry in box.state.list_hwms()} == {"p.raw": dict, "q.raw": int}


def test_a_project_that_meets_another_projects_state_stops_instead_of_skipping_rows(
    box: Sandbox, tmp_path: Path, spark: SparkSession
) -> None:
    """Keys name no project: two that share a pipeline's name need environments, or state, of their own."""
    land(box, 1)
    box.run("raw")
    (tmp_path / "second").mkdir()
    second = Sandbox(tmp_path / "second", spark, NODES)
    second.state = box.state
    land(second, 1)
    with pytest.raises(TargetBehindStateError, match="does not exist"):
        second.run("raw")
    second.state = box.state.in_environment("second")
    assert second.run("raw").rows_written == 1
    assert [entry.revision for entry in box.state.list_hwms()] == [1]


def test_an_hwm_that_was_not_persisted_is_taken_from_the_tables_log(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(box, 1)
    box.run("raw")
    land(box, 2)
    dies_before_it_advances(box, "raw", monkeypatch)
    assert box.hwm("raw")["path"] == "orders/1.csv"
    # Other keys go on meanwhile.
    box.state.set_hwm("other", 1)
    assert box.run("raw").status is RunStatus.NO_DATA
    assert (box.hwm("raw")["path"], ids(box)) == ("orders/2.csv", [1, 2])


@pytest.mark.parametrize("box", ["local"], indirect=True)
def test_an_hwm_that_another_tool_set_is_repaired_after_a_kill_whatever_else_is_written_to_its_file(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(box.state, LocalJSONStateBackend)
    land(box, 1)
    box.run("raw")
    document = json.loads(box.state.path.read_text())
    document["hwm"]["p.raw"] = {**document["hwm"]["p.raw"], "by": "hand"}
    box.state.path.write_text(json.dumps(document))
    land(box, 2)
    dies_before_it_advances(box, "raw", monkeypatch)
    box.state.set_hwm("other", 1)
    assert box.run("raw").status is RunStatus.NO_DATA
    assert ids(box) == [1, 2]


def test_state_that_was_lost_is_rebuilt_and_nothing_is_loaded_twice(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    lose(box.state)
    assert box.hwm("raw") is None
    land(box, 2)
    assert box.run("raw").rows_written == 1
    assert (box.hwm("raw")["path"], ids(box)) == ("orders/2.csv", [1, 2])


@pytest.mark.parametrize("box", ["local"], indirect=True)
def test_a_corrupted_state_file_stops_the_run_before_it_loads_anything(box: Sandbox) -> None:
    assert isinstance(box.state, LocalJSONStateBackend)
    land(box, 1)
    box.run("raw")
    good = box.state.path.read_text()
    box.state.path.write_text(good[: len(good) // 2])
    land(box, 2)
    with pytest.raises(StateError, match=r"state\.json:\d+:\d+ is damaged.*\n.*corrupt-1"):
        box.run("raw")
    assert ids(box) == [1]
    box.state.path.unlink()
    box.run("raw")
    assert ids(box) == [1, 2]


def test_a_backfill_does_not_hide_the_hwm_from_a_plan_without_state(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(box, 1)
    box.run("raw")
    box.run("daily")
    land(box, 2)
    box.run("raw")
    dies_before_it_advances(box, "daily", monkeypatch)
    box.run("daily", start="2024-01-01", end="2024-01-02")
    assert box.plan("daily").nothing_new
    box.run("daily")
    after = box.hwm("daily")
    lose(box.state)
    plan = box.plan("daily")
    assert (plan.nothing_new, plan.start.repaired, plan.start.hwm) == (True, True, NodeMark(after))
    assert ids(box, "daily") == [1, 2]


def test_a_plan_after_a_backfill_has_nothing_to_repair(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    box.run("daily")
    box.run("daily", start="2024-01-01", end="2024-01-02")
    assert not box.plan("daily").start.repaired
    box.state.reset_hwm("p.daily", None)
    assert box.plan("daily").start.hwm is None


def test_of_concurrent_runs_one_loads_and_state_holds_what_it_loaded(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    land(box, 2)
    first, second = box.plan("raw"), box.plan("raw")
    box.finish(first)
    with pytest.raises(FencedError, match="run-"):
        box.finish(second)
    assert (ids(box), box.hwm("raw")["path"]) == ([1, 2], "orders/2.csv")
    assert box.run("raw").status is RunStatus.NO_DATA


@pytest.mark.parametrize("box", ["catalog"], indirect=True)
def test_a_state_table_restored_to_an_older_version_repeats_nothing_and_takes_changes(box: Sandbox) -> None:
    assert isinstance(box.state, CatalogStateBackend)
    for number in (1, 2, 3):
        land(box, number)
        box.run("raw")
    older = box.state.history("p.raw")[-1]
    DeltaTable(box.state.meta_state_path).restore(1)
    assert box.state.get_entry("p.raw") == older
    assert box.run("raw").status is RunStatus.NO_DATA
    assert box.hwm("raw")["path"] == "orders/3.csv"
    box.state.reset_hwm("p.raw", older.value)
    assert box.plan("raw").start.hwm == NodeMark(older.value)


@pytest.mark.parametrize("box", ["catalog"], indirect=True)
def test_where_neither_state_nor_the_log_tell_the_hwm_nothing_is_loaded_again(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    handle = box.table("raw").table
    for _ in range(3):
        handle.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 seconds"})
    handle.create_checkpoint()
    for file in (Path(handle.table_uri.removeprefix("file://")) / "_delta_log").iterdir():
        os.utime(file, (time.time() - 3600,) * 2)
    handle.cleanup_metadata()
    assert box.run("raw").status is RunStatus.NO_DATA
    kept = box.hwm("raw")
    lose(box.state)
    with pytest.raises(StateError, match="no longer holds the commit") as told:
        box.run("raw")
    assert "odi state set p.raw" in str(told.value)
    box.state.set_hwm("p.raw", kept)
    assert box.run("raw").status is RunStatus.NO_DATA
    lose(box.state)
    assert box.run("raw", full_refresh=True).rows_written == 1
    assert ids(box) == [1]


@pytest.mark.parametrize("box", ["catalog"], indirect=True)
@pytest.mark.parametrize("increment", ["files", "{mode: stateful, column: id}"])
def test_a_table_that_was_written_without_an_increment_is_rebuilt_before_rows_are_added(
    box: Sandbox, increment: str
) -> None:
    whole = NODES.replace(",\n       incremental: {mode: files}", "").replace("path: raw, mode: append", "path: raw")
    before = Sandbox(box.root, box.spark, whole)
    land(before, 1)
    before.run("raw")
    after = Sandbox(box.root, box.spark, NODES.replace("incremental: {mode: files}", f"incremental: {increment}"))
    land(after, 2)
    with pytest.raises(StateError, match=r"was written when the node had no increment(.|\n)*--full-refresh"):
        after.run("raw")
    (found,) = examine(after.project, after.state, [NodeKey("p", "raw")])
    assert found.kind is Kind.STATE_BEHIND
    assert found.remedy.startswith("rebuild it from its sources (odi run p --node raw --full-refresh)")
    after.run("raw", full_refresh=True)
    land(after, 3)
    after.run("raw")
    assert sorted(ids(after)) == [1, 2, 3]
    assert examine(after.project, after.state, [NodeKey("p", "raw")]) == []
