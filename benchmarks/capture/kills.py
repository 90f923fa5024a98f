"""Captures that are killed at each named point, and at any moment, while others write: the log has each change once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.capture import postgres
from benchmarks.capture.handover import log_differences
from benchmarks.harness import Options, Row
from benchmarks.kill_sweep.points import CAPTURE_POINTS
from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node

_MOST, _OF_A_LIFE, _AT_ONCE = 500, 10, 4
"""Kills of a sweep and of one capture; one in four attempts is killed at any moment."""
_PATIENCE = 120.0


def kills(options: Options) -> list[Row]:
    """One capture after the other is killed again and again under writers; each ends with the database's rows."""
    most = min(options.kills, _MOST)
    killed: Counter[str] = Counter()
    wrong, lives = 0, 0
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, postgres.started() as server:
        while killed.total() < most:
            seed = options.seed + lives
            place = Path(folder) / str(lives)
            place.mkdir()
            postgres.emptied(server)
            chance = random.Random(seed)
            postgres.source(server, place, postgres.TABLES, chance.choice([100, 400]))
            with postgres.written(server, seed):
                before = killed.total()
                while killed.total() - before < min(_OF_A_LIFE, most):
                    is_first = killed.total() == before
                    if point := killed_at(place / "odibi.yaml", "changes", chance, only_first=is_first):
                        killed[point] += 1
            log = _finished(place / "odibi.yaml")
            for one in (found := [*_repeated(log), *log_differences(postgres, server, log)])[:3]:
                options.say(f"  --seed {seed} --kills 50: {one}")
            wrong, lives = wrong + len(found), lives + 1
            options.say(f"  {killed.total()} of {most} kills")
    for name, number in killed.most_common():
        options.say(f"  {number:5} {name}")
    missed = [one.name for one in CAPTURE_POINTS if not killed[one.name]]
    return [
        Row("captures killed under writers", killed.total(), None, "", None, f">= {most}", True),
        Row("rows lost, repeated, out of order, or different", wrong, None, "", None, "0", wrong == 0),
        Row("points that no kill reached", len(missed), None, ", ".join(missed), None, "0", not missed),
    ]


def killed_at(file: Path, node: str, chance: random.Random, *, only_first: bool = False) -> str | None:
    """Run a capture in a process that dies at a point; the point, or None if the run does not come by there.

    Args:
        only_first: at one that the first run alone comes by.

    Raises:
        RuntimeError: the run failed.
    """
    points = [one.name for one in CAPTURE_POINTS if not only_first or one.needs == "first"]
    point = "random" if not only_first and chance.randrange(_AT_ONCE) == 0 else chance.choice(points)
    arguments = [str(file), node, point, str(1 if only_first else chance.choice([1, 1, 1, 2])), str(chance.random())]
    command = [sys.executable, "-m", "benchmarks.capture.changes.attempt", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a capture after kills failed: {done.stderr[-2000:]}")
    return point if done.returncode else None


def _finished(file: Path) -> list[dict[str, Any]]:
    """The change log once a run has ended well."""
    project, key = Project.load(file), NodeKey("p", "changes")
    run_node(NodeRun(RunHistory(project, project.open_state(), "last"), key, _open_spark))
    log: list[dict[str, Any]] = TableHandle.open(project.target(key)).table.to_pyarrow_table().sort_by("n").to_pylist()
    return log


def _repeated(log: list[dict[str, Any]]) -> list[str]:
    """Changes that are in the log twice, and changes of a key out of the order of their commits."""
    found = []
    last: dict[tuple[str, str], int] = {}
    for row in log:
        if row["xid"] is None or row["key"] is None:
            continue
        place = (row["table"], str(row["key"]))
        if row["lsn"] < last.get(place, 0):
            found.append(f"{place}: the change at {row['lsn']} stands behind one at {last[place]}")
        last[place] = row["lsn"]
    return found


def _open_spark() -> Any:
    raise AssertionError("a capture starts Spark")
