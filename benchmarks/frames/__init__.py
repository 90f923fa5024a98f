"""Assets beside nodes whose process is killed between commit and report: no row twice, none lost."""

from __future__ import annotations

from benchmarks.frames import kills
from benchmarks.harness import Benchmark

BENCHMARK = Benchmark(
    "frames",
    "frames of assets, killed after their commit and tried again in other processes, many commits later",
    {"kills": kills.rows},
)
