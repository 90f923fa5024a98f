"""``python -m benchmarks start``: whole commands from the shell, beside a bare PySpark script and beside themselves."""

from __future__ import annotations

from benchmarks.harness import Benchmark, in_labs
from benchmarks.start.lab import StartLab
from benchmarks.start.measures import FULL, MEASURES

BENCHMARK = Benchmark(
    "start",
    "whole commands: `odi run` with one new row, 143 MB of CSV, nothing new; the first command; processes left",
    in_labs(MEASURES, StartLab.opened, FULL),
)
