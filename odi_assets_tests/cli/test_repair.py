"""``odi state rewind``, ``recover`` and ``accept``, and ``odi doctor``, as they are used from the shell."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.history import attempts
from odi_assets.nodes.result import RunInfo
from odi_assets_tests.cli.conftest import Answer, Odi
from odi_assets_tests.nodes.planning.test_behind import NODES, drop, land
from odi_assets_tests.nodes.support import Sandbox


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    box = Sandbox(tmp_path, spark, NODES)
    for number in (1, 2):
        land(box, number)
        box.run("raw")
        box.run("copy")
    return box


def findings(answer: Answer) -> list[dict[str, Any]]:
    """What ``odi doctor --json`` found, without what it says that it did not look at."""
    return [one for one in json.loads(answer.out) if one["kind"] != "not looked at"]


@pytest.fixture
def at_home(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.chdir(box.root)
    return box


def test_a_rewind_shows_what_would_change_and_changes_it_only_when_told_to(at_home: Sandbox, odi: Odi) -> None:
    listed = json.loads(odi("state", "rewind", "p.raw", "--list", "--json").out)
    shown = [(one["version"], one["mode"], one["rows_written"]) for one in listed]
    assert shown == [(1, "append", 1), (0, "append", 1)]
    looked = odi("state", "rewind", "p.raw", "--to-version", "0", "--dry-run")
    assert looked.code == 0
    assert "1 → 0" in looked.out
    assert "2 → 1" in looked.out
    asked = odi("state", "rewind", "p.raw", "--to-version", "0")
    assert (asked.code, "no terminal" in asked.err) == (2, True)
    assert at_home.table("raw").version == 1
    done = odi("state", "rewind", "p.raw", "--before-run", listed[0]["run_id"], "--cascade", "--yes")
    assert done.code == 0, done.err
    assert "p.raw is at version 2, with the rows and the HWM of version 0." in done.err
    assert "p.copy is at version 2" in done.err
    again = odi("state", "rewind", "p.raw", "--redo", "--yes", "--json")
    assert [one["to_version"] for one in json.loads(again.out)] == [1]
    assert at_home.hwm("raw")["path"] == "2.csv"


def test_a_rewind_to_nowhere_or_to_two_places_is_bad_usage(at_home: Sandbox, odi: Odi) -> None:
    for arguments, message in (
        ((), "where to is not said"),
        (("--redo", "--to-version", "0"), "not several"),
        (("--to-version", "9"), "there is no version 9"),
        (("--to-time", "yesterday"), "is not a time"),
        (("--to-time", "0001-01-01T00:00+14:00"), "no time of the years 1 to 9999"),
        (("--to-run", ""), "which run is not said"),
    ):
        answer = odi("state", "rewind", "p.raw", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert message in answer.err
    assert odi("state", "rewind", "p.rwa", "--redo").code == 2
    assert at_home.table("raw").version == 1


def test_doctor_is_content_or_says_what_to_do_and_doing_it_helps(at_home: Sandbox, odi: Odi) -> None:
    assert odi("doctor").code == 0
    at_home.state.delete_hwm("p.copy")
    drop(at_home)
    sick = odi("doctor", "--json")
    assert sick.code == 1
    assert {one["kind"] for one in findings(sick)} == {"table behind its state"}
    assert "odi state accept p.raw" in odi("doctor", "p").out
    refused = odi("state", "accept", "p.raw")
    assert (refused.code, "2.csv" in refused.err) == (2, True)
    assert odi("state", "accept", "p.raw", "--yes").code == 0
    assert odi("doctor").code == 0
    assert odi("state", "accept", "p.copy", "--yes").code == 2


def test_recover_brings_lost_state_back_from_the_tables_logs(at_home: Sandbox, odi: Odi) -> None:
    lost = at_home.root / "lake" / "system"
    lost.rename(at_home.root / "lost")
    assert odi("doctor").code == 1
    assert json.loads(odi("state", "recover", "--dry-run", "--json").out)[0]["hwm_after"] == "2.csv"
    assert not lost.joinpath("meta_state").exists()
    done = odi("state", "recover")
    assert (done.code, "2 HWMs recovered" in done.err) == (0, True)
    assert at_home.project.open_state().get_hwm("p.raw")["path"] == "2.csv"
    assert "State has what" in odi("state", "recover", "p.raw").err


def test_recover_says_of_which_table_state_is_ahead(at_home: Sandbox, odi: Odi) -> None:
    table = at_home.root / "lake" / "raw"
    assert table.exists()
    shutil.rmtree(table)
    answer = odi("state", "recover")
    assert answer.code == 0
    assert "p.raw: state is ahead of its table, which does not exist" in answer.err
    assert "State has what" not in answer.err


def test_recover_gives_every_commit_its_row_of_history_and_doctor_is_content(
    at_home: Sandbox, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(at_home.root / "lake" / "system" / "meta_runs")
    sick = odi("doctor", "--json")
    assert {one["kind"] for one in findings(sick)} == {"run without a row of history"}
    assert "until then its run may yet write it" in sick.out
    assert odi("state", "recover", "--json").out.strip() == "[]"
    monkeypatch.setattr("odi_assets.orchestration.runs.reconcile.GRACE", timedelta(0))
    shown = json.loads(odi("state", "recover", "p.raw", "--dry-run", "--json").out)
    assert [(one["node"], one["table_version"], one["status"]) for one in shown] == [
        ("raw", 0, "SUCCESS"),
        ("raw", 1, "SUCCESS"),
    ]
    done = odi("state", "recover")
    assert (done.code, "4 rows of run history recovered." in done.err) == (0, True)
    assert odi("doctor").code == 0
    assert "so has the run history" in odi("state", "recover").err


def test_an_attempt_that_was_killed_before_its_commit_is_found_and_gets_its_row(at_home: Sandbox, odi: Odi) -> None:
    attempts.begin(at_home.project, NodeKey("p", "raw"), RunInfo("killed"))
    assert odi("doctor").code == 0
    (note,) = (at_home.root / attempts.FOLDER).glob("*.json")
    note.write_text(note.read_text().replace(f"/{os.getpid()}/", "/0/"))
    assert "run killed was killed, attempt 1" in odi("doctor").out
    (row,) = json.loads(odi("state", "recover", "--json").out)
    assert (row["run_id"], row["status"]) == ("killed", "LOST")
    assert odi("doctor").code == 0


def test_a_table_that_cannot_be_read_is_told_on_one_line_and_the_others_recover(
    at_home: Sandbox, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    at_home.root.joinpath("lake", "raw", "_delta_log", f"{1:020d}.json").write_text("{")
    shutil.rmtree(at_home.root / "lake" / "system")
    found = {one["node"]: one for one in json.loads(odi("doctor", "--json").out)}
    assert found["raw"]["kind"] == "cannot be looked at"
    assert "\n" not in found["raw"]["message"]
    recovered = odi("state", "recover", "--json")
    assert (recovered.code, "p.raw was left out" in recovered.err) == (1, True)
    assert [one["node"] for one in json.loads(recovered.out)] == ["copy"]


def test_maintenance_leaves_nothing_for_the_doctor(at_home: Sandbox, odi: Odi) -> None:
    assert odi("tables", "maintain", "--yes").code == 0
    assert at_home.table("raw").version == 2
    assert odi("doctor").code == 0


def test_versions_of_a_table_that_is_not_there_are_none_and_it_says_what_to_do(at_home: Sandbox, odi: Odi) -> None:
    drop(at_home)
    listed = odi("state", "rewind", "p.raw", "--list", "--json")
    assert (listed.code, listed.out.strip()) == (0, "[]")
    assert "odi run p --node raw --full-refresh" in listed.err


def test_a_renamed_node_stops_and_adopt_shows_what_it_takes_over_before_it_does(at_home: Sandbox, odi: Odi) -> None:
    file = at_home.root / "odibi.yaml"
    file.write_text(file.read_text().replace("name: copy", "name: copy2"))
    run = odi("run", "--node", "copy2")
    assert run.code == 1
    assert "was written by p.copy of project test" in run.err
    assert "odi state adopt p.copy2" in run.err
    (found,) = findings(odi("doctor", "--json"))
    assert (found["node"], "odi state adopt p.copy2" in found["remedy"]) == ("copy2", True)
    looked = odi("state", "adopt", "copy2", "--dry-run", "--json")
    (shown,) = json.loads(looked.out)
    assert (shown["hwm_before"], shown["hwm_after"]) == ("raw version 1", "raw version 1")
    asked = odi("state", "adopt", "p.copy2")
    assert (asked.code, "no terminal" in asked.err) == (2, True)
    strange = odi("state", "adopt", "copy3")
    assert (strange.code, "there is no node named `copy3`" in strange.err) == (2, True)
    done = odi("state", "adopt", "p", "--yes")
    assert done.code == 0, done.err
    assert "p.raw: nothing to adopt" in done.err
    assert "p.copy2: adopted." in done.err
    assert odi("doctor").code == 0
    land(at_home, 3)
    assert odi("run").code == 0
    assert sorted(DeltaTable(at_home.root / "lake/copy").to_pyarrow_dataset().to_table()["id"].to_pylist()) == [1, 2, 3]


def test_no_command_of_a_node_whose_path_leads_to_the_table_of_another_one_touches_that(
    at_home: Sandbox, odi: Odi
) -> None:
    file = at_home.root / "odibi.yaml"
    was = file.read_text().replace("path: raw, mode: append", "path: raw, mode: overwrite")
    file.write_text(was)
    assert odi("run", "--node", "raw", "--full-refresh", "--yes").code == 0
    file.write_text(was.replace("path: copy", "path: elsewhere").replace("path: raw, mode", "path: copy, mode"))
    table = DeltaTable(at_home.root / "lake/copy")
    (found,) = [one for one in findings(odi("doctor", "--json")) if one["node"] == "raw"]
    assert "was written by p.copy" in found["message"]
    commands = ("plan", "run --node raw", "state rewind p.raw --list", "state rewind p.raw --to-version 0 --yes")
    for command in (*commands, "state accept p.raw --yes"):
        answer = odi(*command.split())
        assert answer.code == 1, command
        assert "was written by p.copy of project test" in answer.err + answer.out, command
        assert "if `write.path` was edited, put it back" in answer.err + answer.out, command
    assert DeltaTable(at_home.root / "lake/copy").version() == table.version()
    file.write_text(was)
    assert odi("run").code == 0


def test_of_several_nodes_none_is_adopted_if_one_cannot_be(at_home: Sandbox, odi: Odi) -> None:
    land(at_home, 3)
    assert odi("run", "--node", "raw").code == 0
    file = at_home.root / "odibi.yaml"
    text = file.read_text()
    assert "{mode: version}" in text
    file.write_text(text.replace("{mode: version}", "{mode: stateful, column: id}"))
    refused = odi("state", "adopt", "p", "--yes")
    assert refused.code == 1
    assert "not all of p.raw is loaded" in refused.err
    assert "None of the 2 nodes was adopted" in refused.err


def test_an_hwm_that_is_set_by_hand_is_one_of_the_definition_of_then(at_home: Sandbox, odi: Odi) -> None:
    assert odi("state", "set", "p.raw", '{"mtime_ns": 0, "path": ""}').code == 0
    file = at_home.root / "odibi.yaml"
    file.write_text(file.read_text().replace('path: "*.csv"', 'path: "other/*.csv"'))
    run = odi("run", "--node", "raw")
    assert (run.code, "odi state adopt p.raw" in run.err) == (1, True)
    assert odi("state", "set", "p.raw", '{"mtime_ns": 0, "path": ""}').code == 0
    assert odi("run", "--node", "raw").code == 0
