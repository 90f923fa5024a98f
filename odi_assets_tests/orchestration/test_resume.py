"""Resumed runs: what succeeded in the last run stays, what changed since runs again, and each says why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.events import NodeEvent
from odi_assets.nodes.history import attempts
from odi_assets.nodes.history.resume import ResumeDecision, last_rows, verdict
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery import table_versions as points
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.request import Bounds, RunRequest
from odi_assets.nodes.result import RunSummary
from odi_assets.orchestration.run import run_pipeline
from odi_assets.util.process import process_name
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, land, make_project

BROKEN = PROJECT_FILE.replace("amount FROM raw_sales", "amount FROM raw_sales JOIN nothing USING (id)")
BACKENDS = {"delta": "", "json": "system: {connection: lake, path: _odibi_system}\n"}


def statuses(summary: RunSummary) -> dict[str, str]:
    return {result.key.node: result.status.value for result in summary.results}


def rewrite(project: Project, text: str) -> Project:
    project.path.write_text(text, encoding="utf-8")
    return Project.load(project.path)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("left_out", BACKENDS.values(), ids=BACKENDS)
def test_a_resumed_run_does_only_what_is_left_and_so_does_the_next_one(
    tmp_path: Path, instance: dg.DagsterInstance, left_out: str
) -> None:
    def text(whole: str) -> str:
        return whole.replace(left_out, "") if left_out else whole

    project = make_project(tmp_path / "project", "2024-01-01", text=text(BROKEN))
    first = run_pipeline(project, "shop", instance=instance)
    assert (statuses(first)["raw_sales"], statuses(first)["sales"]) == ("SUCCESS", "FAILURE")

    project = rewrite(project, text(PROJECT_FILE))
    events: list[NodeEvent] = []
    second = run_pipeline(project, "shop", RunRequest(resume=True), instance=instance, on_event=events.append)
    done, todo = {"raw_sales": "SKIPPED", "shops": "SKIPPED"}, ("sales", "sales_by_day", "revenue")
    assert statuses(second) == {**done, **dict.fromkeys(todo, "SUCCESS")}
    reasons = {result.key.node: result.error for result in second.results}
    assert reasons["raw_sales"] == f"resumed: succeeded in run {first.run_id}, and nothing changed since"
    decided = {event.key.node: event.reason for event in events if event.kind == "decided"}
    assert decided == {"sales": "FAILURE in the last run", **dict.fromkeys(todo[1:], "SKIPPED in the last run")}

    # A run of one node does not make the others forget what they did in the run before it.
    run_pipeline(project, "shop", nodes=["revenue"], instance=instance)
    third = run_pipeline(project, "shop", RunRequest(resume=True), instance=instance)
    assert statuses(third) == dict.fromkeys(NODES, "SKIPPED")
    assert next(r.error for r in third.results if r.key.node == "shops") == reasons["shops"]

    land(project.root, "2024-01-02")
    fourth = run_pipeline(project, "shop", RunRequest(resume=True), instance=instance)
    assert statuses(fourth) == {**dict.fromkeys(NODES, "SUCCESS"), "shops": "SKIPPED"}
    assert DeltaTable(str(project.root / "lake" / "revenue")).to_pyarrow_table().num_rows == 2


def test_whatever_changed_since_a_node_succeeded_makes_it_run_again_and_compaction_does_not(
    project: Project, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    del spark
    land(project.root, "2024-01-03")
    run_pipeline(project, "shop", nodes=["raw_sales", "shops", "sales"], instance=instance)
    state = project.open_state()

    def judged(node: str, now: Project = project) -> ResumeDecision:
        key = NodeKey("shop", node)
        return verdict(now, state, key, last_rows(state, project, "shop", "this run").get(key))

    assert [judged(node).skip for node in ("raw_sales", "shops", "sales")] == [True] * 3
    assert judged("revenue").reason == "the last run did not come to it"
    DeltaTable(str(project.root / "lake" / "raw_sales")).optimize.compact()
    assert (judged("raw_sales").skip, judged("sales").skip) == (True, True)

    hwm = state.get_hwm("shop.sales")
    state.delete_hwm("shop.sales")
    assert "but its HWM is gone" in judged("sales").reason
    state.reset_hwm("shop.sales", hwm)
    assert judged("sales").skip

    (project.root / "landing" / "shops.csv").write_text("shop,city\nnorth,Bergen\n", encoding="utf-8")
    assert judged("shops").reason.endswith("landing:shops.csv changed: files changed")
    DeltaTable(str(project.root / "lake" / "raw_sales")).delete("id = 1")
    assert "its table changed: version 0 then, version 2 now" in judged("raw_sales").reason
    assert "shop.raw_sales changed: version 0 then" in judged("sales").reason
    changed = rewrite(project, PROJECT_FILE.replace("shop, amount FROM", "shop, 2 * amount AS amount FROM"))
    assert judged("sales", changed).reason.endswith("but its code or configuration changed")


def test_a_killed_run_of_single_nodes_and_a_rewind_leave_the_last_whole_run_the_one_to_resume(
    project: Project, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    del spark
    run_pipeline(project, "shop", instance=instance)
    land(project.root, "2024-01-03")
    run_pipeline(project, "shop", instance=instance)
    notes: list[dict[str, Any]] = []

    def keep_note(event: NodeEvent) -> None:
        if event.kind == "started":
            (note,) = (project.root / attempts.FOLDER).glob("*.json")
            notes.append(json.loads(note.read_text(encoding="utf-8")))

    # What is left behind by a run of one node that is killed as it begins.
    run_pipeline(project, "shop", nodes=["revenue"], instance=instance, on_event=keep_note)
    left = {**notes[0], "run_id": "killed", "process": ended_process()}
    (project.root / attempts.FOLDER / "killed.json").write_text(json.dumps(left), encoding="utf-8")
    state = project.open_state()
    key = NodeKey("shop", "raw_sales")
    apply_rewind(project, state, plan_rewind(project, state, key, points.at_version(0)))

    resumed = run_pipeline(project, "shop", RunRequest(resume=True), instance=instance)
    assert [row.status.value for row in state.list_runs(run_id="killed")] == ["LOST"]
    assert statuses(resumed)["shops"] == "SKIPPED"
    assert {name for name, status in statuses(resumed).items() if status == "SUCCESS"} == {*NODES} - {"shops"}
    assert DeltaTable(str(project.root / "lake" / "revenue")).to_pyarrow_table().num_rows == 3
    assert DeltaTable(str(project.root / "lake" / "raw_sales")).to_pyarrow_table().num_rows == 6


def ended_process() -> str:
    """The name of a process of this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = process_name(child.pid)
    child.communicate(b"\n", timeout=30)
    return name


def test_a_resumed_run_that_is_to_do_something_again_is_refused() -> None:
    with pytest.raises(ConfigError, match="this one is to do everything again"):
        RunRequest(resume=True, full_refresh=True)
    with pytest.raises(ConfigError, match=r"a part \(from 2024-01-01 until before 2024-01-02\) again"):
        RunRequest(resume=True, bounds=Bounds.of("2024-01-01", "2024-01-02"))
