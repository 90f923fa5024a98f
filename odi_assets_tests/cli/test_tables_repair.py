"""``odi tables repair``: what a power cut tears of a log is named by every command, and one command leads on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.planning.test_behind import NODES, land
from odi_assets_tests.nodes.support import Sandbox

LOOKS = (
    "run", "plan", "doctor", "show p.raw", "state rewind p.raw --list", "state recover", "tables maintain --yes",
    "explain p.raw --key id=1",
)  # fmt: skip


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    box = Sandbox(tmp_path, spark, NODES)
    for number in (1, 2):
        land(box, number)
        box.run("raw")
        box.run("copy")
    monkeypatch.chdir(tmp_path)
    return box


def log(box: Sandbox, table: str, version: int) -> Path:
    return box.root / "lake" / table / "_delta_log" / f"{version:020d}.json"


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def fill_with_zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def make_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


TEARS: tuple[Callable[[Path], None], ...] = (halve, empty, fill_with_zeros, make_a_folder)


def ids(box: Sandbox, table: str) -> list[int]:
    return sorted(row[0] for row in box.rows(table))


def named_repair(text: str) -> list[str]:
    """The arguments of the command that a message names, as a shell would take them."""
    found = re.search(r"odi (tables repair [^`\s]+)", text)
    assert found is not None, text
    return shlex.split(found[1])


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_last_commit_is_named_by_every_command_and_one_command_leads_to_right_rows(
    box: Sandbox, odi: Odi, tear: Callable[[Path], None]
) -> None:
    tear(log(box, "raw", 1))
    for command in LOOKS:
        answer = odi(*command.split())
        assert answer.code == 1, (command, answer)
        assert "Traceback" not in answer.err
        assert "this is a bug" not in answer.err
        assert "odi tables repair" in answer.err + answer.out, (command, answer)
    (found,) = (one for one in json.loads(odi("doctor", "--json").out) if one["node"] == "raw")
    command = named_repair(found["remedy"])
    before = sorted(path for path in box.root.rglob("*"))
    shown = json.loads(odi(*command, "--dry-run", "--json").out)
    assert [one["version"] for one in shown] == [0]
    assert sorted(path for path in box.root.rglob("*")) == before
    done = odi(*command, "--yes", "--json")
    assert done.code == 0, done.err
    (repaired,) = json.loads(done.out)
    assert Path(repaired["aside"], "_delta_log", log(box, "raw", 1).name).exists()
    assert odi("run", "p", "--node", "raw").code == 0
    assert ids(box, "raw") == [1, 2]
    # The node below had read the rows of the torn commit; it stops, and its remedy is followed.
    assert odi("run", "p", "--node", "copy", "--full-refresh").code == 0
    assert ids(box, "copy") == [1, 2]
    assert odi("doctor").code == 0


def test_an_empty_commit_between_others_is_no_loss_in_silence(box: Sandbox, odi: Odi) -> None:
    empty(log(box, "raw", 0))
    answer = odi("show", "p.raw")
    assert (answer.code, "is empty" in answer.err) == (1, True)
    done = odi("tables", "repair", "p.raw", "--yes")
    assert "odi run p --node raw --full-refresh" in done.err
    assert odi("run", "p", "--full-refresh").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2]
    assert odi("doctor").code == 0


@pytest.mark.parametrize(("tear", "file"), cases(TEARS, ["_last_checkpoint", "checkpoint"], together=1))
def test_a_torn_checkpoint_is_set_aside_and_the_commits_tell_the_table(
    box: Sandbox, odi: Odi, file: str, tear: Callable[[Path], None]
) -> None:
    DeltaTable(box.root / "lake" / "raw").create_checkpoint()
    folder = box.root / "lake" / "raw" / "_delta_log"
    (torn,) = folder.glob("*.checkpoint.parquet" if file == "checkpoint" else file)
    tear(torn)
    assert odi("doctor").code == 1
    assert odi("tables", "repair", "p.raw", "--yes").code == 0
    assert odi("doctor").code == 0
    land(box, 3)
    assert odi("run").code == 0
    assert ids(box, "copy") == [1, 2, 3]


def test_a_checkpoint_whose_commit_is_gone_is_found_before_nothing_can_be_written(box: Sandbox, odi: Odi) -> None:
    DeltaTable(box.root / "lake" / "raw").create_checkpoint()
    log(box, "raw", 1).unlink()
    sick = odi("doctor")
    assert (sick.code, "has no commit of its version" in sick.out) == (1, True)
    assert odi("tables", "repair", "p.raw", "--yes").code == 0
    assert odi("run", "p", "--node", "raw").code == 0
    assert odi("run", "p", "--node", "copy", "--full-refresh").code == 0
    land(box, 3)
    assert odi("run").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2, 3]
    assert odi("doctor").code == 0


def test_a_table_of_which_no_version_can_be_known_is_set_aside_whole_and_built_again(box: Sandbox, odi: Odi) -> None:
    table = DeltaTable(box.root / "lake" / "raw")
    table.create_checkpoint()
    for file in (log(box, "raw", 0), log(box, "raw", 1)):
        file.unlink()
    (checkpoint,) = (box.root / "lake" / "raw" / "_delta_log").glob("*.checkpoint.parquet")
    halve(checkpoint)
    assert "odi tables repair" in odi("run").err
    done = json.loads(odi("tables", "repair", "p.raw", "--yes", "--json").out)
    assert [one["version"] for one in done] == [None]
    assert odi("run", "p", "--full-refresh").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2]
    assert odi("doctor").code == 0


@pytest.mark.parametrize(("tear", "table"), cases(TEARS, ["meta_state", "meta_runs"], together=1))
def test_a_torn_system_table_is_named_and_repaired_and_state_comes_back_from_the_tables_logs(
    box: Sandbox, odi: Odi, table: str, tear: Callable[[Path], None]
) -> None:
    folder = box.root / "lake" / "system" / table / "_delta_log"
    tear(max(folder.glob("*.json")))
    for command in ("state list", "doctor", "run") if table == "meta_state" else ("runs list", "doctor"):
        answer = odi(*command.split())
        assert answer.code == 1, (command, answer)
        assert "odi tables repair --system" in answer.err + answer.out, (command, answer)
    assert odi("tables", "repair", "--system", "--yes").code == 0
    assert odi("state", "recover").code == 0
    land(box, 3)
    assert odi("run").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2, 3]


@pytest.mark.parametrize("table", ["raw", "meta_state"])
def test_a_write_that_a_checkpoint_without_its_commit_refuses_says_so_and_the_named_ways_lead_on(
    box: Sandbox, odi: Odi, table: str
) -> None:
    """Such a table can be read, and takes no further commit."""
    place = box.root / "lake" / ("system/meta_state" if table == "meta_state" else table)
    DeltaTable(place).create_checkpoint()
    max((place / "_delta_log").glob("*.json")).unlink()
    land(box, 3)
    refused = odi("run")
    assert (refused.code, "has no commit of its version beside it" in refused.err) == (1, True)
    ways = [finding["remedy"] for finding in json.loads(odi("doctor", "--json").out) if finding["remedy"]]
    behind = "odi tables repair --system, and then odi state recover"
    assert [way for way in ways if "state recover" in way and way != behind] == []
    repair = shlex.split(re.findall(r"`odi (tables repair [^`]+)`", refused.err)[0])
    assert odi(*repair, "--yes").code == 0
    assert odi(*(["state", "recover"] if table == "meta_state" else ["run", "p", "--full-refresh"])).code == 0
    assert odi("run").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2, 3]
    assert odi("doctor").code == 0


def test_a_data_file_of_a_system_table_that_was_cut_is_set_aside_and_state_comes_back(box: Sandbox, odi: Odi) -> None:
    for file in (box.root / "lake" / "system" / "meta_state").glob("*.parquet"):
        halve(file)
    assert odi("doctor").code == 1
    (done,) = json.loads(odi("tables", "repair", "--system", "--yes", "--json").out)
    assert (done["what"], done["next"]) == ("meta_state", "odi state recover")
    assert all(Path(done["aside"], name).exists() for name in done["moved"])
    assert odi("state", "recover").code == 0
    assert box.hwm("raw")["path"] == "2.csv"
    land(box, 3)
    assert odi("run").code == 0
    assert ids(box, "copy") == [1, 2, 3]
    assert odi("doctor").code == 0


def test_an_empty_log_beside_data_files_is_damage_and_never_nothing_loaded(box: Sandbox, odi: Odi) -> None:
    for file in (box.root / "lake" / "raw" / "_delta_log").iterdir():
        file.unlink()
    shutil.rmtree(box.root / "lake" / "system")
    for command in ("show p.raw", "doctor"):
        answer = odi(*command.split())
        assert answer.code == 1, (command, answer)
        assert "no version" in answer.err + answer.out
    assert odi("tables", "repair", "p.raw", "--yes").code == 0
    assert odi("run", "p", "--full-refresh").code == 0
    assert ids(box, "raw") == [1, 2]


def test_a_log_that_is_whole_is_left_alone(box: Sandbox, odi: Odi) -> None:
    answer = odi("tables", "repair", "--yes")
    assert (answer.code, "Nothing is torn" in answer.err) == (0, True)
    assert not list(box.root.rglob("_odi_aside"))
    assert odi("tables", "repair", "p.raw", "--system").code == 2
