"""Runs between changes of the project, its state, its files and its tables, against a model that reads the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.change_sweep.changes import CHANGES
from benchmarks.change_sweep.sweep import sweep

STEPS = 300


@pytest.mark.usefixtures("spark")
def test_in_300_steps_no_row_is_lost_or_repeated_in_silence_and_every_stop_leads_on(tmp_path: Path) -> None:
    tally = sweep(STEPS, tmp_path, print)
    assert tally.violations == []
    assert tally.steps >= STEPS
    assert min(tally.runs, tally.stops, tally.by_remedy.total()) > 0
    assert len(tally.by_change.keys() & CHANGES.keys()) > len(CHANGES) / 2
