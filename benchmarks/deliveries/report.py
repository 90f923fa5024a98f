"""The sweep of deliveries as rows of a report."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from benchmarks.deliveries.sweep import drawn, sweep
from benchmarks.harness import Options, Row


def files(options: Options) -> list[Row]:
    """Files with faults by their grammar: each row is loaded as Python's parsers read it, kept aside, or named."""
    from odi_assets.cli.run.command import quiet_libraries
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    folder = Path(tempfile.mkdtemp(prefix="odi-deliveries-"))
    options.say(f"starting Spark; seeds {options.seed} to {options.seed + options.steps - 1}")
    quiet_libraries()
    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    session = open_session(SparkConfig(master="local[2]", conf={"spark.sql.shuffle.partitions": "1"}))
    try:
        tally = sweep(session.spark, drawn(options.steps, options.seed), folder, options.say)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    options.say(f"{tally.loaded} loaded, {tally.rescued} of them with rows kept aside, {tally.stopped} stopped")
    for finding in (*tally.unclear, *tally.needless):
        options.say(f"  {finding}")
    found = {
        "lost or changed in silence": tally.silent,
        "stops that do not name the file": tally.unclear,
        "stops without need": tally.needless,
    }
    return [
        Row("files", tally.files, None, "", None, f">= {options.steps}", tally.files >= options.steps),
        *(Row(name, len(findings), None, "", None, "0", not findings) for name, findings in found.items()),
    ]
