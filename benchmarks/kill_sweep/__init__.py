"""Thousands of runs that die by SIGKILL at every point of the protocol, and what the next run makes of it."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.kill_sweep.report import headline, naive, protocol

BENCHMARK = Benchmark(
    "kill-sweep",
    "runs killed at every point of the protocol: rows lost, rows repeated; --kills says how many",
    {"protocol": protocol, "naive": naive},
    headline=headline,
    in_all=False,
)
