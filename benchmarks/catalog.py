"""Every benchmark there is."""

from __future__ import annotations

from benchmarks import state, write
from benchmarks.harness import Benchmark

BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in (write.BENCHMARK, state.BENCHMARK)}
