"""The sweep of damage, the power cuts and the cost of fsync as rows of a report."""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from benchmarks.damage.power_cut import recorded
from benchmarks.damage.sweep import drawn, sweep
from benchmarks.damage.world import World
from benchmarks.harness import Options, Row

_ROUNDS = 7


def files(options: Options) -> list[Row]:
    """Any file damaged in any way: doctor sees it, no command breaks down, and the remedies lead to right rows."""
    with _world(options) as world:
        world.build()
        tally = sweep(world, drawn(world.root, options.steps, options.seed), options.say)
    options.say(f"{tally.damages} files damaged, {tally.harmless} of no effect, {tally.remedies} remedies followed")
    found = {
        "damage that doctor does not see": tally.silent,
        "tracebacks and `bugs`": tally.breakdowns,
        "stops that name no remedy": tally.mute,
        "dead ends": tally.dead_ends,
    }
    return [
        Row("damage x command", tally.commands, None, "", None, ">= 1000", tally.commands >= 1000),
        *(Row(name, len(findings), None, "", None, "0", not findings) for name, findings in found.items()),
    ]


def power_cut(options: Options) -> list[Row]:
    """The power fails after each run: all that was acknowledged is there."""
    lost, cuts = 0, 0
    for names_survive in (False, True):
        with _world(options) as world:
            world.build(1)
            with recorded(world.root) as disk:
                for _ in range(3):
                    world.land()
                    _require_done(world)
                    disk.take_all(world.root / "landing")
                    disk.cut(names_survive=names_survive)
                    cuts += 1
                    wrong = world.wrong()
                    if wrong or world.odi("doctor --deep").code:
                        lost += 1
                        options.say(f"  after a power cut: {wrong} {world.odi('doctor --deep').text}")
    return [
        Row("power cuts after a run", cuts, None, "", None, ">= 6", cuts >= 6),
        Row("acknowledged rows, marks or files lost", lost, None, "", None, "0", lost == 0),
    ]


def fsync(options: Options) -> list[Row]:
    """Seconds of a run over one new file, with fsync and without, in turn."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with _world(options, nodes="batch") as world:
        world.build(2)
        text = (world.root / "odibi.yaml").read_text(encoding="utf-8")
        without = text.replace("lake: {type: local,", "lake: {type: local, fsync: false,")
        with recorded(world.root) as disk:
            for _ in range(_ROUNDS):
                for on in seconds:
                    (world.root / "odibi.yaml").write_text(text if on else without, encoding="utf-8")
                    world.land()
                    before, began = disk.fsyncs, time.perf_counter()
                    _require_done(world)
                    seconds[on].append(time.perf_counter() - began)
                    if on:
                        count = disk.fsyncs - before
    ours, bare = (statistics.median(seconds[on]) for on in (True, False))
    return [
        Row("fsyncs of a run of four nodes", count, None, "", None, "counted", None),
        Row("a run in a warm session, s", ours, bare, "fsync: false", ours / bare, "<= 1.05 x", ours <= 1.05 * bare),
    ]


def _require_done(world: World) -> None:
    done = world.odi("run")
    if done.code:
        raise RuntimeError(done.text)


@contextmanager
def _world(options: Options, *, nodes: Literal["all", "batch"] = "all") -> Iterator[World]:
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
        yield World(folder / "world", nodes=nodes)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
