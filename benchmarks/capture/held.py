"""How much log a server keeps for a capture while nothing applies it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.capture import postgres
from benchmarks.harness import Options, Row
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.sources.cdc.source import LogSource

_PAUSE = 5.0
"""Seconds between two runs."""
_MB = 1 << 20


def held(options: Options) -> list[Row]:
    """A slot under writers, measured as the next run begins, when it holds most; no node applies the change log."""
    most = written = 0
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, postgres.started() as server:
        postgres.emptied(server)
        found = postgres.source(server, Path(folder), postgres.TABLES, 1000)
        mark, began = _captured(found, None), time.monotonic()
        with postgres.opened(server) as database, postgres.written(server, options.seed):
            ((start,),) = database.execute("SELECT pg_current_wal_lsn()").fetchall()
            while time.monotonic() - began < options.minutes * 60:
                time.sleep(_PAUSE)
                asked = "pg_wal_lsn_diff(pg_current_wal_lsn(), {})::bigint"
                query = f"SELECT {asked.format('restart_lsn')}, {asked.format('%s')} FROM pg_replication_slots"
                ((now, written),) = database.execute(query.encode(), [start]).fetchall()
                most = max(most, now)
                mark = _captured(found, mark)
    minute = written / options.minutes
    options.say(f"{written / _MB:,.0f} MB of log in {options.minutes:g} minutes")
    name = f"MB of log that a slot holds at most, of {written / _MB:,.0f} MB that are written while nothing is applied"
    return [Row(name, most / _MB, None, "", None, f"<= {minute / _MB:,.0f}, a minute's", most <= minute)]


def _captured(found: LogSource, mark: CaptureMark | None) -> CaptureMark:
    """The mark after the steps of one run."""
    until = None
    while True:
        step, until = found.bounded(until).step(mark)
        mark = step.after
        found.acknowledge(mark)
        if not step.more:
            return mark
