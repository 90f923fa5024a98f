"""The benchmark of state, small and without its peer: every part measures, and what needs no peer holds."""

from __future__ import annotations

import pytest

from benchmarks.harness import Options
from benchmarks.state import parts
from benchmarks.state.sizes import SMALL

PARTS = parts(SMALL)


@pytest.mark.parametrize("name", PARTS)
def test_every_part_measures_ours_and_loses_nothing(name: str) -> None:
    rows = PARTS[name](Options(say=print, peers=False))
    assert rows
    # What is counted holds at any size; what is timed says nothing at this one.
    assert [row for row in rows if isinstance(row.ours, int) and not row.holds] == []
