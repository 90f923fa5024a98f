"""Nodes that read another place in another way: what the former place still holds for them is not lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, TableError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import Adoption, apply_adoption, plan_adoption
from odi_assets_tests.nodes.support import Sandbox

FROM_FILES = 'read: {connection: landing, format: json, path: a/*.json, schema: "id BIGINT", incremental: files}'
WAYS = {
    "files": FROM_FILES,
    "versions": "inputs: {raw: {node: raw, incremental: version}}",
    "a column": "inputs: {raw: {node: raw, incremental: {mode: stateful, column: id}}}",
    "a column of files": FROM_FILES.replace("files}", "{mode: stateful, column: id}}"),
    "files elsewhere": FROM_FILES.replace("a/*", "b/*"),
    "a column of files elsewhere": FROM_FILES.replace("a/*", "b/*").replace("files}", "{mode: stateful, column: id}}"),
}
NODES = """
- pipeline: p
  nodes:
  - {name: raw, FROM_FILES, write: {connection: lake, path: raw, mode: append}}
  - {name: n, WAY, write: {connection: lake, path: n, mode: append}}
"""
LINES = ['{"id": 1}'], ['{"id": 2}'], ['{"id": 3}']


class Moving:
    def __init__(self, root: Path, spark: SparkSession, way: str) -> None:
        self.box = Sandbox(root, spark, NODES.replace("FROM_FILES", FROM_FILES).replace("WAY", WAYS[way]))
        self.way = way

    def land(self, number: int) -> None:
        for folder in "ab":
            self.box.land(f"{folder}/{number}.json", LINES[number - 1])
        self.box.run("raw")

    def becomes(self, way: str) -> None:
        file = self.box.root / "odibi.yaml"
        text = file.read_text(encoding="utf-8").replace(f"name: n, {WAYS[self.way]}", f"name: n, {WAYS[way]}")
        file.write_text(text, encoding="utf-8")
        self.box.project, self.way = Project.load(file), way

    def adoption(self) -> Adoption:
        adoption = plan_adoption(self.box.project, self.box.state, NodeKey("p", "n"), lambda: self.box.spark)
        assert adoption is not None
        return adoption


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("versions", "files"),
        ("files", "versions"),
        ("a column", "files"),
        ("files", "a column"),
        ("files elsewhere", "a column"),
        ("a column of files", "files elsewhere"),
    ],
)
def test_a_place_that_still_holds_rows_for_the_node_refuses_the_adoption_and_the_named_way_loads_them(
    tmp_path: Path, spark: SparkSession, before: str, after: str
) -> None:
    there = Moving(tmp_path, spark, before)
    there.land(1)
    there.box.run("n")
    there.land(2)
    there.becomes(after)
    with pytest.raises(IdentityMismatchError, match=r"not all of .* is loaded: .*\n.*put the former definition back"):
        there.adoption()
    there.becomes(before)
    there.box.run("n")
    there.becomes(after)
    apply_adoption(there.box.state, there.adoption())
    there.land(3)
    there.box.run("n")
    assert [row[0] for row in there.box.rows("n")] == [1, 2, 3]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    ("before", "between", "after"),
    [
        ("a column of files", "a column of files elsewhere", "files elsewhere"),
        ("files", "files elsewhere", "a column of files elsewhere"),
    ],
)
def test_rows_that_lie_at_the_new_place_alone_refuse_the_adoption_and_the_named_way_loads_them(
    tmp_path: Path, spark: SparkSession, before: str, between: str, after: str, gone: bool
) -> None:
    there = Moving(tmp_path, spark, before)
    there.land(1)
    there.box.run("n")
    shutil.copytree(
        tmp_path / "landing" / "a", tmp_path / "landing" / "b", dirs_exist_ok=True, copy_function=shutil.copy2
    )
    there.box.land("b/2.json", LINES[1])
    if gone:
        shutil.rmtree(tmp_path / "landing" / "a")
    there.becomes(after)
    with pytest.raises(IdentityMismatchError, match=r"not all of .*b/.* is loaded: .*\n.*first the place"):
        there.adoption()
    there.becomes(between)
    apply_adoption(there.box.state, there.adoption())
    there.box.run("n")
    there.becomes(after)
    apply_adoption(there.box.state, there.adoption())
    there.box.run("n")
    assert [row[0] for row in there.box.rows("n")] == [1, 2]


def test_files_that_were_moved_count_as_loaded_and_others_are_read(tmp_path: Path, spark: SparkSession) -> None:
    there = Moving(tmp_path, spark, "files")
    there.land(1)
    there.box.run("n")
    there.land(2)
    there.becomes("files elsewhere")
    apply_adoption(there.box.state, there.adoption())
    there.box.run("n")
    assert [row[0] for row in there.box.rows("n")] == [1, 2]


def test_a_place_that_cannot_be_looked_at_stops_the_adoption(tmp_path: Path, spark: SparkSession) -> None:
    there = Moving(tmp_path, spark, "versions")
    there.land(1)
    there.box.run("n")
    there.becomes("files")
    (tmp_path / "lake" / "raw" / "_delta_log" / f"{0:020d}.json").write_text("", encoding="utf-8")
    with pytest.raises(TableError, match="/lake/raw"):
        there.adoption()


def test_a_place_that_is_gone_is_named(tmp_path: Path, spark: SparkSession) -> None:
    there = Moving(tmp_path, spark, "files elsewhere")
    there.land(1)
    there.box.run("n")
    there.becomes("versions")
    shutil.rmtree(tmp_path / "landing")
    changes = "; ".join(there.adoption().changes)
    assert "/landing/b/*.json, followed by files that are new, and is " in changes
    assert f"whether all of {tmp_path}/landing/b/*.json was loaded is not looked at" in changes
