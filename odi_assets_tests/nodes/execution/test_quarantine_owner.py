"""A quarantine has one node: another one, of the project or of another, neither writes into it nor takes rows out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import Kind
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.recovery.table_versions import at_version
from odi_assets_tests.nodes.execution.test_quarantine import Killed, dying
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

PIPELINE = """
- pipeline: p
  nodes:
"""
NODE = """
  - name: {name}
    read: {{connection: landing, format: csv, path: {name}/*.csv, schema: "id BIGINT", options: {{header: "true"}}, incremental: files}}
    write: {{connection: lake, path: {path}, {mode}}}
    checks: [{{range: {{column: id, min: 0}}}}]
    quarantine: {quarantine}
"""  # noqa: E501


def _node(name: str, quarantine: str, path: str | None = None, mode: str = "mode: append") -> str:
    return NODE.format(name=name, quarantine=quarantine, path=path or name, mode=mode)


class Given(Sandbox):
    """Nodes with quarantines, whose definitions change."""

    def __init__(self, root: Path, spark: SparkSession, *nodes: str) -> None:
        super().__init__(root, spark, PIPELINE + "".join(nodes))

    def edit(self, *nodes: str, project: str | None = None) -> None:
        file, before = self.root / "odibi.yaml", self.project.config.project
        Sandbox.__init__(self, self.root, self.spark, PIPELINE + "".join(nodes))
        if project is not None:
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(f"project: {before}", f"project: {project}", 1), encoding="utf-8")
            self.project = Project.load(file)

    def load(self, node: str, name: str, *ids: int) -> None:
        self.land(f"{node}/{name}.csv", ["id", *map(str, ids)])
        self.run(node)

    def bad(self, path: str) -> list[int]:
        table = TableHandle.open(self.project.location("lake", path))
        return sorted(row["id"] for row in read_table(self.spark, table).collect()) if table.exists else []

    def adopt(self, node: str) -> None:
        found = plan_adoption(self.project, self.state, NodeKey("p", node), lambda: self.spark)
        assert found is not None
        apply_adoption(self.state, found)

    def rewind(self, node: str, version: int) -> None:
        plan = plan_rewind(self.project, self.state, NodeKey("p", node), at_version(version))
        apply_rewind(self.project, self.state, plan)

    def refused(self, node: str, match: str, **how: Any) -> None:
        """Plan and run stop."""
        with pytest.raises(IdentityMismatchError, match=match):
            self.plan(node, **how)
        with pytest.raises(IdentityMismatchError, match=match):
            self.run(node, **how)


@pytest.fixture
def given(tmp_path: Path, spark: SparkSession) -> Given:
    """A node ``o`` that has run twice."""
    box = Given(tmp_path, spark, _node("o", "bad"))
    box.load("o", "a", 1, -2)
    box.load("o", "b", 3, -4)
    return box


def test_a_quarantine_that_an_edit_gives_to_another_node_is_refused_and_a_rewind_repeats_no_row(given: Given) -> None:
    given.edit(_node("o", "bad2"), _node("n", "bad"))
    given.land("n/a.csv", ["id", "100", "-101"])
    for full_refresh in (False, True):
        given.refused("n", r"p\.n: its quarantine at .*/bad was written by p\.o", full_refresh=full_refresh)
    (found,) = examine(given.project, given.state, [NodeKey("p", "n")])
    assert (found.kind, "was written by p.o" in str(found)) == (Kind.REDEFINED, True)
    given.rewind("o", 0)
    given.run("o")
    assert (given.bad("bad"), given.bad("bad2")) == ([-2], [-4])


def test_a_rewind_takes_none_of_the_rows_of_the_node_that_has_taken_the_quarantine_over(given: Given) -> None:
    given.edit(_node("o", "bad2"), _node("n", "bad"))
    given.adopt("n")
    given.load("n", "a", 100, -101)
    given.rewind("o", 0)
    assert given.bad("bad") == [-101, -2]
    given.run("o")
    given.load("n", "b", 102, -103)
    assert (given.bad("bad"), given.bad("bad2")) == ([-103, -101, -2], [-4])
    assert examine(given.project, given.state, [NodeKey("p", "n"), NodeKey("p", "o")], deep=True) == []


def test_swapped_quarantines_repeat_no_row_after_rewinds(tmp_path: Path, spark: SparkSession) -> None:
    box = Given(tmp_path, spark, _node("x", "bad"), _node("y", "worse"))
    for node, base in (("x", 0), ("y", 100)):
        box.load(node, "a", -base - 1)
        box.load(node, "b", -base - 2)
    box.edit(_node("x", "worse"), _node("y", "bad"))
    for node in ("x", "y"):
        box.refused(node, "its quarantine at")
        box.adopt(node)
    for node in ("x", "y"):
        box.rewind(node, 0)
        box.run(node)
    assert sorted(box.bad("bad") + box.bad("worse")) == [-102, -101, -2, -1]


def test_another_project_neither_adds_to_a_quarantine_nor_replaces_it(given: Given) -> None:
    given.edit(_node("o", "bad", path="o2"), project="another")
    for full_refresh in (False, True):
        given.refused("o", r"its quarantine at .*/bad was written by p\.o of project", full_refresh=full_refresh)
    assert given.bad("bad") == [-4, -2]


def test_no_node_takes_a_quarantine_for_its_table(given: Given) -> None:
    given.edit(_node("o", "bad2"), _node("m", "bad_m", path="bad"))
    given.land("m/a.csv", ["id", "7"])
    for full_refresh in (False, True):
        given.refused("m", r"p\.m: the table at .*/bad is the quarantine of p\.o", full_refresh=full_refresh)
    with pytest.raises(IdentityMismatchError, match="is the quarantine of"):
        given.adopt("m")
    assert given.bad("bad") == [-4, -2]


def test_no_node_takes_a_table_for_its_quarantine(given: Given) -> None:
    given.edit(_node("o", "bad", path="o2"), _node("m", "o"))
    given.land("m/a.csv", ["id", "-7"])
    given.refused("m", r"p\.m: its quarantine at .*/o was written by p\.o")
    with pytest.raises(IdentityMismatchError, match="was written by"):
        given.adopt("m")


def test_a_node_that_was_renamed_takes_its_quarantine_along(given: Given) -> None:
    given.land("renamed/x.csv", ["id", "0"])
    given.edit(_node("renamed", "bad", path="o"))
    given.refused("renamed", "was written by p.o")
    given.adopt("renamed")
    given.load("renamed", "c", 5, -6)
    assert given.bad("bad") == [-6, -4, -2]
    assert plan_adoption(given.project, given.state, NodeKey("p", "renamed"), lambda: given.spark) is None


def test_a_rewind_of_a_renamed_node_takes_out_what_it_quarantined_under_its_former_name(given: Given) -> None:
    given.land("renamed/x.csv", ["id", "0"])
    given.edit(_node("renamed", "bad", path="o"))
    given.adopt("renamed")
    given.load("renamed", "c", 5, -6)
    given.rewind("renamed", 0)
    assert given.bad("bad") == [-2]
    given.run("renamed")
    assert given.bad("bad") == [-6, -2]
    assert examine(given.project, given.state, [NodeKey("p", "renamed")], deep=True) == []


@pytest.mark.parametrize("path", ["bad", "worse"])
def test_a_renamed_node_completes_what_a_run_under_its_former_name_left_undone(
    path: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Given(tmp_path, spark, _node("o", "bad"))
    box.load("o", "a", 1, -2)
    live_again = dying(monkeypatch, "odi_assets.nodes.execution.checks.quarantine.commit")
    with pytest.raises(Killed):
        box.load("o", "b", 3, -4)
    live_again()
    box.land("renamed/x.csv", ["id", "0"])
    box.edit(_node("renamed", path, path="o"))
    box.adopt("renamed")
    box.load("renamed", "c", 5, -6)
    assert sorted({*box.bad("bad"), *box.bad("worse")}) == [-6, -4, -2]
    box.load("renamed", "d", 7, -8)
    assert sorted([*box.bad("bad"), *box.bad("worse")]) == [-8, -6, -4, -2]
    assert examine(box.project, box.state, [NodeKey("p", "renamed")], deep=True) == []


@pytest.mark.parametrize("mode", ["append", "upsert, keys: [id]", "append_once, keys: [id]"])
def test_an_audit_counts_the_quarantine_whatever_the_mode(mode: str, tmp_path: Path, spark: SparkSession) -> None:
    box = Given(tmp_path, spark, _node("o", "bad", mode=f"mode: {mode}"))
    box.load("o", "a", 1, -2, 3)
    assert not audit(box.project, spark, box.state, NodeKey("p", "o")).differing
