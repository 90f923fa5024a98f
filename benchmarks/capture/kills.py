"""Captures that are killed at each named point, and at any moment, while others write: the log has each change once."""

from __future__ import annotations

import multiprocessing
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.capture import mariadb, mysql, postgres
from benchmarks.capture.changes.attempt import attempt
from benchmarks.capture.handover import log_differences
from benchmarks.harness import Options, Row
from benchmarks.kill_sweep.points import Point
from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node

_MOST, _OF_A_LIFE, _AT_ONCE = 500, 10, 4
"""Kills of a sweep and of one capture; one in four attempts is killed at any moment."""
_PATIENCE = 120.0
_COUNTERS = {"accounts": 1, "documents": 2}
"""By table, the place of a column to which each update adds one."""
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([attempt.__module__])


def kills(options: Options) -> list[Row]:
    """One capture of PostgreSQL after the other is killed again and again under writers; each ends with the database's
    rows."""
    return _kills(options, postgres)


def mariadb_kills(options: Options) -> list[Row]:
    """The same of MariaDB."""
    return _kills(options, mariadb)


def mysql_kills(options: Options) -> list[Row]:
    """The same of MySQL."""
    return _kills(options, mysql)


def _kills(options: Options, lab: Any) -> list[Row]:
    """Kills of captures of the database that the functions of a module are about."""
    most = min(options.kills, _MOST)
    killed: Counter[str] = Counter()
    wrong, lives = 0, 0
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, lab.started() as server:
        while killed.total() < most:
            seed = options.seed + lives
            place = Path(folder) / str(lives)
            place.mkdir()
            lab.emptied(server)
            chance = random.Random(seed)
            lab.source(server, place, lab.TABLES, chance.choice([100, 400]))
            with lab.written(server, seed):
                before = killed.total()
                while killed.total() - before < min(_OF_A_LIFE, most):
                    is_first = killed.total() == before
                    if point := killed_at(place / "odibi.yaml", "changes", lab.POINTS, chance, is_first=is_first):
                        killed[point] += 1
            log = _finished(place / "odibi.yaml")
            for one in (found := [*_out_of_order(lab, log), *log_differences(lab, server, log)])[:3]:
                options.say(f"  --seed {seed} --kills 50: {one}")
            wrong, lives = wrong + len(found), lives + 1
            options.say(f"  {killed.total()} of {most} kills")
    for name, number in killed.most_common():
        options.say(f"  {number:5} {name}")
    missed = [one.name for one in lab.POINTS if not killed[one.name]]
    return [
        Row(f"captures killed under writers, {server.name}", killed.total(), None, "", None, f">= {most}", True),
        Row(f"rows lost, repeated, out of order, or different, {server.name}", wrong, None, "", None, "0", wrong == 0),
        Row(f"points that no kill reached, {server.name}", len(missed), None, ", ".join(missed), None, "0", not missed),
    ]


def killed_at(
    file: Path, node: str, points: Sequence[Point], chance: random.Random, *, is_first: bool = False
) -> str | None:
    """Run a capture in a process that dies at a point; the point, or None if the run does not come by there.

    Args:
        is_first: at one that the first run alone comes by, if there is one.

    Raises:
        RuntimeError: the run failed.
    """
    names = [one.name for one in points if is_first and one.needs == "first"]
    once = bool(names)
    names = names or [one.name for one in points]
    point = "random" if not once and chance.randrange(_AT_ONCE) == 0 else chance.choice(names)
    nth, fraction = 1 if once else chance.choice([1, 1, 1, 2]), chance.random()
    said, says = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=attempt, args=(str(file), node, point, nth, fraction, says))
    process.start()
    says.close()
    process.join(_PATIENCE)
    if process.exitcode not in (0, -signal.SIGKILL):
        process.kill()
        raise RuntimeError(f"a capture after kills failed: {said.recv() if said.poll() else process.exitcode}")
    return point if process.exitcode else None


def _finished(file: Path) -> list[dict[str, Any]]:
    """The change log once a run has ended well."""
    project, key = Project.load(file), NodeKey("p", "changes")
    run_node(NodeRun(RunHistory(project, project.open_state(), "last"), key, _open_spark))
    log: list[dict[str, Any]] = TableHandle.open(project.target(key)).table.to_pyarrow_table().sort_by("n").to_pylist()
    return log


def _out_of_order(lab: Any, log: list[dict[str, Any]]) -> Iterator[str]:
    """Changes of a key out of the order of their commits, and updates between which one is lost, or that are there
    twice."""
    counters = {lab.captured(name): place for name, place in _COUNTERS.items()}
    last: dict[tuple[str, str], tuple[int, int | None]] = {}
    for row in log:
        if row["xid"] is None or row["key"] is None:
            last.pop((row["table"], str(row["key"])), None)
            continue
        place = (row["table"], str(row["key"]))
        lsn, former = last.get(place, (0, None))
        count = int(row["after"][counters[row["table"]]]) if row["table"] in counters and row["after"] else None
        if row["lsn"] < lsn:
            yield f"{place}: the change at {row['lsn']} stands behind one at {lsn}"
        if row["op"] == "u" and former is not None and count != former + 1:
            yield f"{place}: the update at {row['lsn']} counts {count}, behind one at {lsn} that counts {former}"
        last[place] = (row["lsn"], count)


def _open_spark() -> Any:
    raise AssertionError("a capture starts Spark")
