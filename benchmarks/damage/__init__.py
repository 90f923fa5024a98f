"""Files that a power cut, a disk or a hand damages: doctor sees it, no command breaks down, each stop has a way on."""

from __future__ import annotations

from benchmarks.damage import report
from benchmarks.harness import Benchmark

BENCHMARK = Benchmark(
    "damage",
    "damage of any file x commands: what doctor does not see, breakdowns, dead ends; --steps says how many files",
    {"files": report.files, "power-cut": report.power_cut, "fsync": report.fsync},
    in_all=False,
)
