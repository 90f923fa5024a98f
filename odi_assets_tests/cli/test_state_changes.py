"""``odi state history | reset | delete``."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets.state import StateBackend
from odi_assets_tests.cli.conftest import Odi

KEY = "shop.orders"


@pytest.fixture
def state(shop: Path) -> StateBackend:
    """Two revisions of one key, and another key."""
    state = Project.load(shop / "odibi.yaml").open_state()
    state.set_hwm(KEY, date(2013, 1, 30), target_commit=0, run_id="11111111-aaaa")
    state.set_hwm(KEY, date(2013, 1, 31), target_commit=1, run_id="22222222-bbbb")
    state.set_hwm("shop.spending", 7)
    return state


@pytest.mark.usefixtures("state")
def test_history_tells_what_a_mark_was_since_when_and_by_which_run(odi: Odi) -> None:
    odi("state", "delete", KEY, "--yes")
    lines = [line.split() for line in odi("state", "history", KEY).out.splitlines()]
    assert [line[:2] for line in lines] == [
        ["revision", "HWM"],
        ["3", "deleted"],
        ["2", "2013-01-31"],
        ["1", "2013-01-30"],
    ]
    assert [line[-1] for line in lines[2:]] == ["22222222", "11111111"]
    found = json.loads(odi("state", "history", KEY, "--json").out)
    assert [(entry["revision"], entry["value"], entry["deleted"]) for entry in found] == [
        (3, None, True),
        (2, "2013-01-31", False),
        (1, "2013-01-30", False),
    ]


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("command", [["history"], ["delete", "--yes"], ["reset", "--to-nothing", "--yes"]])
def test_a_key_that_does_not_exist_is_told_with_the_nearest(odi: Odi, command: list[str]) -> None:
    answer = odi("state", command[0], "shop.ordres", *command[1:])
    assert (answer.code, answer.out) == (2, "")
    assert "did you mean shop.orders?" in answer.err


def test_deleting_a_key_says_what_follows_and_touches_no_other(state: StateBackend, odi: Odi) -> None:
    answer = odi("state", "delete", KEY, "--yes")
    assert (answer.code, answer.out) == (0, "")
    assert (
        "The next run of shop.orders reads everything, and replaces its table; it stops first if that loses rows."
        in answer.err
    )
    assert "2013-01-31 → deleted" in answer.err
    assert [entry.key for entry in state.list_hwms()] == ["shop.spending"]
    assert odi("state", "delete", KEY, "--yes").code == 1


@pytest.mark.parametrize("command", [["delete"], ["reset", "--to-nothing"], ["reset", "--to-revision", "1"]])
def test_without_yes_and_a_terminal_nothing_is_done(state: StateBackend, odi: Odi, command: list[str]) -> None:
    answer = odi("state", command[0], KEY, *command[1:])
    assert answer.code == 2
    assert "nothing was changed" in answer.err
    assert "--yes" in answer.err
    dry = odi("state", command[0], KEY, *command[1:], "--dry-run")
    assert (dry.code, dry.out) == (0, "")
    assert "The next run of shop.orders reads" in dry.err
    assert state.history(KEY)[0].revision == 2


def test_a_reset_goes_back_to_a_revision_with_the_commit_it_belongs_to(state: StateBackend, odi: Odi) -> None:
    answer = odi("state", "reset", KEY, "--to-revision", "1", "--yes")
    assert answer.code == 0
    assert "2013-01-31 → 2013-01-30" in answer.err
    assert "will be there twice" in answer.err
    assert "odi state rewind shop.orders" in answer.err
    entry = state.get_entry(KEY)
    assert entry is not None
    assert (entry.value, entry.target_commit, entry.revision) == (date(2013, 1, 30), 0, 3)


def test_a_reset_takes_a_value_in_the_type_of_the_present_one(state: StateBackend, odi: Odi) -> None:
    assert odi("state", "reset", KEY, "--value", "2012-12-31", "--yes").code == 0
    assert state.get_hwm(KEY) == date(2012, 12, 31)
    assert odi("state", "reset", KEY, "--value", "5", "--type", "int", "--yes").code == 0
    assert state.get_hwm(KEY) == 5


def test_a_reset_to_nothing_leaves_a_key_without_a_value(state: StateBackend, odi: Odi) -> None:
    assert odi("state", "reset", KEY, "--to-nothing", "--yes").code == 0
    entry = state.get_entry(KEY)
    assert entry is not None
    assert (entry.value, entry.revision) == (None, 3)
    assert odi("state", "get", KEY).out == "null\n"


def test_a_deleted_mark_can_be_brought_back(state: StateBackend, odi: Odi) -> None:
    odi("state", "delete", KEY, "--yes")
    assert odi("state", "reset", KEY, "--to-revision", "2", "--yes").code == 0
    assert state.get_hwm(KEY) == date(2013, 1, 31)
    assert odi("state", "reset", KEY, "--to-revision", "3", "--yes").code == 0
    assert state.get_entry(KEY) is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--to-nothing", "--to-revision", "1"],
        ["--type", "int", "--to-nothing"],
        ["--to-revision", "9"],
        ["--value", "yesterday"],
    ],
)
def test_a_reset_to_nowhere_is_bad_input(state: StateBackend, odi: Odi, arguments: list[str]) -> None:
    answer = odi("state", "reset", KEY, *arguments, "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert "→" in answer.err
    assert state.history(KEY)[0].revision == 2
