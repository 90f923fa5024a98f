"""``odi audit`` in the shell: what it prints, its exit codes, and the repair that it names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.events import land_lines, project

pytestmark = pytest.mark.usefixtures("jvm")

PROJECT = f"""{project("id BIGINT, at TIMESTAMP, v STRING", "mode: upsert, keys: [id]")}\
  - name: days
    inputs: {{events: {{node: events, incremental: version}}}}
    transform: {{sql: "SELECT id, CAST(at AS DATE) AS day, v FROM events"}}
    partition: {{column: day, every: day, start: 2024-03-01}}
    write: {{connection: lake, path: days, mode: upsert, keys: [id, day]}}
"""


@pytest.fixture
def root(tmp_path: Path, odi: Odi) -> Path:
    """The current folder, a project whose nodes have run."""
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    land(tmp_path, "1.csv", "1,2024-03-01T08:00:00Z,a", "2,2024-03-02T08:00:00Z,b", "3,2024-03-03T08:00:00Z,c")
    assert odi("run").code == 0
    return tmp_path


def land(root: Path, name: str, *lines: str) -> None:
    land_lines(root, name, "id,at,v", *lines)


@pytest.mark.usefixtures("root")
def test_a_table_that_agrees_ends_with_0(odi: Odi) -> None:
    answer = odi("audit", "events")
    assert (answer.code, answer.out) == (0, "")
    assert "Compared by day of at: id, at, v." in answer.err
    assert "All of 3 ranges agree." in answer.err
    found = json.loads(odi("audit", "p.days", "--json").out)
    assert (found["agrees"], found["by"], found["compared"]) == (True, "day of day", ["id", "v"])
    assert "the transform makes `day`: its values are not compared" in found["notes"]


def test_a_range_that_differs_ends_with_1_and_its_command_repairs_it(root: Path, odi: Odi) -> None:
    land(root, "2.csv", "4,2024-03-02T09:00:00Z,late")
    assert odi("run").code == 0
    answer = odi("audit", "events", "--by", "day")
    assert answer.code == 1
    assert answer.out.split("\n")[1].split()[:5] == ["2024-03-02", "2", "1", "1", "row"]
    assert "1 of 3 ranges differ." in answer.err
    found = json.loads(odi("audit", "events", "--json").out)
    (command,) = [one["command"] for one in found["ranges"] if not one["agrees"]]
    assert command == "odi run p --node events --from 2024-03-02 --to 2024-03-03"
    assert odi(*command.split()[1:]).code == 0
    assert odi("audit", "events").code == 0
    assert sorted(DeltaTable(root / "lake" / "events").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]


def put_back(root: Path, odi: Odi) -> None:
    """The table ``events`` is put back from a copy, and lacks the rows of a run since."""
    table, copy = root / "lake" / "events", root / "copy"
    shutil.copytree(table, copy)
    land(root, "2.csv", "4,2024-03-04T09:00:00Z,d", "5,2024-03-04T10:00:00Z,e")
    assert odi("run", "--node", "events").code == 0
    shutil.rmtree(table)
    shutil.copytree(copy, table)


def test_what_an_accepted_table_lacks_differs_and_its_command_loads_it(root: Path, odi: Odi) -> None:
    put_back(root, odi)
    assert odi("state", "accept", "events", "--yes").code == 0
    answer = odi("audit", "events")
    assert answer.code == 1, answer
    assert answer.out.split("\n")[1].split()[:5] == ["2024-03-04", "2", "0", "2", "rows"]
    (command,) = [
        one["command"] for one in json.loads(odi("audit", "events", "--json").out)["ranges"] if one["command"]
    ]
    assert odi(*command.split()[1:]).code == 0
    assert odi("audit", "events").code == 0
    assert sorted(DeltaTable(root / "lake" / "events").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_of_a_table_that_is_behind_its_state_an_audit_names_the_ways_on_as_a_run_does(root: Path, odi: Odi) -> None:
    put_back(root, odi)
    answer = odi("audit", "events")
    assert (answer.code, "odi state accept p.events" in answer.err) == (1, True), answer
    assert "agree" not in answer.err


def test_files_that_an_accepted_table_lacks_differ(tmp_path: Path, odi: Odi) -> None:
    text = PROJECT.replace("incremental: {mode: stateful, column: at}", "incremental: files")
    (tmp_path / "odibi.yaml").write_text(text, encoding="utf-8")
    land(tmp_path, "1.csv", "1,2024-03-01T08:00:00Z,a")
    assert odi("run", "--node", "events").code == 0
    put_back(tmp_path, odi)
    assert odi("state", "accept", "events", "--yes").code == 0
    answer = odi("audit", "events")
    assert (answer.code, "2 rows missing" in answer.out) == (1, True), answer
    assert "odi run p --node events --full-refresh" in answer.out


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["audit", "events", "--by", "week"], "--by week is no length of time"),
        (["audit", "nobody"], "nobody"),
    ],
)
def test_what_it_cannot_do_ends_with_2(odi: Odi, arguments: list[str], text: str) -> None:
    answer = odi(*arguments)
    assert (answer.code, text in answer.err) == (2, True), answer
