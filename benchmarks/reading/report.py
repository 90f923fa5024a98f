"""The sweep of edits as rows of a report."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Row
from benchmarks.reading.edits import TO_A_COPY, keys_without_edits
from benchmarks.reading.sweep import CURSORS, KINDS, Tally, sweep

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of Spark: an edit moves a dozen rows, and compiled plans cost more than they save."""


def edits(options: Options) -> list[Row]:
    """Edits of each key of the models: rows lost or repeated in silence, and stops that lead nowhere."""
    return _rows(options, KINDS)


def cursors(options: Options) -> list[Row]:
    """The same, of nodes that follow an SQL table by cursors."""
    return _rows(options, CURSORS)


def pairs(options: Options) -> list[Row]:
    """Two edits that one run meets together."""
    return _rows(options, KINDS, at_once=2)


def places(options: Options) -> list[Row]:
    """An edit that one run meets together with another place of the source, which has a copy of it."""
    return _rows(options, KINDS, beside=[TO_A_COPY])


def _rows(options: Options, kinds: Sequence[str], **how: Any) -> list[Row]:
    from benchmarks.reading.server import started
    from benchmarks.snapshots.lab import session
    from odi_assets.cli.run.command import quiet_libraries

    folder = Path(tempfile.mkdtemp(prefix="odi-reading-"))
    options.say(f"starting Spark and a database; seeds from {options.seed} on")
    quiet_libraries()
    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    spark = session()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        with started() as server:
            tally = sweep(spark, options.steps, options.seed, folder, options.say, server, kinds=kinds, **how)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    options.say(in_words(tally))
    found = {
        "rows lost or repeated in silence": tally.silent,
        "tracebacks": tally.tracebacks,
        "dead ends": tally.dead_ends,
        "stops without need": tally.needless,
    }
    missing = keys_without_edits()
    return [
        Row("edits", tally.edits, None, "", None, f">= {options.steps}", tally.edits >= options.steps),
        Row("keys without edits", len(missing), None, ", ".join(sorted(missing)), None, "0", not missing),
        *(Row(name, len(findings), None, "", None, "0", not findings) for name, findings in found.items()),
    ]


def in_words(tally: Tally) -> str:
    """What became of the edits."""
    remedies = ", ".join(f"{count} by {name}" for name, count in tally.remedies.most_common())
    return (
        f"{tally.edits} edits: {tally.went_on} went on, {tally.stopped} stopped, {len(tally.refused)} were refused; "
        f"stops ended: {remedies}"
    )
