"""The measures of ``python -m benchmarks start``."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.harness import Row, in_turn, timed_row
from benchmarks.start.lab import StartLab, makers, processes_of
from odi_assets.spark.jvm.archive import ARCHIVE_VARIABLE


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        rounds: of each contender, in turn.
        rows: of the large file; a million take 95 MB.
        makers: how many makers of archives are killed.
        runs, kills: how many runs are counted for processes that stay, and how many of these are killed.
    """

    rounds: int = 7
    rows: int = 1_500_000
    large_rounds: int = 5
    makers: int = 10
    runs: int = 50
    kills: int = 20


FULL = Sizes()
_BARE = f"bare script (pyspark {version('pyspark')}, deltalake {version('deltalake')})"


def _pair(lab: StartLab, name: str, rows: int, rounds: int, bar: float) -> Row:
    """`odi run` with a new file against the bare script with a file like it. Files are made between the commands."""
    bare_file, file = lab.land(rows, "bare"), lab.land(rows)

    def ours() -> float:
        nonlocal file
        seconds = lab.odi("run").seconds
        file = lab.land_again(file)
        return seconds

    taken = in_turn({"ours": ours, "bare": lambda: lab.bare(bare_file).seconds}, rounds)
    return timed_row(name, taken["ours"], taken["bare"], _BARE, bar)


def one_row(lab: StartLab, sizes: Sizes) -> Iterator[Row]:
    yield _pair(lab, "one new row, whole command, s", 1, sizes.rounds, 0.55)


def large(lab: StartLab, sizes: Sizes) -> Iterator[Row]:
    name = f"{sizes.rows:,} new rows of 8 columns as CSV, whole command, s"
    yield _pair(lab, name, sizes.rows, sizes.large_rounds, 0.85)


def nothing_new(lab: StartLab, sizes: Sizes) -> Iterator[Row]:
    lab.land(1)
    lab.odi("run")
    taken = [lab.odi("run").cpu for _ in range(sizes.rounds)]
    yield _cpu("nothing new, one node, CPU s", taken, 1.0)
    sample = lab.sample()
    lab.odi("run", "flights", where=sample)
    taken = [lab.odi("run", "flights", where=sample).cpu for _ in range(sizes.rounds)]
    yield _cpu("nothing new, the sample's eight nodes, CPU s", taken, 2.0)


def _cpu(name: str, taken: list[float], bar: float) -> Row:
    value = statistics.median(taken)
    return Row(name, value, None, "a bar of its own", None, f"≤ {bar}", value <= bar)


def first_command(lab: StartLab, sizes: Sizes) -> Iterator[Row]:
    """The command that finds no archive, against the same without archives at all."""
    folders = iter(range(1_000))

    def run(archive: Callable[[], str]) -> Callable[[], float]:
        def measured() -> float:
            lab.land(1)
            taken = lab.odi("run", environment={ARCHIVE_VARIABLE: archive()}).seconds
            _until_alone()
            return taken

        return measured

    contenders = {"first": run(lambda: str(lab.folder / f"cache-{next(folders)}")), "off": run(lambda: "off")}
    taken = in_turn(contenders, max(sizes.rounds // 2, 1))
    yield timed_row("first command of all, s", taken["first"], taken["off"], "the same, archives off", 1.1)


def _until_alone() -> None:
    """Wait for the process that makes an archive: the next measure is not about it."""
    while makers():
        time.sleep(0.2)


def killed_makers(lab: StartLab, sizes: Sizes) -> Iterator[Row]:
    """Whoever makes an archive is killed at a random moment: no later run may notice, and the last archive is whole."""
    draw = random.Random(7)
    cache = lab.folder / "cache"
    environment = {ARCHIVE_VARIABLE: str(cache)}
    for _ in range(sizes.makers):
        lab.land(1)
        lab.odi("run", environment=environment)
        time.sleep(draw.uniform(0.0, 20.0))
        for maker in makers():
            maker.kill()
    lab.odi("java", "prepare", environment=environment)
    _until_alone()
    ids, landed = lab.ids(), lab.landed()
    wrong = abs(landed - len(set(ids))) + len(ids) - len(set(ids))
    told = f"{sizes.makers} makers of archives were killed"
    yield Row(f"rows lost or repeated after {told}", wrong, None, "none", None, "0", wrong == 0)
    archives = len(list(cache.glob("*/archive.json")))
    left = len(list(cache.glob(".making-*"))) + len(processes_of(lab.folder)) + len(makers())
    yield Row(f"whole archives after {told}", archives, None, "none", None, "1", archives == 1)
    yield Row(f"folders and processes left after {told}", left, None, "none", None, "0", not left)


def left_behind(lab: StartLab, sizes: Sizes) -> Iterator[Row]:
    """Runs, of which some are killed at a random moment: rows that are missing or twice, and processes that stay."""
    draw = random.Random(5)
    killed = set(draw.sample(range(sizes.runs), sizes.kills))
    for number in range(sizes.runs):
        lab.land(1)
        run = lab.start("run")
        if number in killed:
            time.sleep(draw.uniform(0.1, 4.0))
            run.kill()
        run.wait()
    lab.odi("run")
    ends = time.monotonic() + 60
    while (left := processes_of(lab.folder)) and time.monotonic() < ends:
        time.sleep(0.2)
    ids, landed = lab.ids(), lab.landed()
    wrong = abs(landed - len(set(ids))) + len(ids) - len(set(ids))
    told = f"{sizes.runs} runs, {sizes.kills} of them killed"
    yield Row(f"rows lost or repeated after {told}", wrong, None, "none", None, "0", wrong == 0)
    yield Row(f"processes left after {told}", len(left), None, "none", None, "0", not left)


MEASURES: dict[str, Callable[[StartLab, Sizes], Iterator[Row]]] = {
    "one-row": one_row,
    "large": large,
    "nothing-new": nothing_new,
    "first-command": first_command,
    "killed-makers": killed_makers,
    "left-behind": left_behind,
}
