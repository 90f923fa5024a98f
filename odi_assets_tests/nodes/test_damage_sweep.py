"""Damaged files and power cuts: doctor sees the damage, its remedies lead to right rows, and nothing acknowledged goes.

The long forms are ``python -m benchmarks damage``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from benchmarks.damage.power_cut import recorded
from benchmarks.damage.sweep import FOLDER, drawn, sweep
from benchmarks.damage.world import WORLDS, World, remove
from odi_assets.util.durable import sync_folder, write_file

SEED = 2026
DAMAGES = 1


@pytest.fixture
def at(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a world."""
    for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ODI_SPARK_LOG_LEVEL", "fatal")
    assert spark is not None
    return tmp_path / "world"


@pytest.fixture
def world(at: Path) -> World:
    return World(at)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    assert spark is not None
    world = World(tmp_path_factory.mktemp("streamed") / "world", "stream")
    world.build(2)
    return world


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    assert spark is not None
    world = World(tmp_path_factory.mktemp("joined") / "world", "kept rows")
    world.build(2)
    return world


@pytest.mark.parametrize("kind", WORLDS)
def test_doctor_sees_damage_of_any_file_and_its_remedies_lead_to_right_rows(at: Path, kind: str) -> None:
    world = World(at, kind)
    world.build(2)
    tally = sweep(world, drawn(world.root, DAMAGES, SEED), print)
    assert tally.findings == []
    assert tally.damages == DAMAGES
    assert tally.commands > 12 * DAMAGES


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


@pytest.mark.parametrize("folder", ["sources/df", "sources", "offsets", "commits"])
def test_a_folder_of_a_checkpoint_that_is_gone_is_seen_and_its_remedies_lead_on(streamed: World, folder: str) -> None:
    tally = sweep(streamed, [(SEED, FOLDER, f"lake/seen/_odi_stream/{folder}", "deleted")], print)
    assert tally.findings == []
    assert tally.harmless == 0


@pytest.mark.parametrize("folder", ["offsets", "commits", "sources/df"])
def test_a_file_of_a_checkpoint_that_is_a_link_into_nothing_is_set_aside_as_text(streamed: World, folder: str) -> None:
    file = f"lake/seen/_odi_stream/{folder}/1"
    tally = sweep(streamed, [(SEED, "stream", file, "unreadable")], print)
    assert tally.findings == []


@pytest.mark.parametrize("file", ["_metadata/metadata", "0/left-keyToNumValues/_metadata/schema"])
@pytest.mark.parametrize("how", ["deleted", "emptied", "one byte flipped", "replaced by a folder"])
def test_no_unmatched_row_is_lost_where_the_state_of_a_join_is_not_described(
    joined: World, file: str, how: str
) -> None:
    damage = (SEED, "stream state description", f"lake/matched/_odi_stream/state/0/{file}", how)
    assert sweep(joined, [damage], print).findings == []


def test_a_stream_whose_data_files_are_lost_names_no_way_that_it_does_not_have(streamed: World) -> None:
    streamed.put_back()
    for file in deltalake.DeltaTable(streamed.root / "lake" / "seen").file_uris():
        Path(file).unlink()
    shown, kept = streamed.odi("show p.seen"), streamed.odi("tables maintain --yes")
    assert (shown.code, kept.code) == (1, 1)
    assert "a data file of the Delta table" in shown.err
    assert "odi doctor --deep" in shown.err
    assert "odi run p --node seen --full-refresh" in kept.err
    assert "odi state accept" not in kept.err, "a stream has no HWM"


def test_the_sweep_sees_a_remedy_beside_others_that_changes_nothing(
    streamed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = "odi state recover, or odi run p --node seen --full-refresh"
    monkeypatch.setattr("odi_assets.nodes.recovery.files.lost_remedy", lambda *_: remedy)
    streamed.put_back()
    file = deltalake.DeltaTable(streamed.root / "lake" / "seen").file_uris()[0]
    tally = sweep(streamed, [(SEED, "data", str(Path(file).relative_to(streamed.root)), "deleted")], print)
    (finding,) = tally.findings
    assert tally.void == [finding]
    assert "`odi state recover`, named by doctor, leaves" in finding


def test_a_log_of_an_inputs_files_with_a_gap_stops_before_spark_fills_it(streamed: World) -> None:
    streamed.put_back()
    log = streamed.root / "lake" / "seen" / "_odi_stream" / "sources" / "df"
    (log / "0").unlink()
    (log / ".0.crc").unlink()
    streamed.land()
    for command in ("plan", "run"):
        stopped = streamed.odi(command)
        assert stopped.code == 1
        assert "sources/df/0 is missing" in stopped.text
        assert not (log / "0").exists()
    repair = re.search(r"odi (tables repair \S+)", stopped.text)
    assert repair is not None
    assert streamed.odi(f"{repair[1]} --yes").code == 0
    assert streamed.odi("run p --node seen --full-refresh").code == 0
    assert streamed.wrong() == []
    assert streamed.odi("doctor").code == 0


def test_a_full_refresh_leaves_what_is_left_of_a_checkpoint_where_it_is(streamed: World) -> None:
    streamed.put_back()
    checkpoint = streamed.root / "lake" / "seen" / "_odi_stream"
    (checkpoint / "metadata").unlink()
    sick = streamed.odi("doctor")
    assert sick.code == 1
    assert "odi run p --node seen --full-refresh" in sick.out
    done = streamed.odi("run p --node seen --full-refresh")
    assert done.code == 0, done.text
    assert checkpoint.with_name("_odi_stream-2").is_dir()
    assert streamed.wrong() == []
    assert streamed.odi("doctor").code == 0


def test_a_power_cut_brings_a_file_back_whose_removal_is_not_on_the_disk(tmp_path: Path) -> None:
    removed, after = tmp_path / "log" / "removed", tmp_path / "data" / "after"
    removed.parent.mkdir()
    removed.write_text("first")
    after.parent.mkdir()
    with recorded(tmp_path) as disk:
        removed.unlink()
        write_file(after, "second")
        disk.cut(names_survive=False)
        assert (removed.read_text(), after.read_text()) == ("first", "second")
        removed.unlink()
        sync_folder(removed.parent)
        disk.cut(names_survive=False)
        assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["second"]


@pytest.mark.parametrize("kind", ["batch", "state in a file"])
@pytest.mark.parametrize("names_survive", [False, True])
def test_a_power_cut_takes_nothing_back_that_a_run_acknowledged(at: Path, kind: str, names_survive: bool) -> None:
    world = World(at, kind)
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


def test_a_torn_state_file_and_its_history_are_set_aside_and_come_back_from_the_logs_of_tables(at: Path) -> None:
    world = World(at, "state in a file")
    world.build(2)
    files = [world.root / ".odibi" / name for name in ("state.json", "state.runs.jsonl")]
    for damage in (b"", b"{\n", b"\0" * 64 + b"\n"):
        world.put_back()
        for file in files:
            file.write_bytes(damage)
        sick = world.odi("doctor")
        assert sick.code == 1
        assert "odi tables repair --system" in sick.text
        assert world.odi("tables repair --system --dry-run").code == 0
        assert files[0].read_bytes() == damage
        done = world.odi("tables repair --system --yes --json")
        assert done.code == 0, done.text
        asides = {one["what"]: Path(one["aside"]) for one in json.loads(done.out)}
        assert asides["state.json"].read_bytes() == damage
        recovered = world.odi("state recover")
        assert recovered.code == 0, recovered.text
        assert world.odi("state get p.raw").code == 0
        world.land()
        assert world.odi("run").code == 0
        assert world.wrong() == []
        assert world.odi("doctor").code == 0


@pytest.mark.parametrize("left", [None, 0, 9])
def test_a_checkpoint_of_the_newest_version_without_its_commit_is_repaired(streamed: World, left: int | None) -> None:
    streamed.put_back()
    table = deltalake.DeltaTable(streamed.root / "lake" / "seen")
    commit = streamed.root / "lake" / "seen" / "_delta_log" / f"{table.version():020d}.json"
    assert commit.with_suffix(".checkpoint.parquet").exists()
    remove(commit)
    if left is not None:
        commit.write_bytes(b'{"commitInfo"'[:left])
    sick = streamed.odi("doctor")
    assert sick.code == 1
    assert "has no commit of its version beside it" in sick.out or f"{commit.name} is" in sick.out
    done = streamed.odi("tables repair p.seen --yes")
    assert done.code == 0, done.text
    streamed.land()
    assert streamed.odi("run").code == 0
    assert streamed.wrong() == []
    assert streamed.odi("doctor --deep").code == 0
