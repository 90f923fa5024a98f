"""Hand-overs from snapshots to the log while others write. The log is applied by a few lines of Python, not by ours."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.capture import mariadb, mysql, postgres
from benchmarks.harness import Options, Row
from odi_assets.sources.cdc import source as captures
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets_tests.sources.sql.servers import Server

_LIVES = 100
_SECONDS = 4.0
"""How long writers go on at least."""
Rows = dict[str, dict[str, list[str | None]]]


def handovers(options: Options) -> list[Row]:
    """Tables of PostgreSQL are captured under writers, again and again; each time they have to be what the database
    holds."""
    return _handovers(options, postgres)


def mariadb_handovers(options: Options) -> list[Row]:
    """The same of MariaDB."""
    return _handovers(options, mariadb)


def mysql_handovers(options: Options) -> list[Row]:
    """The same of MySQL."""
    return _handovers(options, mysql)


def _handovers(options: Options, lab: Any) -> list[Row]:
    """Hand-overs of the database that the functions of a module are about."""
    wrong, rows, steps = 0, 0, 0
    lives = min(options.steps, _LIVES)
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, lab.started() as server:
        for number in range(lives):
            log, made = _life(lab, server, Path(folder), options.seed + number)
            rows, steps = rows + len(log), steps + made
            differences = log_differences(lab, server, log)
            wrong += len(differences)
            if number % 10 == 9:
                options.say(f"  {number + 1} of {lives} hand-overs")
            for one in differences[:3]:
                options.say(f"  seed {options.seed + number}: {one}")
    options.say(f"{lives} hand-overs in {steps} steps, {rows:,} rows of change logs")
    return [
        Row(f"hand-overs under writers, {server.name}", lives, None, "", None, f">= {lives}", lives > 0),
        Row(f"rows that differ from the database, {server.name}", wrong, None, "", None, "0", wrong == 0),
    ]


def _life(lab: Any, server: Server, folder: Path, seed: int) -> tuple[list[dict[str, Any]], int]:
    """The change log of one capture, and in how many steps it was read."""
    chance = random.Random(seed)
    lab.emptied(server)
    found = lab.source(server, folder, lab.TABLES, chance.choice([20, 100, 400]))
    captures.MOST_CHANGES = chance.choice([50, 500, 5000])
    log: list[dict[str, Any]] = []
    mark: CaptureMark | None = None
    steps, began = 0, time.monotonic()
    with lab.written(server, seed):
        while mark is None or time.monotonic() - began < _SECONDS:
            mark, made = _run(found, mark, log, chance)
            steps += made
    _, made = _run(found, mark, log, chance)
    return log, steps + made


def _run(
    found: captures.LogSource, mark: CaptureMark | None, log: list[dict[str, Any]], chance: random.Random
) -> tuple[CaptureMark, int]:
    """The steps of one run: it reads up to where the log ended when it began."""
    until, steps = None, 0
    while True:
        step, until = found.bounded(until).step(mark)
        log += step.rows.to_pylist()
        # As commits store it.
        mark, steps = CaptureMark.of(step.after.value, "capture"), steps + 1
        if chance.random() < 0.7:
            found.acknowledge(mark)
        if not step.more:
            return mark, steps


def log_differences(lab: Any, server: Server, log: list[dict[str, Any]]) -> list[str]:
    """Where the rows that a log gives differ from the database's, and gaps in its numbers."""
    if [row["n"] for row in log] != list(range(1, len(log) + 1)):
        return ["the numbers of the log have gaps"]
    ours, found = _applied(log), []
    for name in lab.TABLES:
        theirs, held = lab.held(server, name), ours.get(lab.captured(name), {})
        found += [
            f"{name} {key}: the database has {str(theirs.get(key))[:60]}, the log {str(held.get(key))[:60]}"
            for key in sorted({*theirs, *held})
            if theirs.get(key) != held.get(key)
        ]
    return found


def _applied(log: list[dict[str, Any]]) -> Rows:
    tables: Rows = {}
    gone: list[str | None] | None = None
    for row in log:
        held = tables.setdefault(row["table"], {})
        if row["op"] == "s":
            continue
        if row["op"] == "t":
            held.clear()
            continue
        (key,) = row["key"]
        if row["op"] == "d":
            gone = held.pop(key, None)
            continue
        former = gone if row["op"] == "c" else held.get(key)
        values = list(row["after"])
        for place in row["unchanged"] or ():
            values[place] = former[place] if former is not None else None
        held[key] = values
    return tables
