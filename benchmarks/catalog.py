"""Every benchmark there is."""

from __future__ import annotations

from benchmarks import change_sweep, exactly_once, kill_sweep, state, streaming, write
from benchmarks.harness import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        write.BENCHMARK,
        state.BENCHMARK,
        exactly_once.BENCHMARK,
        kill_sweep.BENCHMARK,
        change_sweep.BENCHMARK,
        streaming.BENCHMARK,
    )
}
