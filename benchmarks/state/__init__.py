"""High-water marks and run history, ours and Odibi's: the same calls, each in an interpreter of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness import Benchmark, Options, Row, in_labs
from benchmarks.state import growth, kills, shell, writers
from benchmarks.state.lab import Lab, lab
from benchmarks.state.sizes import SIZES, Sizes

_PARTS: Mapping[str, Callable[[Lab, Sizes], Sequence[Row]]] = {
    "writers": writers.distinct_keys,
    "increments": writers.one_key,
    "json": writers.json_file,
    "commits": growth.commits,
    "history": growth.history,
    "batch": growth.batch,
    "shell": shell.whole_process,
    "kills": kills.kills,
}


def parts(sizes: Sizes) -> dict[str, Callable[[Options], list[Row]]]:
    """The parts of the benchmark at some size."""
    return in_labs(_PARTS, lab, sizes)


BENCHMARK = Benchmark(
    "state", "high-water marks and run history against Odibi: many writers, growth, batches, kills", parts(SIZES)
)
