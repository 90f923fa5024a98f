"""The sweep of damage, the power cuts and the cost of fsync as rows of a report."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.damage.power_cut import recorded
from benchmarks.damage.sweep import Tally, drawn, sweep
from benchmarks.damage.world import WORLDS, World
from benchmarks.harness import Options, Row

_ROUNDS = 7
_WHOLE_RUNS = 3


def files(options: Options) -> list[Row]:
    """Any file damaged in any way: doctor sees it, no command breaks down, and the remedies lead to right rows."""
    tally = Tally()
    with _folder(options) as folder:
        for number, kind in enumerate(WORLDS):
            world = World(folder / f"world{number}", kind)
            world.build()
            steps = len(range(number, options.steps, len(WORLDS)))
            sweep(world, drawn(world.root, steps, options.seed), options.say, tally)
    options.say(f"{tally.damages} files damaged, {tally.harmless} of no effect, {tally.remedies} remedies followed")
    found = {
        "damage that doctor does not see": tally.silent,
        "tracebacks and `bugs`": tally.breakdowns,
        "stops that name no remedy": tally.mute,
        "ways named that fail or change nothing": tally.void,
        "dead ends": tally.dead_ends,
    }
    return [
        Row("damage x command", tally.commands, None, "", None, ">= 1000", tally.commands >= 1000),
        *(Row(name, len(findings), None, "", None, "0", not findings) for name, findings in found.items()),
    ]


def power_cut(options: Options) -> list[Row]:
    """The power fails after each run: all that was acknowledged is there."""
    lost, cuts = 0, 0
    with _folder(options) as folder:
        for number, (kind, names_survive) in enumerate(itertools.product(WORLDS, (False, True))):
            world = World(folder / f"world{number}", kind)
            world.build(1)
            with recorded(world.root) as disk:
                for _ in range(3):
                    world.land()
                    _require_done(world)
                    disk.take_all(world.root / "landing")
                    disk.cut(names_survive=names_survive)
                    cuts += 1
                    wrong, doctor = world.wrong(), world.odi("doctor --deep")
                    if wrong or doctor.code:
                        lost += 1
                        options.say(f"  {kind}, after a power cut: {wrong} {doctor.text}")
    return [
        Row("power cuts after a run", cuts, None, "", None, ">= 30", cuts >= 30),
        Row("acknowledged rows, marks or files lost", lost, None, "", None, "0", lost == 0),
    ]


def fsync(options: Options) -> list[Row]:
    """Seconds of a run over one new file, with fsync and without, in turn; and the share of fsync in a run."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    shares, wholes, spent = [], [], []
    with _folder(options) as folder:
        world = World(folder / "world")
        world.build(2)
        text = (world.root / "odibi.yaml").read_text(encoding="utf-8")
        without = text.replace("lake: {type: local,", "lake: {type: local, fsync: false,")
        with recorded(world.root) as disk:
            for _ in range(_ROUNDS):
                for on in seconds:
                    (world.root / "odibi.yaml").write_text(text if on else without, encoding="utf-8")
                    world.land()
                    before, waited, began = disk.fsyncs, disk.seconds, time.perf_counter()
                    _require_done(world)
                    seconds[on].append(time.perf_counter() - began)
                    if on:
                        count = disk.fsyncs - before
                        spent.append(disk.seconds - waited)
                        shares.append(spent[-1] / seconds[on][-1])
        (world.root / "odibi.yaml").write_text(text, encoding="utf-8")
        for _ in range(_WHOLE_RUNS):
            world.land()
            wholes.append(_command(world))
    share = statistics.median(spent) / statistics.median(wholes)
    ours, bare = (statistics.median(seconds[on]) for on in (True, False))
    return [
        Row("fsyncs of a run of four nodes", count, None, "", None, "counted", None),
        Row("share of fsync in a run in a warm session", statistics.median(shares), None, "", None, "counted", None),
        Row("share of fsync in a whole command", share, None, "", None, "<= 0.05", share <= 0.05),
        Row("a run in a warm session, s", ours, bare, "fsync: false", ours / bare, "<= 1.05 x", ours <= 1.05 * bare),
    ]


def _command(world: World) -> float:
    """Seconds of ``odi run`` in a process of its own."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from odi_assets.cli import main; raise SystemExit(main(['run']))"],
        cwd=world.root, check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def _require_done(world: World) -> None:
    done = world.odi("run")
    if done.code:
        raise RuntimeError(done.text)


@contextmanager
def _folder(options: Options) -> Iterator[Path]:
    """A folder for worlds, and the session that their commands share."""
    from odi_assets.cli.run.command import quiet_libraries
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    folder = Path(tempfile.mkdtemp(prefix="odi-damage-"))
    options.say("starting Spark")
    os.environ["ODI_SPARK_LOG_LEVEL"] = "fatal"
    quiet_libraries()
    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    session = open_session(SparkConfig(master="local[2]", conf={"spark.sql.shuffle.partitions": "1"}))
    try:
        yield folder
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
