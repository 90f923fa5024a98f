"""Attempts that were killed, and the rows of history they get."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.history import attempts
from odi_assets.nodes.history.attempts import record
from odi_assets.nodes.result import RunInfo
from odi_assets.nodes.run_node import commit
from odi_assets.orchestration.runs.reconcile import reconcile, repair_history
from odi_assets.state.records import RunStatus
from odi_assets.util.process import process_name
from odi_assets_tests.nodes.support import Sandbox

KEY = NodeKey("p", "raw")
RAW = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT", options: {header: "true"},
       incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
"""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture(params=["delta", "json"])
def box(tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Sandbox:
    box = Sandbox(tmp_path, spark, RAW)
    if request.param == "json":
        file = tmp_path / "odibi.yaml"
        file.write_text(file.read_text().replace("system: {connection: lake, path: system}\n", ""), encoding="utf-8")
        box.project = type(box.project).load(file)
        box.state = box.project.open_state()
    box.land("orders/a.csv", ["id", "1", "2"])
    return box


@pytest.fixture
def gone() -> str:
    """The name of a process of this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = process_name(child.pid)
    child.communicate(b"\n", timeout=30)
    return name


def begin(box: Sandbox, run: RunInfo, process: str | None = None) -> None:
    """An attempt begins, in a process named ``process`` instead of this one."""
    attempts.begin(box.project, KEY, run)
    for file in (box.root / attempts.FOLDER).glob("*.json") if process else ():
        facts = json.loads(file.read_text())
        file.write_text(json.dumps({**facts, "process": process}))


def test_a_run_killed_between_its_commit_and_its_row_is_recorded_with_the_figures_of_the_commit(
    box: Sandbox, instance: dg.DagsterInstance, gone: str
) -> None:
    run = RunInfo("killed", trigger="schedule", attempt=2, code_version="abc")
    begin(box, run, gone)
    commit(compute(box.plan("raw"), box.spark), box.state, run)
    (row,) = reconcile(box.project, instance, state=box.state)
    (found,) = box.state.list_runs(pipeline="p")
    assert found.run_id == row.run_id == "killed"
    assert (found.status, found.rows_processed, found.table_version, found.attempt) == (RunStatus.SUCCESS, 2, 0, 2)
    assert (found.trigger, found.code_version, found.metrics["mended"]) == ("schedule", "abc", True)
    assert found.hwm_after["path"] == "orders/a.csv"
    assert found.timestamp >= run.started_at - timedelta(seconds=1)
    assert box.state.get_last_run_status("p", "raw") is True
    assert reconcile(box.project, instance, state=box.state) == []


def test_a_run_killed_before_its_commit_is_lost_and_stands_before_the_run_that_made_up_for_it(
    box: Sandbox, instance: dg.DagsterInstance, gone: str
) -> None:
    begin(box, RunInfo("killed"), gone)
    after = RunInfo("after")
    record(box.project, box.state, commit(compute(box.plan("raw"), box.spark), box.state, after), after)
    (row,) = reconcile(box.project, instance, state=box.state)
    assert (row.run_id, row.status, row.table_version) == ("killed", RunStatus.LOST, None)
    assert [r.run_id for r in box.state.list_runs(pipeline="p")] == ["after", "killed"]
    assert box.state.get_last_run_status("p", "raw") is True


def test_a_run_killed_right_after_its_row_gets_no_second_one(
    box: Sandbox, instance: dg.DagsterInstance, gone: str
) -> None:
    run = RunInfo("killed")
    record(box.project, box.state, commit(compute(box.plan("raw"), box.spark), box.state, run), run)
    begin(box, run, gone)
    assert reconcile(box.project, instance, state=box.state) == []
    assert attempts.open_attempts(box.project) == []
    assert len(box.state.list_runs(pipeline="p")) == 1


def test_a_run_that_lives_is_never_declared_lost(box: Sandbox, instance: dg.DagsterInstance) -> None:
    run = RunInfo("alive", started_at=datetime.now(UTC) - timedelta(days=30))
    begin(box, run)
    assert reconcile(box.project, instance, state=box.state) == []
    commit(compute(box.plan("raw"), box.spark), box.state, run)
    assert reconcile(box.project, instance, state=box.state) == []
    assert [a.run_id for a in attempts.open_attempts(box.project)] == ["alive"]


@pytest.mark.parametrize(("age", "lost"), [(timedelta(hours=23), False), (timedelta(hours=25), True)])
def test_a_run_on_another_host_that_dagster_does_not_know_is_lost_after_a_day(
    box: Sandbox, instance: dg.DagsterInstance, age: timedelta, lost: bool
) -> None:
    begin(box, RunInfo("far", started_at=datetime.now(UTC) - age), "another-host/1/1")
    assert [row.status for row in reconcile(box.project, instance, state=box.state)] == [RunStatus.LOST] * lost


@pytest.mark.parametrize(
    ("status", "lost"), [(dg.DagsterRunStatus.STARTED, False), (dg.DagsterRunStatus.FAILURE, True)]
)
def test_a_run_on_another_host_is_as_alive_as_dagster_says(
    box: Sandbox, instance: dg.DagsterInstance, status: dg.DagsterRunStatus, lost: bool
) -> None:
    instance.add_run(dg.DagsterRun(job_name="p", run_id="0d1e7a4e-0000-4000-8000-000000000001", status=status))
    begin(box, RunInfo("0d1e7a4e-0000-4000-8000-000000000001"), "another-host/1/1")
    assert len(reconcile(box.project, instance, state=box.state)) == lost


def test_a_commit_that_nobody_noted_gets_its_row_once_its_run_must_have_ended(
    box: Sandbox, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(compute(box.plan("raw"), box.spark), box.state, RunInfo("unnoted"))
    assert reconcile(box.project, instance, state=box.state) == []
    monkeypatch.setattr("odi_assets.orchestration.runs.reconcile.GRACE", timedelta(0))
    (row,) = reconcile(box.project, instance, state=box.state)
    assert (row.run_id, row.status, row.rows_processed) == ("unnoted", RunStatus.SUCCESS, 2)


def test_a_folder_that_cannot_be_written_does_not_stop_a_run(
    box: Sandbox, instance: dg.DagsterInstance, make_read_only: Callable[[Path], None]
) -> None:
    make_read_only(box.root)
    run = RunInfo("unnoted")
    attempts.begin(box.project, KEY, run)
    record(box.project, box.state, commit(compute(box.plan("raw"), box.spark), box.state, run), run)
    assert len(box.state.list_runs()) == 1
    with pytest.raises(StateError, match="cannot be looked at"):
        reconcile(box.project, instance, state=box.state)
    repair_history(box.project, instance, box.state)


@pytest.fixture
def make_read_only() -> Callable[[Path], None]:
    """A file where the folder of notes should be: that stops root, too, as permissions would not."""

    def make(root: Path) -> None:
        (root / ".odibi").mkdir(exist_ok=True)
        (root / attempts.FOLDER).write_text("in the way", encoding="utf-8")

    return make


def test_a_note_that_a_power_cut_emptied_stops_no_run(box: Sandbox, instance: dg.DagsterInstance) -> None:
    begin(box, RunInfo("torn"))
    for file in (box.root / attempts.FOLDER).glob("*.json"):
        file.write_text("")
    assert reconcile(box.project, instance, state=box.state) == []
