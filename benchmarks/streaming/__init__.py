"""What stream nodes cost: the exactly-once sink, single batches, state stores; kills, branches, damage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.exactly_once.lab import Lab, lab
from benchmarks.harness import Benchmark, Options, Row, in_labs
from benchmarks.streaming import batches, branches, damage, explain, kills, sink, stores
from benchmarks.streaming.sizes import SIZES, Sizes

_PARTS: Mapping[str, Callable[[Lab, Sizes], Sequence[Row]]] = {
    "sink": sink.sink,
    "batches": batches.batches,
    "stores": stores.stores,
    "explain": explain.explain,
}


def parts(sizes: Sizes) -> dict[str, Callable[[Options], list[Row]]]:
    """The parts of the benchmark at some size."""
    return {**in_labs(_PARTS, lab, sizes), "kills": kills.kills, "branches": branches.branches, "damage": damage.damage}


BENCHMARK = Benchmark(
    "streaming",
    "stream nodes against a plain Parquet sink and foreachBatch; RocksDB and HDFS; explain; kills; branches; damage",
    parts(SIZES),
    in_all=False,
)
