"""What stream nodes cost: the exactly-once sink, single batches, the state stores; killed runs; damaged checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.exactly_once.lab import Lab, lab
from benchmarks.harness import Benchmark, Options, Row, in_labs
from benchmarks.streaming import batches, damage, explain, kills, sink, stores
from benchmarks.streaming.sizes import SIZES, Sizes

_PARTS: Mapping[str, Callable[[Lab, Sizes], Sequence[Row]]] = {
    "sink": sink.sink,
    "batches": batches.batches,
    "stores": stores.stores,
    "explain": explain.explain,
}


def parts(sizes: Sizes) -> dict[str, Callable[[Options], list[Row]]]:
    """The parts of the benchmark at some size."""
    return {**in_labs(_PARTS, lab, sizes), "kills": kills.kills, "damage": damage.damage}


BENCHMARK = Benchmark(
    "streaming",
    "stream nodes against a plain Parquet sink and foreachBatch by hand; RocksDB against HDFS; explain; kills; damage",
    parts(SIZES),
    in_all=False,
)
