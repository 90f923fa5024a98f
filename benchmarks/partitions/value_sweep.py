"""Tables whose partitions are values: as many as asked for, all forms and types alike often."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from pathlib import Path

from benchmarks.harness import Options, Row
from benchmarks.partitions.values import lived_by_values, value_cases


def backfills(options: Options) -> list[Row]:
    """Tables whose partitions of values are run, one by one and several, beside increments."""
    from benchmarks.snapshots.lab import session

    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    draw, tables, found = random.Random(options.seed), value_cases(), list[str]()
    draw.shuffle(tables)
    spark, folder = session(), Path(tempfile.mkdtemp(prefix="odi-partitions-"))
    try:
        for number, case in enumerate(tables[: options.steps]):
            lines = lived_by_values(case, spark, folder / str(number), draw)
            found += lines
            for line in lines or [f"{case}: as it should be"]:
                options.say(f"{number + 1}/{min(options.steps, len(tables))} {line}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    made = min(options.steps, len(tables))
    return [
        Row("tables of values", made, None, "", None, f">= {made}", True),
        Row(
            "rows lost, repeated, in another partition, or loaded into none", len(found), None, "", None, "0", not found
        ),
    ]
