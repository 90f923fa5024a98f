"""What a change costs: from the messages of the log to rows of the change log, per CPU second of this process."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.capture.database import emptied, opened, source, started
from benchmarks.harness import Options, Row
from odi_assets.sources.cdc import source as captures

_CHANGES = 500_000
_DECODED = 400_000
_COLUMNS = "id int PRIMARY KEY, a text, b text, c numeric(12,2), d timestamptz"


def rates(options: Options) -> list[Row]:
    """Changes of five columns, in transactions of a thousand."""
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, started() as server:
        emptied(server)
        captures.MOST_CHANGES = 2 * _CHANGES
        found = source(server, Path(folder), "public.big", 1000)
        with opened(server) as database:
            database.execute(f"CREATE TABLE big ({_COLUMNS})")
            step, _ = found.step(None)
            found.acknowledge(step.after)
            options.say(f"writing {_CHANGES:,} rows")
            rows = "SELECT g, 'abc' || g, md5(g::text), g * 1.5, now() FROM generate_series(%s::int, %s::int) g"
            for first in range(1, _CHANGES, 1000):
                database.execute(f"INSERT INTO big {rows}", [first, first + 999])
        options.say("reading the log")
        began = time.process_time()
        step, _ = found.step(step.after)
        spent = time.process_time() - began
    changes = step.rows.num_rows - 1
    if changes != _CHANGES:
        raise RuntimeError(f"{changes:,} of {_CHANGES:,} changes are there")
    rate = changes / spent
    name = "changes per CPU second, to rows of the log"
    return [Row(name, rate, None, "", None, f">= {_DECODED:,}", rate >= _DECODED)]
