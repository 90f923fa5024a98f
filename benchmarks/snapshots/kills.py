"""Thousands of runs over a real PostgreSQL and a real MariaDB table that die by SIGKILL, in snapshots and increments.

The sweep is that of ``benchmarks.kill_sweep``; the sources are tables of databases, which grow and change meanwhile.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Row
from benchmarks.kill_sweep.attempt import PROTOCOL
from benchmarks.kill_sweep.box import KEY, Box
from benchmarks.kill_sweep.check import Watch
from benchmarks.kill_sweep.lab import Lane, open_lanes
from benchmarks.kill_sweep.points import POINTS
from benchmarks.kill_sweep.report import counted
from benchmarks.kill_sweep.scenarios import Attack, Scenario, every_row, newest_rows
from benchmarks.kill_sweep.story import Story
from benchmarks.kill_sweep.sweep import KILLS_OF_A_JVM
from benchmarks.kill_sweep.tally import Tally
from benchmarks.snapshots.lab import SERVERS, server
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets_tests.jdbc import jdbc_jars
from odi_assets_tests.sources.sql.servers import Server

_READ = """\
    read: {connection: db, format: sql, table: %s, incremental: {mode: cursors, columns: v, snapshot: {%s}}}
    write: {connection: lake, path: target, %s}
"""
_WRITES = {"append": ("mode: append", every_row), "upsert": ("mode: upsert, keys: [id]", newest_rows)}
_STEPS = ("delta.commit", "materialize.advance", "modes.base")
"""Functions that a snapshot comes by with each of its steps."""


def scenarios() -> list[Scenario]:
    """Both servers, each way of cutting, and each attack."""

    def one(name: str, by: str, mode: str, attack: Attack = "one run") -> Scenario:
        write, model = _WRITES[mode]
        text = _READ % ("TABLE", f"{by}{'' if 'chunks' in by else 'chunks_per_commit: 1, '}rows: 3", write)
        return Scenario(name, text, "table", model, attack, ids_again=mode == "upsert")

    return [
        one("postgres, by pages", "", "append"),
        one("postgres, by key", "by: id, ", "upsert"),
        one("postgres, full refresh", "by: id, ", "append", "full refresh"),
        one("mariadb, by key", "", "append"),
        one("mariadb, upsert, several chunks at once", "chunks_per_commit: 2, ", "upsert"),
        one("mariadb, two runs", "by: id, ", "upsert", "two runs"),
    ]


class DatabaseBox(Box):
    """A project whose source is a table of a database."""

    def __init__(self, root: Path, scenario: Scenario, on: Server, *, delta_state: bool, draw: random.Random) -> None:
        self._on = on
        self._table = f"t{root.name}"
        key = "" if scenario.name.endswith("by pages") else " PRIMARY KEY"
        on.execute(
            f"DROP TABLE IF EXISTS {self._table}", f"CREATE TABLE {self._table} (id bigint{key}, v bigint, day date)"
        )
        node = scenario.node.replace("TABLE", self._table)
        own = replace(scenario, node=node)
        super().__init__(root, own, delta_state=delta_state, draw=draw, connections=on.connection)

    def land(self) -> None:
        """New rows, and rows that change: all or none of them for whoever reads meanwhile."""
        rows = [self._new_row(len(self.landed) + nth) for nth in range(self._draw.randint(1, 6))]
        known = {row.id for row in self.landed}
        statements = []
        for row in rows:
            if row.id in known:
                statements.append(f"UPDATE {self._table} SET v = {row.v}, day = '{row.day}' WHERE id = {row.id}")
            else:
                statements.append(f"INSERT INTO {self._table} VALUES ({row.id}, {row.v}, '{row.day}')")
            known.add(row.id)
        opened = self._on.connect()
        try:
            for statement in ("BEGIN", *statements, "COMMIT"):
                opened.cursor().execute(statement)
        finally:
            opened.close()
        self.landed += rows

    def position(self, hwm: Any) -> Any:
        """The maximum: it grows with every run, and with a full refresh it stays at least."""
        value = hwm["cursors"]["v"]
        return -1 if value is None else value

    def close(self) -> None:
        """Drop the table."""
        self._on.execute(f"DROP TABLE {self._table}")


class SnapshotWatch(Watch):
    """Of an attempt that was killed in a snapshot, history says so, whatever it has committed."""

    def _history(self) -> Iterator[str]:
        rows = self._box.state.list_runs(pipeline=KEY.pipeline, node=KEY.node)
        last: dict[str, Any] = {}
        for stamp in TableHandle.open(self._box.project.target(KEY)).stamps():
            last.setdefault(stamp.facts["run_id"], stamp)
        for run_id in self._begun:
            own = [row for row in rows if row.run_id == run_id]
            if len(own) != 1:
                yield f"the attempt of run {run_id} has {len(own)} rows of history"
                continue
            told, hwm = own[0].status.value, CommitFacts.of(last[run_id]).hwm if run_id in last else None
            is_complete = hwm is not None and hwm.mark is not None and hwm.mark.snapshot_left() is None
            if told == "SUCCESS" and not is_complete:
                yield f"run {run_id} is {told} in history, and has not completed what it began"
            if told in ("NO_DATA", "LOST") and is_complete:
                yield f"run {run_id} is {told} in history, and the target's log has its last commit"


def sweep(kills: int, folder: Path, options: Options, *, seed: int = 2013) -> Tally:
    """Make so many kills in projects below ``folder``; those in which something was found stay there.

    Raises:
        RuntimeError: the JDBC drivers are not there and cannot be fetched.
    """
    draw, jars = random.Random(seed), jdbc_jars()
    if not jars:
        raise RuntimeError("the JDBC drivers are not there and cannot be fetched")
    chosen = scenarios()
    points = [
        replace(point, often=any(part in point.function for part in _STEPS))
        for point in POINTS
        if point.needs != "ledger"
    ]
    tally = Tally(kills, points, dict.fromkeys(chosen, 1 / len(chosen)), draw, options.say)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(server(name)) for name in SERVERS}
        while not tally.enough:
            until = tally.kills + KILLS_OF_A_JVM
            options.say("starting Spark")
            with open_lanes(1, folder, jars=jars) as (lane,):
                while not tally.enough and tally.kills < until:
                    _live(lane, tally, folder, draw, servers)
    return tally


def _live(lane: Lane, tally: Tally, folder: Path, draw: random.Random, servers: dict[str, Server]) -> None:
    scenario, number = tally.next_project()
    root, on = folder / f"{number:04}", servers[scenario.name.partition(",")[0]]
    box = DatabaseBox(root, scenario, on, delta_state=number % 2 == 0, draw=draw)
    verdict = Story(box, lane, tally, SnapshotWatch(box), folder / "odi.log", draw, PROTOCOL).tell()
    tally.found(verdict, f"{scenario.name} ({root})")
    if verdict.clean:
        shutil.rmtree(root, ignore_errors=True)
    box.close()


def kills(options: Options) -> list[Row]:
    """Kills in snapshots and increments; no row may be lost or repeated."""
    folder = Path(tempfile.mkdtemp(prefix="odi-snapshot-kills-"))
    tally = sweep(options.kills, folder, options)
    if tally.verdict.clean:
        shutil.rmtree(folder, ignore_errors=True)
    for name, number in Counter(tally.by_point).most_common():
        options.say(f"  {number:5} at {name}")
    return [
        counted("kills in snapshots and increments", tally.kills, f">= {options.kills}", tally.kills >= options.kills),
        counted("rows lost", tally.verdict.losses, "0", not tally.verdict.losses),
        counted("rows repeated", tally.verdict.duplicates, "0", not tally.verdict.duplicates),
        counted("other findings", len(tally.verdict.others), "0", not tally.verdict.others),
        counted("points that no kill reached", len(tally.unreached), "0", not tally.unreached),
    ]
