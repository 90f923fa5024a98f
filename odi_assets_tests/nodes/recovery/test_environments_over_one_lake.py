"""Environments of one file that write the same tables, each with a run history of its own."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: raw, mode: append}
"""
KEY = NodeKey("p", "raw")


def test_runs_of_another_environment_are_not_missed_in_the_history_of_this_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, NODES, "environments: {prod: {system: {path: system_prod}}}\n")
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
