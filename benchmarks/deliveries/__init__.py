"""Landing files with faults by the grammar of their format: no row is lost or changed in silence."""

from __future__ import annotations

from benchmarks.deliveries import report
from benchmarks.harness import Benchmark

BENCHMARK = Benchmark(
    "deliveries",
    "landing files with faults, against Python's own parsers: rows lost or changed in silence; --steps says how many",
    {"files": report.files},
    in_all=False,
)
