"""The sweep: one life after the other, until there were enough steps."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.change_sweep.judge import Violation
from benchmarks.change_sweep.life import Life, Step

_FINDINGS = 50
"""So many violations end a sweep: nothing works."""
_SHRUNK = 3
"""How many violations are told by the shortest list of steps that leads to them; that takes a life for each step."""
_APART_EVERY = 25
"""Every so many lives one ends with an ``odi run`` in a process of its own."""


@dataclass
class Tally:
    """Counts of one sweep."""

    steps: int = 0
    lives: int = 0
    runs: int = 0
    stops: int = 0
    by_change: Counter[str] = field(default_factory=Counter)
    by_remedy: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    @property
    def losses(self) -> int:
        """Rows that tables lack."""
        return sum(one.missing for one in self.violations)

    @property
    def repeats(self) -> int:
        """Rows that tables have too many."""
        return sum(one.surplus for one in self.violations)

    @property
    def silent(self) -> int:
        """Runs that said that all is well where it was not."""
        return sum(one.kind == "silent" for one in self.violations)

    @property
    def dead_ends(self) -> int:
        """Stops that do not lead on."""
        return len(self.violations) - self.silent

    def add(self, life: Life) -> None:
        """Take in a life."""
        self.lives += 1
        self.steps += len(life.steps)
        self.runs += life.runs
        self.stops += life.stops
        self.by_change += life.changes
        self.by_remedy += life.remedies


def sweep(
    steps: int,
    folder: Path,
    say: Callable[[str], None],
    *,
    seed: int = 2013,
    shrink: int = _SHRUNK,
    kind: type[Life] = Life,
) -> Tally:
    """Make so many steps in lives of the seeds ``seed``, ``seed`` + 1, …, in the Spark session that is active.

    Args:
        shrink: how many violations to shrink.
        kind: what may happen in a life.
    """
    tally = Tally()
    while tally.steps < steps and len(tally.violations) < _FINDINGS:
        life = kind(seed + tally.lives, folder / "world", apart=tally.lives % _APART_EVERY == _APART_EVERY - 1)
        found = life.live()
        tally.add(life)
        if found is not None:
            if len(tally.violations) < shrink:
                found = shrunk(life, found)
            tally.violations.append(found)
            say(f"  --seed {life.seed} --steps 1: {found}")
            for line in found.after:
                say(f"    {line}")
        if tally.lives % 10 == 0:
            say(f"  {tally.steps} of {steps} steps, {tally.runs} runs, {len(tally.violations)} violations")
    shutil.rmtree(folder / "world", ignore_errors=True)
    return tally


def shrunk(life: Life, found: Violation) -> Violation:
    """The same kind of violation after as few of the steps as leads to it."""
    steps: list[Step] = list(life.steps)
    for place in range(len(steps) - 1, -1, -1):
        fewer = [*steps[:place], *steps[place + 1 :]]
        shorter = type(life)(life.seed, life.folder).live(fewer)
        if shorter is not None and shorter.kind == found.kind:
            steps, found = fewer, shorter
    return found
