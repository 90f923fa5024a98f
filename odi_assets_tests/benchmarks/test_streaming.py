"""The benchmark of streams, small: every part measures."""

from __future__ import annotations

import pytest

from benchmarks.harness import Options
from benchmarks.streaming import parts
from benchmarks.streaming.sizes import SMALL

PARTS = parts(SMALL)


@pytest.mark.parametrize("name", [name for name in PARTS if name != "kills"])
@pytest.mark.usefixtures("spark")
def test_every_part_measures(name: str) -> None:
    rows = PARTS[name](Options(say=print))
    assert rows
    assert all(row.ours >= 0 for row in rows)
