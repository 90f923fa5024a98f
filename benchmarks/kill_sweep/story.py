"""What happens to one project: rows land, runs are killed, one is left alone, and everything is looked at."""

from __future__ import annotations

import random
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.kill_sweep.box import DAYS, FIRST_DAY, KEY, Box
from benchmarks.kill_sweep.check import RowsWatch, Verdict
from benchmarks.kill_sweep.lab import Lane
from benchmarks.kill_sweep.tally import RANDOM, Tally
from benchmarks.kill_sweep.whole import open_runs, run_whole

_WELL = {"SUCCESS", "NO_DATA"}
_LOST_A_RACE = {"FencedError", "TableConflictError", "StateConflictError"}
_FIRST_GUESS = 3.0
_IN_A_ROW = (1, 2, 2, 3)
Spec = dict[str, Any]


class Story:
    """One project's life, until it lived through its kills or something was found."""

    def __init__(
        self, box: Box, lane: Lane, tally: Tally, watch: RowsWatch, log: Path, draw: random.Random, kind: str
    ) -> None:
        self.box = box
        self._lane = lane
        self._tally = tally
        self._log = log
        self._draw = draw
        self._kind = kind
        self._watch = watch
        self._kills = 0
        self._open_attempt = False

    def tell(self) -> Verdict:
        """Live it."""
        self.box.land()
        while not (self._tally.enough or self._kills >= self.box.scenario.kills):
            for _ in range(self._draw.choice(_IN_A_ROW)):
                self._attack()
                verdict = self._watch.after_kill()
                if not verdict.clean:
                    return verdict
                if self._draw.random() < 0.85:
                    self.box.land()
            verdict = self._recover()
            if not verdict.clean:
                return verdict
        return Verdict()

    # -- runs that are killed -----------------------------------------------------------------------------------------

    def _attack(self) -> None:
        if self.box.scenario.attack == "odi run":
            self._kill_whole()
            return
        specs = self._specs()
        beside = len(specs) > 1
        outcomes = self._lane.run(specs, self._land_meanwhile if self._draw.random() < 0.3 else None)
        for spec, outcome in zip(specs, outcomes, strict=True):
            self._note(spec, outcome, beside=beside)

    def _specs(self) -> list[Spec]:
        attack, one = self.box.scenario.attack, self._draw.random() < 0.5
        if attack == "full refresh":
            return [self._spec(kill=True, full_refresh=self._draw.random() < 0.8)]
        if attack == "two runs":
            return [self._spec(kill=True), self._spec(kill=one)]
        if attack == "backfill and increment":
            first, second = sorted(self._draw.sample(range(DAYS + 1), 2))
            bounds = [(FIRST_DAY + timedelta(days=day)).isoformat() for day in (first, second)]
            kills = self._draw.choice([(True, False), (False, True), (True, True)])
            return [self._spec(kill=kills[0], bounds=bounds), self._spec(kill=kills[1])]
        return [self._spec(kill=True)]

    def _spec(self, *, kill: bool, full_refresh: bool = False, bounds: list[str] | None = None) -> Spec:
        has = self.box.scenario.has | ({"repair"} if self._open_attempt else set())
        seconds = self._tally.durations.get(self.box.scenario.name, _FIRST_GUESS)
        return {
            "kind": self._kind,
            "project": str(self.box.file),
            "node": str(KEY),
            "run_id": str(uuid.uuid4()),
            "full_refresh": full_refresh,
            "bounds": bounds,
            "kill": self._tally.next_kill(has, seconds) if kill else None,
        }

    def _land_meanwhile(self) -> None:
        time.sleep(self._draw.uniform(0, self._tally.durations.get(self.box.scenario.name, _FIRST_GUESS)))
        self.box.land()

    def _note(self, spec: Spec, outcome: dict[str, Any], *, beside: bool) -> None:
        self._tally.runs += 1
        if outcome.get("began"):
            self._watch.begun(spec["run_id"])
            self._open_attempt = bool(outcome["signal"])
        if outcome["signal"]:
            self._killed(outcome["point"])
        elif not (outcome.get("status") in _WELL or (beside and outcome.get("error") in _LOST_A_RACE)):
            self._tally.found(Verdict(others=[_failure(outcome)]), str(self.box.root))

    def _killed(self, point: str) -> None:
        self._kills += 1
        self._tally.killed(self.box.scenario, point, delta_state=self.box.delta_state)

    def _kill_whole(self) -> None:
        name = self.box.scenario.name
        if name not in self._tally.durations:
            _, seconds = run_whole(self.box.file, self._log, None)
            self._tally.took(self.box.scenario, seconds)
            self.box.land()
        after, jvm_alone = self._draw.uniform(0, self._tally.durations[name]), self._draw.random() < 0.5
        killed, _ = run_whole(self.box.file, self._log, after, jvm_alone=jvm_alone)
        self._tally.runs += 1
        for run_id in open_runs(self.box.file):
            self._watch.begun(run_id)
        if killed:
            self._killed(RANDOM)

    # -- the run that is left alone -----------------------------------------------------------------------------------

    def _recover(self) -> Verdict:
        spec = self._spec(kill=False)
        (outcome,) = self._lane.run([spec])
        self._tally.runs += 1
        self._tally.recoveries += 1
        self._open_attempt = False
        if outcome.get("status") not in _WELL:
            return Verdict(others=[_failure(outcome)])
        self._watch.begun(spec["run_id"])
        if self.box.scenario.attack != "odi run":
            self._tally.took(self.box.scenario, outcome["seconds"])
        return self._watch.after_recovery()


def _failure(outcome: dict[str, Any]) -> str:
    return f"a run ended with {outcome.get('error', 'no word')}: {outcome.get('message', outcome)}"
