"""A mark ahead of the clock, of an early version or set by hand: doctor finds it, and its remedy mends it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.events import land_lines, project

pytestmark = pytest.mark.usefixtures("jvm")

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The current folder, a project whose marks may be ahead of the clock."""
    _configure(tmp_path, "max_ahead: none")
    return tmp_path


def _configure(root: Path, more: str) -> None:
    (root / "odibi.yaml").write_text(project("id BIGINT, at TIMESTAMP", "mode: append", more), encoding="utf-8")


def land(root: Path, name: str, *rows: tuple[int, timedelta]) -> None:
    lines = [f"{number},{NOW + offset:%Y-%m-%dT%H:%M:%SZ}" for number, offset in rows]
    land_lines(root, name, "id,at", *lines)


def ids(root: Path) -> list[int]:
    return sorted(DeltaTable(root / "lake" / "events").to_pyarrow_table()["id"].to_pylist())


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def follow(odi: Odi, *, expected: str) -> None:
    """Type the first command of the remedy of the one finding."""
    answer = odi("doctor", "--json")
    assert answer.code == 1
    (found,) = [one for one in json.loads(answer.out) if one["kind"] == "HWM ahead of the clock"]
    command = re.search(r"odi ((?:state rewind|run) .*?) (?:undoes|loads)", found["remedy"])
    assert command is not None, found["remedy"]
    assert command[1].startswith(expected)
    assert odi(*command[1].split(), "--yes").code == 0


def test_a_mark_that_a_run_left_ahead_is_rewound(root: Path, odi: Odi) -> None:
    land(root, "1.csv", (1, hours(-9)))
    assert odi("run").code == 0
    land(root, "2.csv", (2, hours(-8)), (9, hours(24 * 900)))
    assert odi("run").code == 0
    land(root, "3.csv", (3, hours(-7)))
    assert odi("run").code == 0
    assert ids(root) == [1, 2, 9], "the third row is below the mark"
    _configure(root, "max_ahead: 1d")
    stopped = odi("run")
    assert (stopped.code, "is ahead of now by more than 1 day" in stopped.err) == (1, True)
    land(root, "2.csv", (2, hours(-8)), (9, hours(-1)))
    follow(odi, expected="state rewind p.events --to-version")
    assert odi("run").code == 0
    assert ids(root) == [1, 2, 3, 9]
    assert odi("doctor").code == 0


def test_a_mark_that_the_first_run_left_ahead_is_loaded_over(root: Path, odi: Odi) -> None:
    land(root, "1.csv", (1, hours(-9)), (9, hours(24 * 900)))
    assert odi("run").code == 0
    _configure(root, "on_ahead: hold")
    land(root, "2.csv", (2, hours(-8)))
    follow(odi, expected="run p --node events --full-refresh")
    assert ids(root) == [1, 2]
    assert odi("run").code == 0
    assert odi("doctor").code == 0


def test_a_mark_that_somebody_set_ahead_is_put_back_to_that_of_the_table(root: Path, odi: Odi) -> None:
    _configure(root, "boundary: open")
    land(root, "1.csv", (1, hours(-9)))
    assert odi("run").code == 0
    assert odi("state", "set", "p.events", "2999-01-01T00:00:00Z", "--type", "datetime").code == 0
    land(root, "2.csv", (2, hours(-8)))
    assert odi("run").code == 1
    found = json.loads(odi("doctor", "--json").out)
    (ahead,) = [one for one in found if one["kind"] == "HWM ahead of the clock"]
    command = re.search(r"odi (state rewind .*?) undoes", ahead["remedy"])
    assert command is not None
    assert odi(*command[1].split(), "--yes").code == 0
    assert odi("run").code == 0
    assert ids(root) == [1, 2]
    assert odi("doctor").code == 0


DELTA = """
    read: {connection: lake, format: delta, path: source, incremental: {mode: stateful, column: at, MORE}}
    write: {connection: lake, path: events, mode: append}
  - {name: other, read: {connection: lake, format: delta, path: source}, write: {connection: lake, path: other}}
"""


@pytest.mark.parametrize("arguments", [[], ["--full-refresh"]], ids=" ".join)
def test_a_plan_says_that_the_run_would_stop_at_a_row_of_the_future(
    tmp_path: Path, odi: Odi, arguments: list[str]
) -> None:
    head = project("id BIGINT, at TIMESTAMP", "mode: append").partition("    read:")[0]
    text = head + DELTA.lstrip("\n")
    (tmp_path / "odibi.yaml").write_text(text.replace("MORE", "boundary: open"), encoding="utf-8")
    at = pa.array([NOW, NOW + hours(900 * 24)], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path / "lake" / "source", pa.table({"id": [1, 2], "at": at}))
    answer = odi("plan", *arguments)
    assert answer.code == 1
    assert re.search(r"p.events would stop: rows of lake:source have a `at` after .* now \+ 1 day", answer.err)
    assert "→ correct them at the source" in answer.err
    assert "1 of 2 nodes would write" in answer.err
    events, other = json.loads(odi("plan", *arguments, "--json").out)
    assert (events["action"], other["action"]) == ("error", "write")
    assert "would keep out all rows" in events["error"]
    (tmp_path / "odibi.yaml").write_text(text.replace("MORE", "on_ahead: hold"), encoding="utf-8")
    assert odi("plan", *arguments).code == 0
