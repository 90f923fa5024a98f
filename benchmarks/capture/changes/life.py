"""One life: steps and runs, whether tables are the database's after each run, and whether stops lead on."""

from __future__ import annotations

import random
import re
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.capture.changes.kinds import Kind
from benchmarks.capture.changes.oracle import (
    DatabaseTable,
    Replay,
    history_differences,
    log_differences,
    table_differences,
)
from benchmarks.capture.changes.remedies import Refused, remedies
from benchmarks.capture.changes.server import ServerInHand
from benchmarks.capture.changes.world import World, error_text
from odi_assets.errors import OdiError
from odi_assets.nodes.project import Project
from odi_assets.sources.cdc import source as captures

_STEPS, _MOST_REMEDIES, _KEPT = 16, 8, 3
_RUN_AFTER, _APPLY_IN = 0.45, 0.35
"""How likely a run follows a step, and how likely it applies what it captured."""


@dataclass(frozen=True)
class Violation:
    """What must not be: `silent`, `dead end`, `traceback` or `needless stop`."""

    kind: str
    what: str


class Found(Exception):
    """A violation, which ends a life."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.violation = Violation(kind, what)


@dataclass
class Life:
    """A life of a seed.

    Attributes:
        kinds: of steps, by name.
        told: what happened, in words.
    """

    seed: int
    server: ServerInHand
    kinds: Mapping[str, Kind]
    folder: Path
    spark: Any
    told: list[str] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    remedies: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    stops: int = 0
    kills: int = 0
    _past: list[tuple[int, DatabaseTable]] = field(default_factory=list)

    def live(self) -> Violation | None:
        """Live it; what was found, if anything was."""
        draw = random.Random(self.seed)
        self.world = World.born(self.server, self.folder, self.spark, draw)
        self.replay = Replay()
        captures.MOST_CHANGES = draw.choice([20, 500_000])
        self.told.append(f"tables: {self.world.patterns}, chunks of {self.world.rows}, {captures.MOST_CHANGES} changes")
        try:
            self._run(draw, applies=True)
            while sum(self.steps.values()) < _STEPS:
                self._step(draw)
                if draw.random() < _RUN_AFTER:
                    self._run(draw, applies=draw.random() < _APPLY_IN)
            self._run(draw, applies=True)
        except Found as found:
            return found.violation
        finally:
            self.kills = self.world.kills
            self.world.close()
        return None

    def _step(self, draw: random.Random) -> None:
        (name,) = draw.choices(list(self.kinds), [one.weight for one in self.kinds.values()])
        kind = self.kinds[name]
        try:
            done = kind.make(self.world, draw)
        except self.server.refusal:
            return
        self.steps[name] += 1
        self.world.expected_stop |= kind.may_stop
        self.told.append(f"{name}: {done}")

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _run(self, draw: random.Random, *, applies: bool) -> None:
        before = self._captured_before()
        self._run_node(self.world.capture, draw)
        self._judge_log(before)
        if not applies:
            return
        last = -1
        while last != self.replay.last:
            # A remedy may have captured more.
            last = self.replay.last
            for node in self.world.nodes[1:]:
                if node in self.world.nodes:
                    self._run_node(node, draw)
            self._judge_log(before)
        self._judge_tables()
        self.world.expected_stop = False

    def _run_node(self, node: str, draw: random.Random, depth: int = 0) -> None:
        """Run a node; where it stops, take what it names until it goes on."""
        self.runs += 1
        world = self.world
        try:
            result = world.run(node)
        except OdiError as error:
            message = error_text(error)
        except Exception as error:
            raise Found("traceback", "".join(traceback.format_exception(error)[-6:])) from error
        else:
            self.told.append(f"  {node}: {result.status.value}")
            return
        self.stops += 1
        self.told.append(f"  {node} stops: {message}")
        waits = world.open is not None or "prepared" in message.lower() or "goes on, for" in message
        if not world.expected_stop and not waits:
            raise Found("needless stop", message)
        world.blamed = set(re.findall(rf"\b(?:{self.server.schema}|other)\.\w+", message.partition("→")[0]))
        named = remedies(world, node, message)
        if not named or depth == _MOST_REMEDIES:
            raise Found("dead end", f"{'no remedy' if not named else f'after {depth} remedies'}: {message}")
        draw.shuffle(named)
        is_capture = node == world.capture
        while named:
            name, take = named.pop(0)
            self.remedies[re.sub(rf"{self.server.schema}\.\w+|\b[pd]\d+\b|\"\w+\"", "…", name)[:60]] += 1
            try:
                self.told.append(f"  remedy: {take()}")
            except (self.server.refusal, OdiError, Refused) as refusal:
                self.told.append(f"  remedy {name} is refused: {refusal}")
                if depth < _MOST_REMEDIES:
                    depth += 1
                    named += remedies(world, node, error_text(refusal))
                continue
            node = world.capture if is_capture else node
            if node in world.nodes:
                self._run_node(node, draw, depth + 1)
            return
        raise Found("dead end", f"all remedies are refused: {message}")

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _captured_before(self) -> set[str]:
        value = self._hwm()
        return set() if value is None else set(value["tables"])

    def _hwm(self) -> Any:
        return Project.load(self.world.file).open_state().get_hwm(f"p.{self.world.capture}")

    def _judge_log(self, before: set[str]) -> None:
        world = self.world
        if world.begun_again:
            self.replay, self._past, world.begun_again = Replay(), [], False
        log = world.rows_of(world.capture)
        if log is not None:
            self._judged(self.replay.take(log.sort_by("n").to_pylist()))
        wanted = {name for name in self.server.captured() if any(fnmatchcase(name, one) for one in world.patterns)}
        listed = {f"{self.server.schema}.{name}" for name in self.server.existing()}
        known = set(self._hwm()["tables"])
        matched = {name for name in before if any(fnmatchcase(name, one) for one in world.patterns)}
        self._judged(f"{name} left the capture in silence" for name in (matched & listed) - known)
        self._judged(f"{name} is not captured" for name in wanted - known)
        for name in sorted(wanted):
            self._judged(log_differences(name, self.server.table(name), self.replay.tables.get(name, {})))

    def _judge_tables(self) -> None:
        world = self.world
        there = self.server.captured()
        for name in list(world.applied):
            full = f"{self.server.schema}.{name}"
            if full not in there or not any(fnmatchcase(full, one) for one in world.patterns):
                self._judged([f"{name}: its node succeeds, and the table is not captured"])
                continue
            theirs = self.server.table(full)
            self._judged(table_differences(name, theirs, world.rows_of(name)))
            if name == "c":
                history = world.rows_of("c_history")
                self._past = [*self._past, (self.replay.last, theirs)][-_KEPT:]
                for upto, past in self._past:
                    self._judged(history_differences(f"c_history at {upto}", past, history, upto))

    def _judged(self, differences: Any) -> None:
        found = list(differences)
        if found:
            raise Found("silent", "; ".join(found[:4]))
