"""Dagster: definitions, ticks of the sensor, runs of a few nodes of many, the IO manager; and a soak."""

from __future__ import annotations

from benchmarks.dagster import connect, deployed_soak, lineage, measures, soak
from benchmarks.harness import Benchmark

BENCHMARK = Benchmark(
    "dagster",
    "definitions, sensor ticks, runs of due nodes, the IO manager and column lineage, against plain Dagster, "
    "dagster-deltalake and sqlglot; and minutes of sensors, a schedule, backfills, killed and cancelled runs at once",
    {
        "definitions": measures.definitions,
        "project-file": measures.project_file,
        "tick": measures.tick,
        "run": measures.run_of_a_few,
        "io-manager": measures.io_manager,
        "lineage": lineage.lineage,
        "connect": connect.connect,
        "soak": soak.soak,
        "deployed": deployed_soak.deployed,
    },
)
