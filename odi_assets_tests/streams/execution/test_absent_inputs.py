"""Inputs that leave a stream and come back: each of their rows is read once, whatever happened in between."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import CheckpointError, IdentityMismatchError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import Kind
from odi_assets_tests.nodes.planning.test_histories import put_back, without_log_before_the_newest_version
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.streams.execution.test_streams import fail_after, rewind

UN = NodeKey("p", "un")


class Union:
    """A stream that unites some of its inputs."""

    def __init__(self, root: Path, spark: SparkSession, retain: int = 100, names: str = "ab") -> None:
        self.retain, self.names, self.paths = retain, names, {name: name for name in names}
        self.landed: list[str] = []
        self.box = Sandbox(root, spark, self._node(names))

    def _node(self, present: str) -> str:
        inputs = ", ".join(f"{name}: {{read: {{connection: landing, {self._read(name)}}}}}" for name in present)
        query = " UNION ALL ".join(f"SELECT id FROM {name}" for name in present)
        return f"""
- pipeline: p
  nodes:
  - name: un
    inputs: {{{inputs}}}
    stream: {{retain_batches: {self.retain}, state_partitions: 1}}
    transform: {{sql: "{query}"}}
    write: {{connection: lake, path: un, mode: append}}
"""

    def _read(self, name: str) -> str:
        """The input ``d`` is a table, and the others are files."""
        path = self.paths[name]
        return "format: delta, path: d" if name == "d" else f'format: json, path: "{path}/*.json", schema: "id STRING"'

    def have(self, present: str) -> None:
        self.box.project = Sandbox(self.box.root, self.box.spark, self._node(present)).project

    def land(self) -> None:
        for name in self.names:
            row = f"{name}{len(self.landed)}"
            self.landed.append(row)
            if name == "d":
                write_deltalake(self.box.root / "landing" / "d", pa.table({"id": [row]}), mode="append")
            else:
                self.box.land(f"{self.paths[name]}/{row}.json", [json.dumps({"id": row})])

    def run(self) -> None:
        self.land()
        self.box.run("un")

    def die(self, when: str) -> None:
        """A run that dies before its rows are in the table, or after that and before Spark knows it."""
        self.land()
        with pytest.MonkeyPatch.context() as patch:
            fail_after(patch, when)
            with pytest.raises(RuntimeError, match="killed"):
                self.box.run("un")

    def ids(self) -> list[str]:
        return [row[0] for row in self.box.rows("un")]


@pytest.mark.parametrize(("away", "retain"), [(1, 2), (4, 100), (4, 2)])
def test_an_input_that_comes_back_is_read_on(away: int, retain: int, tmp_path: Path, spark: SparkSession) -> None:
    union = Union(tmp_path, spark, retain)
    union.run()
    union.run()
    union.have("a")
    for _ in range(away):
        union.run()
    union.have("ab")
    union.run()
    assert union.ids() == sorted(union.landed)


def test_where_nothing_says_how_far_an_input_was_read_that_comes_back_the_run_stops(
    tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark, retain=2)
    union.run()
    union.have("a")
    for _ in range(4):
        union.run()
    shutil.rmtree(tmp_path / "lake" / "system")
    without_log_before_the_newest_version(tmp_path / "lake" / "un")
    union.have("ab")
    union.land()
    for look in (union.box.plan, union.box.run):
        with pytest.raises(IdentityMismatchError, match="its input `b` comes back, and nothing says any more"):
            look("un")
    assert [found.kind for found in examine(union.box.project, union.box.state, [UN])] == [Kind.REDEFINED]
    union.box.run("un", full_refresh=True)
    assert union.ids() == sorted(union.landed)


@pytest.mark.parametrize("back", [0, 1, 2, 3])
def test_a_rewind_to_any_batch_knows_what_inputs_that_came_and_went_have_read(
    back: int, tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark)
    union.run()
    union.have("a")
    union.run()
    union.have("ab")
    union.run()
    union.have("b")
    union.run()
    rewind(union.box, "un", back)
    union.have("ab")
    union.run()
    assert union.ids() == sorted(union.landed)
    union.run()
    assert union.ids() == sorted(union.landed)


@pytest.mark.parametrize("when", ["before the adoption", "after the adoption"])
def test_files_of_an_input_that_were_moved_while_it_was_away_are_known_again(
    when: str, tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark)
    union.run()
    union.have("a")
    union.run()
    landing = union.box.root / "landing"
    for name in "ab":
        (landing / name).rename(landing / f"{name}_new")
        union.paths[name] = f"{name}_new"
    for present in ("ab",) if when == "before the adoption" else ("a", "ab"):
        union.have(present)
        union.land()
        with pytest.raises(IdentityMismatchError, match=r"that batches have read in [\s\S]*odi state adopt"):
            union.box.run("un")
        adoption = plan_adoption(union.box.project, union.box.state, UN, lambda: spark)
        assert adoption is not None
        apply_adoption(union.box.state, adoption)
        union.box.run("un")
    assert union.ids() == sorted(union.landed)
    assert examine(union.box.project, union.box.state, [UN]) == []


@pytest.mark.parametrize("seed", range(4))
def test_inputs_that_come_and_go_between_runs_and_rewinds_are_each_read_once(
    seed: int, tmp_path: Path, spark: SparkSession
) -> None:
    draw = random.Random(seed)
    union = Union(tmp_path, spark, retain=draw.choice((3, 100)), names="abd")
    union.run()
    for _ in range(8):
        union.have("".join(name for name in union.names if draw.random() < 0.5) or draw.choice(union.names))
        union.run()
        last = len(union.box.project.open_batches().of_node("p.un")) - 1
        if draw.random() < 0.4:
            union.die(draw.choice(("before", "after")))
        elif draw.random() < 0.3:
            rewind(union.box, "un", draw.randint(max(0, last - 1), last))
    union.have(union.names)
    union.run()
    assert union.ids() == sorted(union.landed)
    assert examine(union.box.project, union.box.state, [UN]) == []


@pytest.mark.parametrize("gone", ["b", "d"])
def test_an_input_that_comes_back_under_another_name_stops_the_run(
    gone: str, tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark, names=f"a{gone}")
    union.run()
    union.have("a")
    for _ in range(3):
        union.run()
    union.have(union.names)
    file = tmp_path / "odibi.yaml"
    named = file.read_text("utf-8").replace(f"{gone}: {{read", "other: {read").replace(f"FROM {gone}", "FROM other")
    file.write_text(named, "utf-8")
    union.box.project = Project.load(file)
    with pytest.raises(IdentityMismatchError, match=f"its input `other` .* under the name `{gone}`"):
        union.box.run("un")
    union.have(union.names)
    union.run()
    assert union.ids() == sorted(union.landed)


def test_a_run_that_is_killed_as_it_lists_the_first_files_of_an_input_is_followed_by_one_that_reads_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark)
    union.have("a")
    union.run()
    union.run()
    union.have("ab")
    listed = tmp_path / "lake" / "un" / "_odi_stream" / "sources"
    (listed / "b").mkdir()
    entry = json.loads((listed / "a" / "0").read_text("utf-8").split("\n")[1])
    first = union.box.root / "landing" / "b" / "b1.json"
    entry |= {"path": first.as_uri(), "timestamp": round(first.stat().st_mtime * 1000)}
    (listed / "b" / "0").write_text(f"v1\n{json.dumps(entry)}", "utf-8")
    union.run()
    assert union.ids() == sorted(union.landed)


def test_the_first_batch_of_an_input_that_spark_runs_again_begins_where_it_began(
    tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark)
    union.have("a")
    union.run()
    union.have("ab")
    checkpoint = tmp_path / "lake" / "un" / "_odi_stream"
    # Somebody's tool left it there.
    (checkpoint / "offsets" / "0.new").write_text("v2", "utf-8")
    union.die("after")
    union.run()
    assert union.ids() == sorted(union.landed)
    assert "b:" not in (checkpoint / "offsets" / "0").read_text("utf-8")


def test_a_batch_of_another_history_that_read_one_more_input_is_another_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    union = Union(tmp_path, spark)
    union.have("a")
    union.run()
    table, copy, other = tmp_path / "lake" / "un", tmp_path / "copy", tmp_path / "other"
    shutil.copytree(table, copy)
    union.land()
    union.have("ab")
    union.box.run("un")
    shutil.copytree(table / "_odi_stream", other)
    put_back(table, copy)
    union.have("a")
    union.box.run("un")
    # Batch 1 of this checkpoint has read the same file of `a` as the table, and `b` beside it.
    put_back(table / "_odi_stream", other)
    with pytest.raises(CheckpointError, match="its batch 1 reads other rows"):
        union.box.run("un")
