"""The sweep: projects of every scenario, one after the other in each lane, until there were enough kills."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.kill_sweep.attempt import PROTOCOL
from benchmarks.kill_sweep.box import Box
from benchmarks.kill_sweep.check import RowsWatch, Watch
from benchmarks.kill_sweep.lab import Lane, open_lanes
from benchmarks.kill_sweep.points import NAIVE_POINTS, POINTS
from benchmarks.kill_sweep.scenarios import NAIVE, SCENARIOS, WHOLE
from benchmarks.kill_sweep.story import Story
from benchmarks.kill_sweep.tally import Tally

LANES = 2
KILLS_OF_A_JVM = 250
"""What a killed child held of the JVM, the JVM keeps: after some 600 kills it does nothing but collect garbage."""
WHOLE_SHARE = 0.02
"""Which part of the kills take an ``odi run`` with all its processes."""


def sweep(
    kills: int, folder: Path, say: Callable[[str], None], *, whole_share: float = WHOLE_SHARE, seed: int = 2013
) -> Tally:
    """Make so many kills in projects below ``folder``; projects in which something was found stay there."""
    draw = random.Random(seed)
    each = (1 - whole_share) / len(SCENARIOS)
    weights = {**dict.fromkeys(SCENARIOS, each), **({WHOLE: whole_share} if whole_share else {})}
    tally = Tally(kills, POINTS, weights, draw, say)
    while not tally.enough:
        until = tally.kills + KILLS_OF_A_JVM
        say("starting Spark")
        with open_lanes(LANES, folder) as lanes, ThreadPoolExecutor(LANES) as pool:
            ends = [pool.submit(_live, lane, tally, folder, random.Random(draw.random()), until) for lane in lanes]
            for end in ends:
                end.result()
    return tally


def sweep_naive(order: str, kills: int, folder: Path, say: Callable[[str], None], *, seed: int = 2013) -> Tally:
    """The same with a writer that has no protocol (see ``naive``), and of what must hold the rows alone."""
    draw = random.Random(seed)
    tally = Tally(kills, NAIVE_POINTS, {NAIVE: 1.0}, draw, say)
    with open_lanes(1, folder, spark=False) as (lane,):
        _live(lane, tally, folder, draw, math.inf, order)
    return tally


def _live(lane: Lane, tally: Tally, folder: Path, draw: random.Random, until: float, kind: str = PROTOCOL) -> None:
    while not tally.enough and tally.kills < until:
        scenario, number = tally.next_project()
        root = folder / f"{number:04}"
        box = Box(root, scenario, delta_state=number % 2 == 0, draw=draw)
        watch = Watch(box) if kind == PROTOCOL else RowsWatch(box)
        verdict = Story(box, lane, tally, watch, folder / "odi.log", draw, kind).tell()
        tally.found(verdict, f"{scenario.name} ({root})")
        if verdict.clean or kind != PROTOCOL:
            # A JVM whose driver was killed may still be writing there.
            shutil.rmtree(root, ignore_errors=True)
