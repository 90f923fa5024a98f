"""A node that is renamed, adopted and renamed again, to names that it had before: its rows stay, and go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: a
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", incremental: INCREMENT}
    write: {connection: lake, path: table, mode: MODE}
"""
INCREMENTS = {"files": "files", "stateful": "{mode: stateful, column: id}"}
MODES = {"append": "append", "upsert": "upsert, keys: [id]"}


class Renamed:
    def __init__(self, box: Sandbox) -> None:
        self.box, self.name, self.landed = box, "a", 0

    def rename(self, name: str) -> None:
        file = self.box.root / "odibi.yaml"
        text = file.read_text(encoding="utf-8").replace(f"- name: {self.name}\n", f"- name: {name}\n")
        file.write_text(text, encoding="utf-8")
        self.box.project, self.name = Project.load(file), name
        found = plan_adoption(self.box.project, self.box.state, NodeKey("p", name), lambda: self.box.spark)
        if found is not None:
            apply_adoption(self.box.state, found)

    def load(self) -> None:
        self.landed += 1
        self.box.land(f"{self.landed}.csv", [str(self.landed)])
        self.box.run(self.name)

    def rows(self) -> list[int]:
        return sorted(row[0] for row in self.box.rows(self.name))


@pytest.mark.parametrize(
    ("names", "runs", "increment", "mode"), cases(["ba", "baba", "bca", "bcbca"], [0, 1, 2], INCREMENTS, MODES)
)
def test_rows_stay_whose_source_is_gone(
    tmp_path: Path, spark: SparkSession, names: str, runs: int, increment: str, mode: str
) -> None:
    text = NODE.replace("INCREMENT", INCREMENTS[increment]).replace("MODE", MODES[mode])
    node = Renamed(Sandbox(tmp_path, spark, text))
    node.load()
    for name in names:
        node.rename(name)
        for _ in range(runs):
            node.load()
    for file in (tmp_path / "landing").glob("*.csv"):
        file.unlink()
    node.load()
    assert node.rows() == [*range(1, node.landed + 1)]
    assert examine(node.box.project, node.box.state, [NodeKey("p", node.name)]) == []
    assert [entry.key for entry in node.box.state.list_hwms()] == [f"p.{node.name}"]
