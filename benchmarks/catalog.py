"""Every benchmark there is."""

from __future__ import annotations

from benchmarks import (
    capture,
    change_sweep,
    cursors,
    dagster,
    damage,
    deliveries,
    exactly_once,
    frames,
    kill_sweep,
    partitions,
    reading,
    snapshots,
    start,
    state,
    streaming,
    write,
)
from benchmarks.harness import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        write.BENCHMARK,
        start.BENCHMARK,
        state.BENCHMARK,
        cursors.BENCHMARK,
        capture.BENCHMARK,
        exactly_once.BENCHMARK,
        kill_sweep.BENCHMARK,
        change_sweep.BENCHMARK,
        deliveries.BENCHMARK,
        damage.BENCHMARK,
        reading.BENCHMARK,
        frames.BENCHMARK,
        partitions.BENCHMARK,
        snapshots.BENCHMARK,
        dagster.BENCHMARK,
        streaming.BENCHMARK,
    )
}
