"""Partitions of nodes: each length, column type, write mode and time zone, across changes of the clock."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.partitions import sweep

BENCHMARK = Benchmark(
    "partitions",
    "backfills of single partitions beside increments, across changes of the clock: rows lost, repeated, or in another "
    "partition; --steps says how many tables",
    {"backfills": sweep.backfills},
    in_all=False,
)
