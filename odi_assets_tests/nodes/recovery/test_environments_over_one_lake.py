"""Environments of one file that write the same tables, each with a run history of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.history.repair import commits_without_row
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: raw, mode: append}
"""
OF_PROD = "environments: {prod: {system: {path: system_prod}}}\n"
KEY = NodeKey("p", "raw")


def test_runs_of_another_environment_are_not_missed_in_the_history_of_this_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, NODES, OF_PROD)
    prod = Project.load(box.root / "odibi.yaml", "prod")
    state = prod.open_state()
    for number in range(4):
        box.land(f"{number}.csv", [str(number)])
        if number % 2:
            run_node(NodeRun(RunHistory(prod, state, f"prod-{number}"), KEY, lambda: spark))
        else:
            box.run("raw")
    assert sorted(row[0] for row in box.rows("raw")) == [0, 1, 2, 3]
    for project, own in ((box.project, box.state), (prod, state)):
        assert Kind.HISTORY_BEHIND not in {one.kind for one in examine(project, own, [KEY])}
        assert len(own.list_runs(pipeline="p")) == 2


@pytest.mark.parametrize("is_moved", [False, True], ids=["in place", "moved"])
def test_a_run_that_is_missing_in_a_history_that_environments_share_is_named_in_each(
    tmp_path: Path, spark: SparkSession, is_moved: bool
) -> None:
    (tmp_path / "here").mkdir()
    box = Sandbox(tmp_path / "here", spark, NODES, "environment: team\nenvironments: {dev: {environment: team}}\n")
    box.land("1.csv", ["1"])
    box.run("raw")
    box.land("2.csv", ["2"])
    dev = Project.load(box.root / "odibi.yaml", "dev")
    lost = LocalJSONStateBackend(tmp_path / "of a run whose row never came.json")
    run_node(NodeRun(RunHistory(dev, lost, "run-of-dev"), KEY, lambda: spark))
    root = (tmp_path / "here").rename(tmp_path / "there") if is_moved else tmp_path / "here"
    for environment in (None, "dev"):
        project = Project.load(root / "odibi.yaml", environment)
        attempts, _ = commits_without_row(project, project.open_state(), [KEY], every=True)
        assert [one.run_id for one in attempts] == ["run-of-dev"]
