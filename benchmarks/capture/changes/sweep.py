"""The sweep: one life after the other, until there were enough steps."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.capture.changes.kinds import Kind
from benchmarks.capture.changes.life import Life, Violation
from benchmarks.capture.changes.mariadb import server as mariadb
from benchmarks.capture.changes.mariadb.steps import KINDS as OF_MARIADB
from benchmarks.capture.changes.postgres import server as postgres
from benchmarks.capture.changes.postgres.steps import KINDS as OF_POSTGRES
from benchmarks.capture.changes.server import ServerInHand
from benchmarks.harness import Options, Row
from odi_assets.sources.cdc.binlog import mariadb as of_mariadb
from odi_assets.sources.cdc.binlog import mysql as of_mysql
from odi_assets.sources.cdc.postgres import waiting

_PATIENCE = 1.0
"""Seconds for which runs wait for open transactions."""
_FINDINGS = 12
"""So many violations end a sweep."""
Started = Callable[[Path], AbstractContextManager[ServerInHand]]


def changes(options: Options) -> list[Row]:
    """Tables of PostgreSQL, publications, slots, the project and the server change between captures; tables are equal,
    or a run stops and names what leads on."""
    return _changes(options, postgres.started, OF_POSTGRES)


def mysql_changes(options: Options) -> list[Row]:
    """The same of MySQL."""
    return _changes(options, mariadb.started_mysql, OF_MARIADB)


def mariadb_changes(options: Options) -> list[Row]:
    """The same of MariaDB, with its log and sessions in the place of slots and publications."""
    return _changes(options, mariadb.started, OF_MARIADB)


def _changes(options: Options, started: Started, kinds: Mapping[str, Kind]) -> list[Row]:
    """A sweep of steps of a database's kinds."""
    from odi_assets.cli.run.command import quiet_libraries
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    quiet_libraries()
    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    session = open_session(SparkConfig(master="local[2]", conf={"spark.sql.shuffle.partitions": "1"}))
    try:
        lives, found = _sweep(options, session.spark, started, kinds)
    finally:
        session.stop()
    for name in ("steps", "remedies"):
        for what, number in sum((getattr(life, name) for life in lives), Counter()).most_common():
            options.say(f"  {number:5} {what}")
    steps, kills = sum(sum(life.steps.values()) for life in lives), sum(life.kills for life in lives)
    options.say(f"{len(lives)} lives, {sum(life.runs for life in lives)} runs, {sum(one.stops for one in lives)} stops")
    counts = Counter(one.kind for one in found)
    return [
        Row("steps between captures", steps, None, "", None, f">= {options.steps}", steps >= options.steps),
        Row("runs killed among them", kills, None, "", None, "", None),
        *(
            Row(name, counts[kind], None, "", None, "0", not counts[kind])
            for name, kind in (
                ("silent differences", "silent"),
                ("stops that do not lead on", "dead end"),
                ("tracebacks", "traceback"),
                ("stops without need", "needless stop"),
            )
        ),
    ]


def _sweep(
    options: Options, spark: Any, started: Started, kinds: Mapping[str, Kind]
) -> tuple[list[Life], list[Violation]]:
    """Lives of the seeds from ``options.seed`` on, and what was found in them."""
    lives: list[Life] = []
    found: list[Violation] = []
    waiting._PATIENCE = of_mariadb.PATIENCE = of_mysql.PATIENCE = _PATIENCE
    folder = Path(tempfile.mkdtemp(prefix="odi-capture-changes-"))
    with tempfile.TemporaryDirectory(prefix="odi-capture-server-") as data, started(Path(data)) as server:
        while sum(sum(life.steps.values()) for life in lives) < options.steps and len(found) < _FINDINGS:
            life = Life(options.seed + len(lives), server, kinds, folder / "world", spark)
            lives.append(life)
            violation = life.live()
            if violation is not None:
                found.append(violation)
                options.say(f"  --seed {life.seed} --steps 1: {violation.kind}: {violation.what}")
                for line in life.told:
                    options.say(f"    {line}")
            if len(lives) % 10 == 0:
                options.say(f"  {sum(sum(life.steps.values()) for life in lives)} steps, {len(found)} violations")
    shutil.rmtree(folder, ignore_errors=True)
    return lives, found
