"""Edits of how rows are read and known, between runs: no row is lost or repeated in silence."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.reading import report

BENCHMARK = Benchmark(
    "reading",
    "edits of each key of read, incremental, transform and write between runs: rows lost or repeated in silence, stops "
    "that lead nowhere; --steps says how many",
    {"edits": report.edits, "cursors": report.cursors, "pairs": report.pairs, "places": report.places},
    in_all=False,
)
