"""Snapshots of real PostgreSQL and MariaDB tables: their speed, and what kills in the middle of them leave."""

from __future__ import annotations

from benchmarks.harness import Benchmark
from benchmarks.snapshots.read import read

BENCHMARK = Benchmark(
    "snapshots",
    "a table of a database read in chunks, against one partitioned JDBC read",
    {"read": read},
)
