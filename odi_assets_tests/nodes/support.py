"""Small projects on a temporary folder, and runs of their nodes without Dagster."""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds, RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, finish, run_node
from odi_assets.state.backend import StateBackend
from odi_assets_tests.tables.support import read_table

HEAD = """
project: test
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
"""

_runs = itertools.count(1)


class Sandbox:
    """A project in a folder, with short ways to run nodes and look at what became of them."""

    def __init__(self, root: Path, spark: SparkSession, pipelines: str, connections: str = "") -> None:
        self.root = root
        self.spark = spark
        head = HEAD.replace("system:", f"{connections}system:") if connections else HEAD
        (root / "odibi.yaml").write_text(head + textwrap.indent(textwrap.dedent(pipelines), "  "), encoding="utf-8")
        self.project = Project.load(root / "odibi.yaml")
        self.state: StateBackend = self.project.open_state()
        self.pipeline = "p"
        self._mtime = 1_700_000_000

    def land(self, path: str, lines: Iterable[str]) -> Path:
        """Write a file whose time of change is later than that of all before it."""
        file = self.root / "landing" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._mtime += 1
        os.utime(file, (self._mtime, self._mtime))
        return file

    def plan(self, node: str, **how: Any) -> NodePlan:
        return plan_node(self.project, self.state, NodeKey(self.pipeline, node), RunRequest(**how))

    def run(self, node: str, *, start: str | None = None, end: str | None = None, **how: Any) -> NodeResult:
        if start and end:
            how["bounds"] = Bounds.of(start, end)
        return run_node(self._begun(node), RunRequest(**how))

    def finish(self, plan: NodePlan) -> NodeResult:
        """Run what was planned before."""
        return finish(self._begun(plan.node.key.node), compute(plan, self.spark))

    def _begun(self, node: str) -> NodeRun:
        history = RunHistory(self.project, self.state, f"run-{next(_runs)}")
        return NodeRun(history, NodeKey(self.pipeline, node), lambda: self.spark)

    def hwm(self, node: str) -> Any:
        return self.state.get_hwm(f"{self.pipeline}.{node}")

    def table(self, node: str) -> TableHandle:
        return TableHandle.open(self.project.target(NodeKey(self.pipeline, node)))

    def rows(self, node: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in read_table(self.spark, self.table(node)).collect()), key=str)
