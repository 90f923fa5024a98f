"""Runs between changes of the project, its state, its files and its tables, against a model that reads the sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.change_sweep.between import between
from benchmarks.change_sweep.changes import CHANGES
from benchmarks.change_sweep.histories import CorrectionsLife, HistoryLife
from benchmarks.change_sweep.life import Life, Step
from benchmarks.change_sweep.sweep import sweep
from benchmarks.change_sweep.zone.life import ZoneLife
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning import planner, start
from odi_assets.sources.files.loaded import arrivals

STEPS = 80
FEW_STEPS = 16
MOVED = 7000
"""A life in which a loaded file moves to a folder of another value."""

pytestmark = pytest.mark.usefixtures("spark")


def test_in_many_steps_no_row_is_lost_or_repeated_in_silence_and_every_stop_leads_on(tmp_path: Path) -> None:
    tally = sweep(STEPS, tmp_path, print)
    assert tally.violations == []
    assert tally.steps >= STEPS
    assert min(tally.runs, tally.stops, tally.by_remedy.total()) > 0
    assert len(tally.by_change.keys() & CHANGES.keys()) > len(CHANGES) / 2


@pytest.mark.parametrize(("kind", "seed"), [(HistoryLife, 2013), (CorrectionsLife, 2013)])
def test_of_tables_put_back_and_of_corrected_rows_nothing_is_lost_in_silence(
    kind: type[Life], seed: int, tmp_path: Path
) -> None:
    tally = sweep(FEW_STEPS, tmp_path, print, seed=seed, kind=kind)
    assert tally.violations == []
    assert min(tally.runs, tally.stops, tally.by_remedy.total()) > 0


def test_of_files_that_move_in_a_landing_zone_no_row_is_lost_or_repeated_in_silence(tmp_path: Path) -> None:
    """The long form is ``python -m benchmarks change-sweep --only landing``."""
    tally = sweep(ZoneLife.length, tmp_path, print, seed=MOVED, kind=ZoneLife)
    assert tally.violations == []
    assert tally.runs > 0


def test_a_life_of_a_landing_zone_finds_that_a_file_with_other_values_counts_as_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_values", lambda *_: frozenset())
    found = ZoneLife(MOVED, tmp_path / "world").live()
    assert found is not None
    assert found.kind == "silent"


def test_a_run_that_commits_between_two_looks_of_a_command_is_no_fault_of_its_table(tmp_path: Path) -> None:
    commands = [("doctor",), ("run", "p", "--node", "changes")]
    found = between(tmp_path / "world", print, commands, every=24)
    assert found.violations == []
    assert found.tried > len(commands)


FROM_THE_PAST = ("copy the state", "delete the state", "land", "run", "put an older state back")


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (19, FROM_THE_PAST),
        (19, ("land a link",)),
        (24, ("land", "land")),
        (27, ("land",)),
        (5, ("land", "land")),
    ],
)
def test_stories_in_which_rows_were_lost_or_repeated_end_well(
    seed: int, changes: tuple[str, ...], tmp_path: Path
) -> None:
    assert Life(seed, tmp_path / "world").live(story(*changes)) is None


def story(*changes: str) -> list[Step]:
    """Rows land and are loaded, something changes, and more rows land and are loaded."""
    return [Step(name, number) for number, name in enumerate(("land", "run", *changes, "land", "run"))]


def every_mark_fits(node: Node, *_: Any) -> Mapping[str, str]:
    return {name: name for name in node.following}


def nothing_is_required(*_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("seed", "change", "where", "check", "without"),
    [
        (37, "other cursor column", start, "matched", every_mark_fits),
        (19, "rename a node", planner, "require_own", nothing_is_required),
    ],
)
def test_without_the_check_of_what_an_hwm_is_of_a_life_finds_repeated_rows(
    seed: int, change: str, where: ModuleType, check: str, without: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Life(seed, tmp_path / "world").live(story(change)) is None
    monkeypatch.setattr(where, check, without)
    found = Life(seed, tmp_path / "world").live(story(change))
    assert found is not None
    assert (found.kind, found.surplus > 0) == ("silent", True)
