"""A sweep as rows: what was changed, and what was found."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.change_sweep.between import between as runs_between
from benchmarks.change_sweep.histories import CorrectionsLife, HistoryLife
from benchmarks.change_sweep.life import Life
from benchmarks.change_sweep.patterns import lives_of_patterns
from benchmarks.change_sweep.sweep import Tally, sweep
from benchmarks.change_sweep.zone.life import ZoneLife
from benchmarks.harness import Options, Row

_STEPS, _LOSSES, _REPEATS, _SILENT = "steps", "losses", "repeats", "silent"
_HISTORIES, _CORRECTIONS, _LANDING = 500, 300, 1000
"""How many steps the sweeps of histories, of corrections and of landing zones make, unless fewer are asked for."""
_OTHERS = "stops without need or without a way on"


def changes(options: Options) -> list[Row]:
    """Runs between changes; whatever was changed, a run is right, or it stops and names ways on that lead there."""
    return _swept(options, Life, options.steps)


def histories(options: Options) -> list[Row]:
    """Tables are put back from copies, branch and are restored."""
    return _swept(options, HistoryLife, min(options.steps, _HISTORIES))


def corrections(options: Options) -> list[Row]:
    """Rows that were read are corrected."""
    return _swept(options, CorrectionsLife, min(options.steps, _CORRECTIONS))


def landing(options: Options) -> list[Row]:
    """Files of a landing zone are moved, renamed, rewritten, copied, hidden, packed and put back."""
    return _swept(options, ZoneLife, min(options.steps, _LANDING))


def patterns(options: Options) -> list[Row]:
    """The pattern of a landing zone is edited, whether or not its files are there yet; each stop is adopted."""
    from pyspark.sql import SparkSession

    from odi_assets_tests.nodes.support import Sandbox

    steps = min(options.steps, _LANDING)
    with _session(options) as folder:
        spark = SparkSession.getActiveSession()
        assert spark is not None
        tally = lives_of_patterns(
            steps, folder, options.say, options.seed, lambda root, text: Sandbox(root, spark, text)
        )
    options.say(f"{tally.runs} runs, {tally.adopted} adoptions")
    return [
        _counted(_STEPS, tally.runs, f">= {steps}", tally.runs >= steps),
        _counted("lives with other rows than the files have", len(tally.wrong), "0", not tally.wrong),
    ]


def between(options: Options) -> list[Row]:
    """Runs commit between what a command reads."""
    with _session(options) as folder:
        found = runs_between(folder, options.say)
    options.say(f"{found.second} commands came second, and said so")
    silent = sum(one.kind == "silent" for one in found.violations)
    others = len(found.violations) - silent
    return [
        _counted("commands with a run between two of their looks", found.tried, ">= 100", found.tried >= 100),
        _counted(_SILENT, silent, "0", not silent),
        _counted(_OTHERS, others, "0", not others),
    ]


def _swept(options: Options, kind: type[Life], steps: int) -> list[Row]:
    with _session(options) as folder:
        tally = sweep(steps, folder, options.say, seed=options.seed, kind=kind)
    _tell_counts(tally, options)
    return [
        _counted(_STEPS, tally.steps, f">= {steps}", tally.steps >= steps),
        _counted(_LOSSES, tally.losses, "0", not tally.losses),
        _counted(_REPEATS, tally.repeats, "0", not tally.repeats),
        _counted(_SILENT, tally.silent, "0", not tally.silent),
        _counted(_OTHERS, tally.dead_ends, "0", not tally.dead_ends),
    ]


@contextmanager
def _session(options: Options) -> Iterator[Path]:
    """A folder, and an active Spark session that says little."""
    from odi_assets.cli.run.command import quiet_libraries
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    folder = Path(tempfile.mkdtemp(prefix="odi-change-sweep-"))
    options.say("starting Spark")
    quiet_libraries()
    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    session = open_session(SparkConfig(master="local[2]", conf={"spark.sql.shuffle.partitions": "1"}))
    try:
        yield folder
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def headline(rows: Sequence[Row]) -> str:
    """The result in a line."""
    found: Counter[str] = Counter()
    for row in rows:
        found[row.name] += int(row.ours)
    return " ".join(f"{name} {found[name]}" for name in (_STEPS, _LOSSES, _REPEATS, _SILENT))


def _tell_counts(tally: Tally, options: Options) -> None:
    options.say(f"{tally.lives} lives, {tally.runs} runs, {tally.stops} stops")
    for counts in (tally.by_change, tally.by_remedy):
        for name, number in counts.most_common():
            options.say(f"  {number:5} {name}")


def _counted(name: str, number: int, bar: str, holds: bool) -> Row:
    return Row(name, number, None, "", None, bar, holds)
