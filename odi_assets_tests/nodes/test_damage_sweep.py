"""Damaged files and power cuts: doctor sees the damage, its remedies lead to right rows, and nothing acknowledged goes.

The long forms are ``python -m benchmarks damage``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.damage.power_cut import recorded
from benchmarks.damage.sweep import drawn, sweep
from benchmarks.damage.world import World

SEED = 2026
DAMAGES = 5


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ODI_SPARK_LOG_LEVEL", "fatal")
    assert spark is not None
    return World(tmp_path / "world", nodes="batch")


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    assert spark is not None
    world = World(tmp_path_factory.mktemp("streamed") / "world", nodes="stream")
    world.build(2)
    return world


def test_doctor_sees_damage_of_any_file_and_its_remedies_lead_to_right_rows(world: World) -> None:
    world.build()
    tally = sweep(world, drawn(world.root, DAMAGES, SEED), print)
    assert tally.findings == []
    assert tally.damages == DAMAGES
    assert tally.commands > 15 * DAMAGES


@pytest.mark.parametrize(
    ("file", "left", "refreshed"),
    [("commits/1", 3, False), ("offsets/1", 3, True), ("offsets/1", 0, True), ("metadata", 3, True)],
)
def test_a_torn_checkpoint_of_a_stream_is_set_aside_and_its_query_goes_on(
    streamed: World, file: str, left: int, refreshed: bool
) -> None:
    streamed.put_back()
    torn = streamed.root / "lake" / "seen" / "_odi_stream" / file
    torn.write_bytes(torn.read_bytes()[:left])
    sick = streamed.odi("doctor")
    named = re.search(r"odi (tables repair [^`\s;]+)", sick.out)
    assert sick.code == 1
    assert named is not None, sick.text
    done = streamed.odi(f"{named[1]} --yes --json")
    assert done.code == 0, done.text
    (repaired,) = json.loads(done.out)
    assert ("--full-refresh" in repaired["next"]) is refreshed
    assert Path(repaired["aside"]).is_dir()
    assert streamed.odi(repaired["next"].removeprefix("odi ")).code == 0
    assert streamed.wrong() == []
    assert streamed.odi("doctor").code == 0


@pytest.mark.parametrize("names_survive", [False, True])
def test_a_power_cut_takes_nothing_back_that_a_run_acknowledged(world: World, names_survive: bool) -> None:
    world.build(1)
    with recorded(world.root) as disk:
        world.land()
        disk.take_all(world.root / "landing")
        done = world.odi("run")
        assert done.code == 0, done.text
        disk.cut(names_survive=names_survive)
    assert world.wrong() == []
    assert world.odi("doctor --deep").code == 0
    world.land()
    assert world.odi("run").code == 0
    assert world.wrong() == []


def test_without_fsync_a_power_cut_leaves_damage_that_is_named_and_repaired(world: World) -> None:
    file = world.root / "odibi.yaml"
    file.write_text(file.read_text().replace("lake: {type: local,", "lake: {type: local, fsync: false,"))
    world.build(1)
    with recorded(world.root) as disk:
        world.land()
        disk.take_all(world.root / "landing")
        assert world.odi("run").code == 0
        disk.cut(names_survive=True)
    assert world.odi("doctor").code == 1
    for command in ("tables repair --system --yes", "tables repair --yes", "state recover", "run p --full-refresh"):
        done = world.odi(command)
        assert done.code == 0, done.text
    assert world.wrong() == []
    assert world.odi("doctor --deep").code == 0
