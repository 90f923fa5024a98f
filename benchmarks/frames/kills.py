"""The sweep: an asset's process is killed after its commit, others commit, and a process with another hash seed tries
again. What the table holds is compared with a model in plain Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.frames.process import write
from benchmarks.harness import Options, Row

MODES = ("append", "upsert", "partition_overwrite")
SEEDS = (1, 2, 3, 4)
"""Of the hashes of the process that is killed; the next one tries again."""


@dataclass(frozen=True)
class Case:
    """One table: who is killed at which partitions, and who commits before it is tried again."""

    shape: str
    mode: str
    between: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.mode}-{self.between}-{self.seed}"

    @property
    def days(self) -> list[str]:
        """The partitions of the run that is killed."""
        return _days(0, 1 if self.shape == "one" else 4)

    def others(self) -> Iterator[tuple[str, list[str]]]:
        """The runs that commit in between, with their partitions."""
        ranges = [(2, 4), (0, 4), (1, 2)]
        for number in range(self.between):
            first, length = ranges[number % 3] if self.shape == "overlapping" else (10 + number, 1)
            yield f"other {number}", _days(first, length)

    def expected(self) -> Counter[tuple[str, str]]:
        """Day and run of each row, if every run is committed once."""
        rows: list[tuple[str, str]] = []
        for run, days in [("killed", self.days), *self.others()]:
            kept = rows if self.mode == "append" else [row for row in rows if row[0] not in days]
            rows = [*kept, *((day, run) for day in days)]
        return Counter(rows)


@dataclass
class Tally:
    """What the sweep found, by the names of cases."""

    cases: int
    twice: list[str]
    lost: list[str]
    written_again: list[str]


def sweep(folder: Path, between: Sequence[int], seeds: Sequence[int] = SEEDS) -> Tally:
    """Try all shapes and modes with so many commits in between, each with every hash seed."""
    cases = [Case(*parts) for parts in product(("one", "range", "overlapping"), MODES, between, seeds)]
    for seed in seeds:
        _in_process(folder, [case for case in cases if case.seed == seed], seed, "killed")
    for case in cases:
        for run, days in case.others():
            write(folder, case.name, case.mode, days, run)
    again: set[str] = set()
    for seed in seeds:
        own = [case for case in cases if case.seed == seed]
        again |= {name for name, wrote in _in_process(folder, own, seed + 1, "reports").items() if wrote}
    tally = Tally(len(cases), [], [], sorted(again))
    for case in cases:
        found, expected = _rows(folder / case.name), case.expected()
        tally.twice += [case.name] if found - expected else []
        tally.lost += [case.name] if expected - found else []
    return tally


def rows(options: Options) -> list[Row]:
    """Kills between commit and report, with up to 400 commits before the next attempt."""
    folder = Path(tempfile.mkdtemp(prefix="odi-frames-"))
    options.say("3 shapes × 3 write modes × 0, 60 and 400 commits in between × 4 hash seeds")
    try:
        tally = sweep(folder, (0, 60, 400))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = {"rows twice": tally.twice, "rows lost": tally.lost, "attempts written again": tally.written_again}
    return [
        Row("kills between commit and report", tally.cases, None, "", None, ">= 108", tally.cases >= 108),
        *(Row(name, len(cases), None, "", None, "0", not cases) for name, cases in found.items()),
    ]


def _in_process(folder: Path, cases: Sequence[Case], seed: int, end: str) -> dict[str, bool]:
    wanted = json.dumps({case.name: (case.mode, case.days) for case in cases})
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks.frames.process import main; main()", str(folder), wanted, end],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        stdout=subprocess.PIPE,
        text=True,
        check=end != "killed",
    )
    committed: dict[str, bool] = json.loads(done.stdout)
    return committed


def _rows(path: Path) -> Counter[tuple[str, str]]:
    found = pa.table(DeltaTable(str(path)).scan(columns=["day", "run"])).to_pylist()
    return Counter((row["day"], row["run"]) for row in found)


def _days(first: int, length: int) -> list[str]:
    return [(date(2024, 1, 1) + timedelta(days=first + number)).isoformat() for number in range(length)]
