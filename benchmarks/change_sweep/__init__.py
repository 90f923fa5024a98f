"""Runs between changes of names, places, cursors, modes, state, files and tables: nothing is lost in silence."""

from __future__ import annotations

from benchmarks.change_sweep import report
from benchmarks.harness import Benchmark

BENCHMARK = Benchmark(
    "change-sweep",
    "runs between changes of project, state, files and tables: rows lost, rows repeated; --steps says how many",
    {
        "changes": report.changes,
        "histories": report.histories,
        "corrections": report.corrections,
        "landing": report.landing,
        "patterns": report.patterns,
        "between": report.between,
    },
    headline=report.headline,
    in_all=False,
)
