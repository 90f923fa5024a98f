"""Partitions of nodes: each length, column type, write mode and time zone, across changes of the clock; and values."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.partitions import edited, modes, sweep, value_sweep

BENCHMARK = Benchmark(
    "partitions",
    "backfills of single partitions beside increments, of times across changes of the clock, of values, and of both: "
    "rows lost, repeated, or in another partition; and parts that are run under an edit, or in another write mode than "
    "the next increment; --steps says how many tables of each",
    {"backfills": sweep.backfills, "values": value_sweep.backfills, "edits": edited.edits, "modes": modes.modes},
    in_all=False,
)
