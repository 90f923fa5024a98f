"""Thousands of runs that die by SIGKILL at every point of the protocol, and what the next run makes of it."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.kill_sweep import report

BENCHMARK = Benchmark(
    "kill-sweep",
    "runs killed at every point of the protocol: rows lost, rows repeated; --kills says how many",
    {"protocol": report.protocol, "naive": report.naive},
    headline=report.headline,
    in_all=False,
)
