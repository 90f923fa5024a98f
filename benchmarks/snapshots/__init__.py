"""Snapshots of real PostgreSQL and MariaDB tables: their speed, and what kills in the middle of them leave."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.snapshots.kills import kills
from benchmarks.snapshots.read import read

BENCHMARK = Benchmark(
    "snapshots",
    "tables of databases read in chunks, against one partitioned JDBC read; and runs of them that are killed",
    {"read": read, "kills": kills},
    in_all=False,
)
