"""One life: a world, what happens to it step by step, and whether its tables are what they must be."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

import dagster as dg

from benchmarks.change_sweep.birth import born
from benchmarks.change_sweep.changes import CHANGES
from benchmarks.change_sweep.changes.change import Change
from benchmarks.change_sweep.judge import Violation, compared
from benchmarks.change_sweep.landing import DAYS, FIRST_DAY
from benchmarks.change_sweep.model import table_version, take_in
from benchmarks.change_sweep.remedies import DeadEnd, Refused, Remedy, remedies_of
from benchmarks.change_sweep.runs import Ended, Runner, run_by_command
from benchmarks.change_sweep.world import Expected, Home, NodeAt, World, shown

_RUNS = {"run": 40, "run one node": 6, "run with --full-refresh": 3, "run a range": 4}
_ROWS_STAY = {change.name for change in CHANGES.values() if change.rows_stay}
_MOST_REMEDIES = 8
_TRIED = 2
"""How many remedies of a stop are taken; each has its turn in one life or another."""


class Step(NamedTuple):
    """A step, and the seed of all that is drawn in it: a life is its seed and its steps."""

    name: str
    seed: int


class Found(Exception):
    """A violation, which ends a life."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


@dataclass
class Life:
    """A life of ``seed`` in ``folder``.

    Attributes:
        length: how many steps it has.
        told: what happened, in words.
        runs, stops, remedies: how many runs there were, how many of their nodes stopped, and which remedies were taken.
    """

    length: ClassVar[int] = 24
    runs_drawn: ClassVar[Mapping[str, int]] = _RUNS
    changes_drawn: ClassVar[Mapping[str, Change]] = CHANGES

    seed: int
    folder: Path
    apart: bool = False
    told: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    runs: int = 0
    stops: int = 0
    remedies: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)

    def birth(self, draw: random.Random) -> World:
        """The world as the life begins."""
        return born(self.folder, draw)

    def named_remedies(self, home: Home, at: NodeAt, message: str, pending: list[str]) -> list[Remedy]:
        """The ways on that a stop names, as far as they fit what was changed."""
        return remedies_of(self._world, home, at, message, _ROWS_STAY.issuperset(pending))

    def reasons(self, home: Home, at: NodeAt) -> list[str]:
        """Why a run of a node may stop; empty if it must not."""
        return self._world.pending(home.target(at))

    def must_hold(
        self, home: Home, at: NodeAt, *, full: bool = False, days: tuple[date, date] | None = None
    ) -> Expected:
        """What the table of a node must hold after a run that succeeded."""
        return take_in(self._world, home, at, full=full, days=days)

    def live(self, script: list[Step] | None = None) -> Violation | None:
        """Live it: ``script``, or as many steps as a life has; what was found, if anything was."""
        for left in (self.folder, self._backup):
            shutil.rmtree(left, ignore_errors=True)
        draw = random.Random(self.seed)
        self._world = self.birth(draw)
        with dg.DagsterInstance.ephemeral() as instance:
            self._runner = Runner(instance)
            try:
                for step in self._drawn(draw) if script is None else script:
                    self._step(step)
                self._run_all(apart=self.apart)
            except Found as found:
                return replace(found.violation, after=tuple(self.told))
        return None

    def _drawn(self, draw: random.Random) -> Iterator[Step]:
        names = {**self.runs_drawn, **{name: change.weight for name, change in self.changes_drawn.items()}}
        yield Step("land", draw.getrandbits(32))
        while len(self.steps) < self.length:
            (name,) = draw.choices(list(names), list(names.values()))
            yield Step(name, draw.getrandbits(32))

    def _step(self, step: Step) -> None:
        draw, before = random.Random(step.seed), len(self.told)
        if step.name in _RUNS:
            self._run(step.name, draw)
        else:
            change = self.changes_drawn[step.name]
            kept = self._world.before
            if (done := change.make(self._world, draw)) is None:
                return
            if self._world.before is kept and change.may_stop:
                # Something else than the last change of the file may be what a run stops at.
                self._world.before = None
            if change.may_stop or (step.name == "land" and not self._world.typed):
                # Whether files of other shapes may stop a run is up to `write.schema`.
                self._world.may_stop(step.name)
            self.told.append(done)
        if len(self.told) > before:
            self.steps.append(step)
            self.changes[step.name] += 1

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _run(self, name: str, draw: random.Random) -> None:
        world = self._world
        home = draw.choice(world.homes)
        if name == "run":
            self._run_all(home)
        elif name == "run with --full-refresh":
            at = draw.choice(list(home.nodes()))
            self._judge(
                home,
                self._runner.run(home, at.pipeline, [at.name], full=True, days=None),
                "full refresh of ",
                full=True,
            )
        elif name == "run one node":
            at = draw.choice(list(home.nodes()))
            self._judge(home, self._runner.run(home, at.pipeline, [at.name], days=None), "run of one node: ")
        else:
            self._run_range(home, draw)

    def _run_range(self, home: Home, draw: random.Random) -> None:
        found = [at for at in home.nodes() if "partition" in at.node]
        if not found or table_version(home.target(found[0])) is None:
            return
        first, last = sorted(draw.sample(range(DAYS + 1), 2))
        days = FIRST_DAY + timedelta(first), FIRST_DAY + timedelta(last)
        texts = days[0].isoformat(), days[1].isoformat()
        ended = self._runner.run(home, found[0].pipeline, [found[0].name], days=texts)
        self._judge(home, ended, f"run from {texts[0]} to {texts[1]}: ", days=days)

    def _run_all(self, home: Home | None = None, *, apart: bool = False) -> None:
        for one in [home] if home else self._world.homes:
            if apart:
                self._judge(one, run_by_command(one, apart=True), "odi run: ")
                continue
            for pipeline in [given["pipeline"] for given in one.config["pipelines"]]:
                self._judge(one, self._runner.run(one, pipeline, days=None), "run: ")

    def _judge(
        self, home: Home, ended: list[Ended], how: str, *, full: bool = False, days: tuple[date, date] | None = None
    ) -> None:
        self.runs += 1
        self.told.append(how + ", ".join(f"{one.node} {one.status}" for one in ended))
        number = self._world.homes.index(home)
        for one in ended:
            self._judge_node(home, home.node(one.node), one, full=full, days=days)
        stopped = next((one for one in ended if one.status == "FAILURE"), None)
        if stopped is not None:
            self._go_on(number, stopped, asked=full)

    def _judge_node(
        self,
        home: Home,
        at: NodeAt,
        ended: Ended,
        *,
        full: bool = False,
        days: tuple[date, date] | None = None,
        consent: bool = False,
    ) -> None:
        world, path = self._world, home.target(at)
        if not ended.well:
            held = world.expected(path)
            if not self.reasons(home, at) and (found := compared("stopped and written", ended.node, path, held.wanted)):
                raise Found(found)
            return
        expected = self.must_hold(home, at, full=full, days=days)
        if full and not consent and (lost := world.gone & world.expected(path).rows - expected.rows):
            what = f"{ended.node}: a full refresh drops rows of deleted files and does not ask: {shown(Counter(lost))}"
            raise Found(Violation("silent", what, missing=len(lost)))
        if found := compared("silent", f"{ended.node} {ended.status}", path, expected.wanted):
            raise Found(
                replace(found, what=f"{found.what} (changed before: {', '.join(expected.pending) or 'nothing'})")
            )
        expected = replace(expected, instead_of=None, versions=dict(expected.versions))
        if ended.status == "SUCCESS":
            # Without rows, not all that may stop a run is looked at.
            expected.pending = []
            expected.versions[table_version(path) or 0] = replace(expected, versions={})
        world.tables[str(path)] = expected

    # -- stops and their remedies -------------------------------------------------------------------------------------

    def _go_on(self, number: int, stopped: Ended, depth: int = 0, *, asked: bool = False) -> None:
        """Take remedies that a stop names in a copy of the world, and one for good.

        Args:
            asked: a full refresh may stop to ask whether rows may be lost.
        """
        self.stops += 1
        self.told.append(f"  stops: {stopped.error}")
        home = self._world.homes[number]
        at = home.node(stopped.node)
        pending = self.reasons(home, at)
        is_table = at.upstream is not None or at.node["read"]["format"] == "delta"
        if is_table and table_version(home.source(at)) is None:
            return
        if not pending and not asked:
            raise Found(Violation("needless stop", f"{stopped.node}: {stopped.error}"))
        named = self.named_remedies(home, at, stopped.error, pending)
        if not named:
            raise Found(Violation("no remedy", f"{stopped.node} after {', '.join(pending)}: {stopped.error}"))
        if depth == _MOST_REMEDIES:
            raise Found(Violation("dead end", f"{stopped.node} stops after {depth} remedies: {stopped.error}"))
        random.Random(f"{self.seed} {len(self.steps)} {self.stops}").shuffle(named)
        place = [str(one) for one in home.nodes()].index(stopped.node)
        first = next((one for one in named if one.for_good), None)
        named.sort(key=lambda remedy: remedy is not first)
        for remedy in named[1:_TRIED] if not depth else ():
            with self._copy_of_the_world():
                self._take(number, place, remedy, depth)
        if not any(self._take(number, place, remedy, depth) for remedy in named):
            raise Found(Violation("dead end", f"{stopped.node}: all remedies are refused: {stopped.error}"))

    def _take(self, number: int, place: int, remedy: Remedy, depth: int) -> bool:
        """Take a remedy and run the node again; False if it is refused."""
        self.remedies[remedy.kind] += 1
        self.told.append(f"  remedy: {remedy.name}")
        home = self._world.homes[number]
        node = str(list(home.nodes())[place])
        try:
            ended = remedy.take(self._world, home, home.node(node))
        except Refused as refusal:
            self.told.append(f"  is refused: {refusal}")
            return False
        except DeadEnd as error:
            raise Found(Violation("dead end", f"{node}: {error}")) from error
        if not remedy.full:
            at = list(home.nodes())[place]
            ended = self._runner.run(home, at.pipeline, [at.name], days=None)
        self.runs += 1
        self.told.append("  then: " + ", ".join(f"{one.node} {one.status}" for one in ended))
        for one in ended:
            self._judge_node(home, home.node(one.node), one, full=remedy.full, consent=remedy.full)
        failed = next((one for one in ended if one.status == "FAILURE"), None)
        if failed is not None:
            self._go_on(number, failed, depth + 1, asked=remedy.full)
        return True

    @property
    def _backup(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-copy")

    @contextmanager
    def _copy_of_the_world(self) -> Iterator[None]:
        """Whatever happens to the world within is undone."""
        shutil.copytree(self.folder, self._backup, symlinks=True)
        world, told = self._world, len(self.told)
        self._world = deepcopy(world)
        yield
        shutil.rmtree(self.folder)
        self._backup.rename(self.folder)
        self._world = world
        del self.told[told:]
