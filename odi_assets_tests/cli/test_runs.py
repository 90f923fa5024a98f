"""``odi runs``. What runs leave there is in ``test_run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets.state import RunStatus
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.events import land_lines, project
from odi_assets_tests.state.test_runs_contract import run

pytestmark = pytest.mark.usefixtures("shop")


def test_no_runs_are_an_empty_list(odi: Odi) -> None:
    answer = odi("runs", "list", "--json")
    assert (answer.code, json.loads(answer.out)) == (0, [])
    assert odi("runs", "list").out == ""


@pytest.mark.parametrize("arguments", [["--node", "ordes"], ["--pipeline", "shpo"], ["--limit", "0"]])
def test_a_name_or_number_that_means_nothing_is_bad_input(odi: Odi, arguments: list[str]) -> None:
    answer = odi("runs", "list", *arguments)
    assert (answer.code, answer.out) == (2, "")


@pytest.fixture
def history(shop: Path) -> None:
    """Two runs: in the first a node failed once, in the second another one ran."""
    state = Project.load(shop / "odibi.yaml").open_state()
    metrics = {"inputs": {"df": {"files": 1}}, "target": {"version": 0}, "rows_read": 7}
    orders = run(1, run_id="aaaa-1", pipeline="shop", node="orders", hwm_after="a.csv", metrics=metrics)
    failed = run(2, run_id="aaaa-1", pipeline="shop", node="spending", status=RunStatus.FAILURE, error="no\nway")
    again = run(3, run_id="aaaa-1", pipeline="shop", node="spending", attempt=2)
    later = run(9, run_id="aaab-2", pipeline="shop", node="orders", hwm_before="a.csv", hwm_after="b.csv")
    state.record_runs([orders, failed, again, later])


def test_a_node_that_was_left_out_is_shown_with_the_reason(shop: Path, odi: Odi) -> None:
    left_out = run(1, pipeline="shop", node="orders", status=RunStatus.SKIPPED, error="resumed: nothing changed")
    Project.load(shop / "odibi.yaml").open_state().record_runs([left_out])
    assert "shop.orders\n  reason: resumed: nothing changed\n" in odi("runs", "last", "shop").out


def test_a_rewind_is_told_from_a_run(shop: Path, odi: Odi) -> None:
    back = run(1, run_id="back", pipeline="shop", node="orders", trigger="rewind")
    Project.load(shop / "odibi.yaml").open_state().record_runs([back])
    for command in (("list",), ("show", "back"), ("last", "shop")):
        assert "SUCCESS (rewind)" in odi("runs", *command).out


@pytest.mark.usefixtures("history")
def test_a_run_is_shown_in_full_by_the_beginning_of_its_id(odi: Odi) -> None:
    answer = odi("runs", "show", "aaaa")
    assert (answer.code, answer.err) == (0, "")
    head, project, *rest = answer.out.splitlines()
    assert (head.split(), project.split()) == (["run", "aaaa-1"], ["project", "sample"])
    rows = [line.split() for line in rest[2:5]]
    assert [row[2:5] for row in rows] == [
        ["orders", "1", "SUCCESS"],
        ["spending", "1", "FAILURE"],
        ["spending", "2", "SUCCESS"],
    ]
    assert "none → a.csv" in rest[2]
    assert "shop.orders, attempt 1\n  rows_read: 7\n" in answer.out
    assert "shop.spending, attempt 1\n  error: no\n    way\n" in answer.out
    told = json.loads(odi("runs", "show", "aaaa-1", "--json").out)
    assert [(row["node_name"], row["attempt"], row["error"]) for row in told] == [
        ("orders", 1, None),
        ("spending", 1, "no\nway"),
        ("spending", 2, None),
    ]


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(("prefix", "told"), [("aaa", "aaab-2, aaaa-1"), ("b", "there is no run 'b'"), ("", "aaab-2")])
def test_a_beginning_that_is_not_of_one_run_is_bad_input(odi: Odi, prefix: str, told: str) -> None:
    answer = odi("runs", "show", prefix)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


@pytest.mark.usefixtures("history")
def test_the_last_attempt_of_each_node_is_shown_whichever_run_it_was_of(odi: Odi) -> None:
    told = json.loads(odi("runs", "last", "shop", "--json").out)
    assert [(row["node_name"], row["run_id"], row["status"]) for row in told] == [
        ("spending", "aaaa-1", "SUCCESS"),
        ("orders", "aaab-2", "SUCCESS"),
    ]
    only = odi("runs", "last", "shop", "orders").out.splitlines()
    assert len(only) == 2
    assert "a.csv → b.csv" in only[1]


@pytest.mark.parametrize(("names", "code"), [(["shop"], 1), (["shop", "orders"], 1), (["shpo"], 2), (["shop", "x"], 2)])
def test_what_never_ran_is_told_from_what_does_not_exist(odi: Odi, names: list[str], code: int) -> None:
    answer = odi("runs", "last", *names)
    assert (answer.code, answer.out) == (code, "")
    assert "→" in answer.err


def test_a_pipeline_that_left_the_project_still_has_its_last_run(odi: Odi) -> None:
    Project.load().open_state().record_runs([run(1, pipeline="gone", node="a"), run(2, pipeline="gone", node="b")])
    told = json.loads(odi("runs", "last", "gone", "--json").out)
    assert [row["node_name"] for row in told] == ["b"]


@pytest.mark.slow
def test_an_hwm_is_written_the_same_by_all_commands(odi: Odi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odibi.yaml").write_text(project("id BIGINT, at TIMESTAMP", "mode: append"), encoding="utf-8")
    land_lines(tmp_path, "1.csv", "id,at", "1,2024-03-01T08:00:00Z")
    shown = "2024-03-01T08:00:00+00:00"
    assert f"none → {shown}" in odi("run").out
    for command in ("runs list", "state list", "state history p.events", "plan"):
        assert shown in odi(*command.split()).out, command
    for command in ("runs list", "plan", "run"):
        (found,) = json.loads(odi(*command.split(), "--json").out)
        assert found["hwm_after"] == shown, command
