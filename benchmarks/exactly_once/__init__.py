"""What exactly-once costs: nodes run with the whole protocol, against writers that promise less or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.exactly_once import append, checks, growth, late, memory, planning, streaming, upsert
from benchmarks.exactly_once.lab import Lab, lab
from benchmarks.exactly_once.sizes import SIZES, Sizes
from benchmarks.harness import Benchmark, Options, Row, in_labs

_PARTS: Mapping[str, Callable[[Lab, Sizes], Sequence[Row]]] = {
    "append": append.append,
    "checks": checks.checks,
    "memory": memory.memory,
    "growth": growth.growth,
    "late": late.late,
    "streaming": streaming.increments,
    "upsert": upsert.upsert,
    "planning": planning.planning,
}


def parts(sizes: Sizes) -> dict[str, Callable[[Options], list[Row]]]:
    """The parts of the benchmark at some size."""
    return in_labs(_PARTS, lab, sizes)


BENCHMARK = Benchmark(
    "exactly-once",
    "nodes with the whole protocol against plain Parquet, Structured Streaming and a merge by hand; growth, planning",
    parts(SIZES),
)
