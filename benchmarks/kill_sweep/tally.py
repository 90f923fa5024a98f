"""What a sweep has done and found, shared by its lanes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from benchmarks.kill_sweep.check import Verdict
from benchmarks.kill_sweep.points import Point
from benchmarks.kill_sweep.scenarios import Scenario

RANDOM = "random moment"
_RANDOM_SHARE = 0.25
_DONE_ENOUGH = 200

_AT_MOST = 2
"""How many times the wanted kills a sweep makes while a point or a scenario is unreached."""
_FINDINGS = 50
"""So many findings that are no lost or repeated row end a sweep: its runs do not come so far as to be killed."""


@dataclass
class Tally:
    """Counts of one sweep.

    Attributes:
        wanted: kills to make.
        points: those to kill at.
        weights: how often each scenario's turn comes, against the others.
        runs: attempts in all; kills of them were killed, recoveries were left alone and checked.
        tried: kills that were planned; a run may end before it comes by its point.
    """

    wanted: int
    points: Sequence[Point]
    weights: dict[Scenario, float]
    draw: random.Random
    say: Callable[[str], None]
    runs: int = 0
    recoveries: int = 0
    by_point: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    by_scenario: Counter[str] = field(default_factory=Counter)
    by_state: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    durations: dict[str, float] = field(default_factory=dict)
    _projects: Counter[Scenario] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @property
    def kills(self) -> int:
        return sum(list(self.by_point.values()))

    @property
    def enough(self) -> bool:
        """Whether there is nothing more to learn: all was reached, nothing more will be, or nothing works."""
        alive = any(not self.by_scenario[scenario.name] for scenario in self.weights)
        wanted = _AT_MOST * self.wanted if alive or self.unreached else self.wanted
        return self.kills >= wanted or len(self.verdict.others) >= _FINDINGS

    def next_project(self) -> tuple[Scenario, int]:
        """The scenario that fell furthest behind its share, and how many projects of it there were."""
        with self._lock:
            # A project counts with all its kills from its first moment on, or every lane would begin the same scenario.
            chosen = min(self.weights, key=lambda s: self._projects[s] * s.kills / self.weights[s])
            self._projects[chosen] += 1
            return chosen, sum(self._projects.values())

    def next_kill(self, has: Iterable[str], seconds: float) -> dict[str, Any]:
        """How the next run is to die: at the point that was tried least, or at any moment of ``seconds``."""
        with self._lock:
            if self.draw.random() < _RANDOM_SHARE:
                return {"after": self.draw.uniform(0, seconds)}
            fitting = [point for point in self.points if point.needs in has]
            # By kills that were tried: some runs do not come by a point, and the sweep must not wait for it.
            least = min(fitting, key=lambda point: (self.tried[point.name], self.draw.random()))
            self.tried[least.name] += 1
            nth = self.draw.choice((1, 2)) if least.often and "upsert" in has else 1
            return {"point": least.name, "nth": nth, "fraction": self.draw.random()}

    def killed(self, scenario: Scenario, point: str, *, delta_state: bool) -> None:
        """Count a kill."""
        with self._lock:
            self.by_point[point] += 1
            self.by_scenario[scenario.name] += 1
            self.by_state["Delta state" if delta_state else "JSON state"] += 1
            if self.kills % max(1, min(_DONE_ENOUGH, self.wanted) // 10) == 0:
                self.say(f"  {self.kills} of {self.wanted} kills, {self.recoveries} recoveries")

    def took(self, scenario: Scenario, seconds: float) -> None:
        """A run that was left alone took so long."""
        with self._lock:
            before = self.durations.get(scenario.name, seconds)
            self.durations[scenario.name] = 0.7 * before + 0.3 * seconds

    def found(self, verdict: Verdict, where: str) -> None:
        """Take in what a check found."""
        with self._lock:
            self.verdict.add(verdict)
            for line in verdict.others:
                self.say(f"  {where}: {line}")

    @property
    def unreached(self) -> list[str]:
        """Points at which nothing died."""
        return [point.name for point in self.points if not self.by_point[point.name]]
