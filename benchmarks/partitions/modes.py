"""A part of a table is run in one write mode, rows above the mark among it, and the next increment in another mode."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.harness import Options, Row
from benchmarks.partitions.edited import MODES, SOURCES, EditedCase
from odi_assets.errors import OdiError
from odi_assets.nodes.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets_tests.nodes.support import Sandbox

_ROWS = {number: date(2024, 1, 1) + timedelta(number % 3) for number in range(1, 10)}
_FIRST, _LATER = [1, 2, 3, 4, 5], [6, 7, 8, 9]
HISTORIES = (("increment", "rows"), ("increment", "rows", "part"), ("rows", "part"), ("part", "rows"))
"""What happens before the mode is edited: an increment, later rows that land, a part of all days."""


@dataclass(frozen=True)
class ModeCase:
    """A node, what made its table, and its next write mode."""

    source: str
    mode: str
    next_mode: str
    history: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source}, {self.mode}, {' then '.join(self.history)}, then {self.next_mode}"


def mode_cases() -> list[ModeCase]:
    """All of them. A node that appends takes no part before its first increment."""
    pairs = [(mode, other) for mode, other in product(MODES, MODES) if mode != other]
    cases = [ModeCase(source, *pair, history) for source, pair, history in product(SOURCES, pairs, HISTORIES)]
    return [case for case in cases if case.mode != "append" or case.history[0] == "increment"]


def lived_in_two_modes(case: ModeCase, spark: SparkSession, folder: Path) -> str | None:
    """Make a table in one mode and go on in the other; what is wrong then, and None if nothing is."""
    from odi_assets_tests.nodes.support import Sandbox

    folder.mkdir(parents=True)
    edited = EditedCase(case.source, case.mode, (), "no increment")
    box = Sandbox(folder, spark, edited.pipeline)
    _deliver(box, edited, _FIRST, 0)
    for step in case.history:
        if step == "rows":
            _deliver(box, edited, _LATER, 1)
        else:
            box.run("n", **({"start": "2024-01-01", "end": "2024-01-04"} if step == "part" else {}))
    file = box.root / "odibi.yaml"
    above, name, node = file.read_text("utf-8").partition("- name: n\n")
    file.write_text(above + name + node.replace(f"mode: {case.mode}}}", f"mode: {case.next_mode}}}"), "utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()
    try:
        box.run("n")
    except OdiError as error:
        return None if "→" in str(error) else f"{case}: no way on is named: {error}"
    rows = Counter((row[0], row[1]) for row in box.rows("n"))
    if rows == Counter(_ROWS.items()):
        return None
    lost, more = sorted(_ROWS.items() - rows.keys()), sorted((rows - Counter(_ROWS.items())).elements())
    return f"{case}: lost {lost}, repeated {more}"


def _deliver(box: Sandbox, case: EditedCase, numbers: list[int], file: int) -> None:
    moments = [f"2024-02-01T05:00:{number:02}" for number in numbers]
    lines = [f"{n},{_ROWS[n]},{at},{n}" for n, at in zip(numbers, moments, strict=True)]
    box.land(f"a/{file}.csv", ["id,day,at,seq", *lines])
    table = pa.table({"id": numbers, "day": [_ROWS[number] for number in numbers], "seq": numbers})
    times = pa.array([f"{at}Z" for at in moments]).cast(pa.timestamp("us", "UTC"))
    write_deltalake(str(box.root / "landing/a/table"), table.append_column("at", times), mode="append")
    if case.is_of_node:
        box.run("up_a")


def modes(options: Options) -> list[Row]:
    """Nodes whose write mode is edited after parts of their tables were run: as many as asked for."""
    from benchmarks.snapshots.lab import session

    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    cases, findings = mode_cases(), list[str]()
    random.Random(options.seed).shuffle(cases)
    spark, folder = session(), Path(tempfile.mkdtemp(prefix="odi-partitions-"))
    made = min(options.steps, len(cases))
    try:
        for number, case in enumerate(cases[:made]):
            finding = lived_in_two_modes(case, spark, folder / str(number))
            findings += [] if finding is None else [finding]
            options.say(f"{number + 1}/{made} {finding or f'{case}: as it should be'}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return [
        Row("nodes that go on in another write mode", made, None, "", None, f">= {made}", True),
        Row("of them, with rows lost or repeated", len(findings), None, "", None, "0", not findings),
    ]
