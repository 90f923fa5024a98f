"""How much is measured. The bars speak of :data:`SIZES`; smaller ones only show that every measure works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Odibi's sizes are what it bears in a minute.

    Attributes:
        few_commits, many_commits: of ours, before look-ups and sets are timed; ``odibi_commits`` of Odibi.
        few_runs, many_runs: rows of history of ours; ``odibi_few_runs`` and ``odibi_runs`` of Odibi.
        killed_writes: acknowledged writes of ours between kills; ``odibi_killed_writes`` of Odibi.
        writes_per_kill: a kill comes within so many.
        odibi_seconds: how long Odibi may go on incrementing.
    """

    rounds: int = 25
    writers: int = 8
    sets: int = 20
    json_sets: int = 50
    increments: int = 20
    odibi_seconds: float = 30.0
    few_commits: int = 50
    many_commits: int = 5_000
    odibi_commits: int = 600
    few_runs: int = 100
    many_runs: int = 10_000
    odibi_few_runs: int = 20
    odibi_runs: int = 300
    keys: int = 10_000
    batch_rounds: int = 7
    shell_rounds: int = 9
    killed_writes: int = 500
    odibi_killed_writes: int = 100
    writes_per_kill: int = 80


SIZES = Sizes()
SMALL = Sizes(
    rounds=1,
    writers=2,
    sets=3,
    json_sets=3,
    increments=3,
    odibi_seconds=1.0,
    few_commits=2,
    many_commits=4,
    odibi_commits=2,
    few_runs=20,
    many_runs=40,
    odibi_few_runs=20,
    odibi_runs=40,
    keys=20,
    batch_rounds=1,
    shell_rounds=1,
    killed_writes=10,
    odibi_killed_writes=4,
    writes_per_kill=8,
)
