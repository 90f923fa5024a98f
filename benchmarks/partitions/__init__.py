"""Partitions of nodes: each length, column type, write mode and time zone, across changes of the clock; and values."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.partitions import edited, sweep, value_sweep

BENCHMARK = Benchmark(
    "partitions",
    "backfills of single partitions beside increments, of times across changes of the clock, of values, and of both: "
    "rows lost, repeated, or in another partition; and parts that are run under an edit; --steps says how many tables "
    "of each",
    {"backfills": sweep.backfills, "values": value_sweep.backfills, "edits": edited.edits},
    in_all=False,
)
