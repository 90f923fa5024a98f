"""Captures of a database's log: hand-overs from snapshots to the log under writers, and what a change costs."""

from __future__ import annotations

from benchmarks.capture.apply import apply
from benchmarks.capture.changes.sweep import changes, mariadb_changes, mysql_changes
from benchmarks.capture.handover import handovers, mariadb_handovers, mysql_handovers
from benchmarks.capture.held import held
from benchmarks.capture.kills import kills, mariadb_kills, mysql_kills
from benchmarks.capture.memory import memory
from benchmarks.capture.peer_kills import peer_kills
from benchmarks.capture.rates import mariadb_rates, rates
from benchmarks.harness import Benchmark

BENCHMARK = Benchmark(
    "capture",
    "snapshots and log put together under writers, compared with the database; changes per CPU second",
    {
        "handovers": handovers,
        "rates": rates,
        "changes": changes,
        "kills": kills,
        "peer-kills": peer_kills,
        "held": held,
        "apply": apply,
        "memory": memory,
        "mariadb-handovers": mariadb_handovers,
        "mariadb-changes": mariadb_changes,
        "mariadb-kills": mariadb_kills,
        "mysql-changes": mysql_changes,
        "mysql-handovers": mysql_handovers,
        "mysql-kills": mysql_kills,
        "mariadb-rates": mariadb_rates,
    },
)
