"""Runs that die by SIGKILL at every point of the protocol, and what the next run makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill_sweep.points import NAIVE_POINTS, POINTS
from benchmarks.kill_sweep.scenarios import SCENARIOS, WHOLE
from benchmarks.kill_sweep.sweep import sweep, sweep_naive
from benchmarks.kill_sweep.tally import RANDOM

KILLS = 136
"""More than the first projects of all scenarios take, which are 129."""
WHOLE_SHARE = 0.04
NAIVE_KILLS = 24


def test_after_each_of_many_kills_no_row_is_lost_or_repeated_and_history_is_whole(tmp_path: Path) -> None:
    tally = sweep(KILLS, tmp_path, print, whole_share=WHOLE_SHARE)
    assert tally.verdict.others == []
    assert (tally.verdict.losses, tally.verdict.duplicates) == (0, 0)
    assert tally.kills >= KILLS
    assert tally.recoveries >= KILLS / 4
    assert set(tally.by_point) == {*(point.name for point in POINTS), RANDOM}
    assert set(tally.by_scenario) == {scenario.name for scenario in (*SCENARIOS, WHOLE)}
    assert set(tally.by_state) == {"Delta state", "JSON state"}


@pytest.mark.parametrize(
    ("order", "found"), [("write, then set the HWM", "duplicates"), ("set the HWM, then write", "losses")]
)
def test_the_same_sweep_finds_out_a_writer_without_the_protocol(order: str, found: str, tmp_path: Path) -> None:
    tally = sweep_naive(order, NAIVE_KILLS, tmp_path, print)
    assert tally.kills >= NAIVE_KILLS
    assert {"losses": tally.verdict.losses, "duplicates": tally.verdict.duplicates}[found] > 0
    assert {point.name for point in NAIVE_POINTS} <= set(tally.by_point)
