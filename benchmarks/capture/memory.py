"""What a transaction that is larger than memory takes of the process that captures it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.capture import postgres
from benchmarks.harness import Options, Row

_FEW, _MANY = 1000, 5_000_000
"""Changes of one transaction."""
_BAR = 300.0
"""Megabytes beside what a small transaction takes."""


def memory(options: Options) -> list[Row]:
    """Peaks of ``odi run`` in a process of its own; its JVM is another process."""
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as name, postgres.started() as server:
        folder = Path(name)
        postgres.emptied(server)
        with postgres.opened(server) as database:
            database.execute("CREATE TABLE big (id bigint PRIMARY KEY, a text, b text, c numeric(12,2))")
            postgres.source(server, folder, ("big",), 1000)
            _peak(folder)
            peaks, first = [], 1
            for count in (_FEW, _MANY):
                options.say(f"a transaction of {count:,} changes")
                rows = (
                    "SELECT g, 'abc' || g, md5(g::text), mod(g, 1000000) * 1.5 FROM generate_series(%s::int, %s::int) g"
                )
                database.execute(f"INSERT INTO big {rows}", [first, first + count - 1])
                first += count
                peaks.append(_peak(folder))
        _require_all(folder)
    more = peaks[1] - peaks[0]
    name = f"MB that a transaction of {_MANY:,} changes takes, beside one of {_FEW:,}"
    return [Row(name, more, None, "", None, f"<= {_BAR:.0f}", more <= _BAR)]


def _peak(folder: Path) -> float:
    """The largest size of the process of a run, in MB."""
    run = subprocess.Popen([sys.executable, "-m", "odi_assets.cli", "run"], cwd=folder, stdout=sys.stderr)
    _, status, used = os.wait4(run.pid, 0)
    if status:
        raise RuntimeError(f"the run ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss / 1024


def _require_all(folder: Path) -> None:
    from odi_assets.connections.location import Location
    from odi_assets.delta.table import TableHandle

    files = TableHandle.open(Location(str(folder / "lake" / "changes"))).live_files
    found = sum(int(file.rows or 0) for file in files)
    if found < _FEW + _MANY:
        raise RuntimeError(f"the change log has {found:,} rows")
