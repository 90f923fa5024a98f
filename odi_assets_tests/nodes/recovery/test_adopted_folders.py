"""A landing folder is moved, its node is adopted, and each loaded row is there once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.change_sweep.patterns import lives_of_patterns
from odi_assets.config.graph import NodeKey
from odi_assets.errors import IncrementError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: n
    read: {connection: landing, format: csv, path: PATH, schema: "id BIGINT, v STRING", options: {header: "true"},
           incremental: INCREMENT}
    write: {connection: lake, path: n, WRITE}
"""
APPEND, UPSERT = "mode: append", "mode: upsert, keys: [id]"
LOADED = {"a.csv": [(1, "a"), (2, "b")], "b.csv": [(3, "c"), (4, "d")]}


def box_of(tmp_path: Path, spark: SparkSession, write: str, path: str, increment: str) -> Sandbox:
    text = NODE.replace("WRITE", write).replace("PATH", path).replace("INCREMENT", increment)
    tmp_path.mkdir(exist_ok=True)
    box = Sandbox(tmp_path, spark, text)
    for name, rows in LOADED.items():
        land(box, f"x/{name}", rows)
        os.utime(box.root / "landing/x" / name, (1_700_000_000, 1_700_000_000))
    box.run("n")
    return box


def land(box: Sandbox, name: str, rows: list[tuple[int, str]]) -> None:
    box.land(name, ["id,v", *(f"{number},{text}" for number, text in rows)])


def adopted(box: Sandbox, spark: SparkSession, path: str) -> str:
    """Adopt the node, with ``y`` in the place of ``x`` in its path; what changed, in words."""
    file = box.root / "odibi.yaml"
    file.write_text(file.read_text("utf-8").replace(f"path: {path}", f"path: {path.replace('x', 'y')}"), "utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()
    adoption = plan_adoption(box.project, box.state, NodeKey("p", "n"), lambda: spark)
    assert adoption is not None
    apply_adoption(box.state, adoption)
    return "; ".join(adoption.changes)


def renamed(box: Sandbox) -> None:
    (box.root / "landing/x").rename(box.root / "landing/y")


def copied_without_times(box: Sandbox) -> None:
    shutil.copytree(box.root / "landing/x", box.root / "landing/y", copy_function=shutil.copyfile)
    shutil.rmtree(box.root / "landing/x")


def touched(box: Sandbox) -> None:
    renamed(box)
    os.utime(box.root / "landing/y/a.csv")


def renamed_within(box: Sandbox) -> None:
    renamed(box)
    (box.root / "landing/y/a.csv").rename(box.root / "landing/y/z.csv")


MOVES = [renamed, copied_without_times, touched, renamed_within]


@pytest.mark.parametrize("path", ["x", '"x/*.csv"'])
@pytest.mark.parametrize("write", [APPEND, UPSERT])
@pytest.mark.parametrize("move", MOVES)
def test_loaded_files_are_known_and_those_beside_them_are_loaded(
    move: Callable[[Sandbox], None], write: str, path: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, write, path, "files")
    move(box)
    land(box, "y/c.csv", [(5, "e")])
    words = adopted(box, spark, path)
    assert "2 loaded files of landing:" in words
    assert "1 other file will be loaded, y/c.csv" in words
    box.run("n")
    assert sorted(box.rows("n")) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    land(box, "y/d.csv", [(6, "f")])
    box.run("n")
    assert len(box.rows("n")) == 6
    assert box.run("n").status is RunStatus.NO_DATA


@pytest.mark.parametrize("move", [renamed, copied_without_times])
@pytest.mark.parametrize("rows", [[(3, "c"), (4, "D")], [(3, "c"), (4, "d"), (7, "g")]])
def test_a_loaded_file_with_other_content_stops_the_adoption_or_is_loaded_again_by_its_keys(
    rows: list[tuple[int, str]], move: Callable[[Sandbox], None], tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path / "append", spark, APPEND, "x", "files")
    move(box)
    land(box, "y/b.csv", rows)
    with pytest.raises(IncrementError, match=r"has other content now: y/b\.csv") as error:
        adopted(box, spark, "x")
    assert "odi run p --node n --full-refresh" in str(error.value.fix)
    land(box, "y/b.csv", LOADED["b.csv"])
    land(box, "y/c.csv", rows[2:])
    adopted(box, spark, "y")
    box.run("n")
    assert sorted(box.rows("n")) == sorted([*LOADED["a.csv"], *LOADED["b.csv"], *rows[2:]])

    box = box_of(tmp_path / "upsert", spark, UPSERT, "x", "files")
    move(box)
    land(box, "y/b.csv", rows)
    adopted(box, spark, "x")
    box.run("n")
    assert sorted(box.rows("n")) == sorted([*LOADED["a.csv"], *rows])


def test_a_file_that_lost_name_and_time_is_named_before_it_is_appended_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, APPEND, "x", "files")
    renamed_within(box)
    os.utime(box.root / "landing/y/z.csv")
    with pytest.raises(IncrementError, match=r"another name and another time: y/z\.csv"):
        adopted(box, spark, "x")
    (box.root / "landing/y/z.csv").rename(box.root / "landing/y/a.csv")
    adopted(box, spark, "y")
    assert box.run("n").status is RunStatus.NO_DATA
    assert len(box.rows("n")) == 4


def test_a_narrower_pattern_leaves_files_where_they_are(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, APPEND, "x", "files")
    for name, rows in {"x/y/a.csv": [(5, "e")], "x/y/y/a.csv": [(6, "f")]}.items():
        land(box, name, rows)
    box.run("n")
    file = box.root / "odibi.yaml"
    file.write_text(file.read_text("utf-8").replace("path: x,", "path: x/y,"), "utf-8")
    land(box, "x/y/a.csv", [(5, "E")])
    with pytest.raises(IncrementError, match=r"has other content now: x/y/a\.csv"):
        adopted(box, spark, "-")
    land(box, "x/y/a.csv", [(5, "e")])
    land(box, "x/y/b.csv", [(7, "g")])
    adopted(box, spark, "-")
    box.run("n")
    assert sorted(row[0] for row in box.rows("n")) == [1, 2, 3, 4, 5, 6, 7]
    file.write_text(file.read_text("utf-8").replace("path: x/y,", "path: x,"), "utf-8")
    adopted(box, spark, "-")
    assert box.run("n").status is RunStatus.NO_DATA


@pytest.mark.parametrize(("steps", "seed"), [(24, 7), (6, 549)])
def test_a_pattern_may_be_edited_before_and_after_its_files_land(
    tmp_path: Path, spark: SparkSession, steps: int, seed: int
) -> None:
    tally = lives_of_patterns(steps, tmp_path, print, seed, lambda folder, text: Sandbox(folder, spark, text))
    assert tally.wrong == []
    assert tally.adopted > 1
