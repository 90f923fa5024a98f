"""Partitions that are values, listed or as they come, alone or beside days: each is backfilled beside increments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.partitions.sweep import wrong
from odi_assets.errors import OdiError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets_tests.nodes.support import Sandbox

FORMS = ("listed", "dynamic", "days and listed", "days and dynamic")
MODES = ("append", "partition_overwrite", "upsert, keys: [id]", "upsert, keys: [id, day, v]")
TIED = "append, rows at the mark"
"""An appending node whose cursor is one value for all rows that are there: others come to the mark later."""
VALUES = {
    "STRING": ("eu", "us", "O'Neil", "ü", "1"),
    "INT": ("7", "-3", "2024", "0"),
    "BIGINT": ("9223372036854775807", "1"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("2024-02-29", "2024-03-01"),
}
"""By type of the column, values that are partitions."""
STRAYS = {"STRING": "EU", "INT": "8", "BIGINT": "2", "BOOLEAN": "", "DATE": "2024-03-02"}
"""By type of the column, a value that no list has; NULL where the lists have all."""
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
_PIPELINE = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, day DATE, v KIND",
       options: {header: "true"}, incremental: files}
    partition: PARTITION
    write: {connection: lake, path: raw, mode: MODE}
"""


@dataclass(frozen=True)
class ValueCase:
    """A node whose partitions are values of one type."""

    kind: str
    form: str
    mode: str

    def __str__(self) -> str:
        return f"{self.form} {self.kind}, {self.mode}"

    @property
    def of_days(self) -> bool:
        return self.form.startswith("days")

    @property
    def rows(self) -> dict[int, tuple[str, str]]:
        """Two rows of each value and day, by their ids."""
        pairs = [*product(DAYS, VALUES[self.kind])] * 2
        return dict(enumerate(pairs))

    @property
    def pipeline(self) -> str:
        listed = ", ".join("'" + value.replace("'", "''") + "'" for value in VALUES[self.kind])
        values = "values: dynamic" if "dynamic" in self.form else f"values: [{listed}]"
        own = f"column: v, {values}"
        partition = f"column: day, start: 2024-01-01, and: {{{own}}}" if self.of_days else own
        text = _PIPELINE.replace("KIND", self.kind).replace("PARTITION", f"{{{partition}}}")
        if self.mode == TIED:
            closed = "incremental: {mode: stateful, column: n, boundary: closed}"
            text = text.replace("incremental: files", closed).replace(f"v {self.kind}", f"v {self.kind}, n INT")
        return text.replace("MODE", self.mode.partition(",")[0] if self.mode == TIED else self.mode)

    def parts(self) -> Iterator[tuple[dict[str, Any], frozenset[int]]]:
        """Each partition, and some of several, as a run takes it; and the ids of its rows, by arithmetic."""
        values = VALUES[self.kind]
        for some in [*((value,) for value in values), values[:2]]:
            for first, days in enumerate(DAYS) if self.of_days else [(0, "")]:
                bounds = {"start": days, "end": [*DAYS[1:], "2024-01-04"][first]} if self.of_days else {}
                ids = [number for number, (day, value) in self.rows.items() if value in some and day in (days or day)]
                yield {**bounds, "partitions": some}, frozenset(ids)
        if self.of_days:
            yield {"partitions": values[:1]}, frozenset(n for n, (_, v) in self.rows.items() if v == values[0])
            whole = {"start": DAYS[0], "end": DAYS[2]}
            yield whole, frozenset(number for number, (day, _) in self.rows.items() if day != DAYS[2])


def value_cases() -> list[ValueCase]:
    """All of them."""
    return [ValueCase(*one) for one in product(VALUES, FORMS, (*MODES, TIED))]


def lived_by_values(
    case: ValueCase, spark: SparkSession, folder: Path, draw: random.Random, most: int = 6
) -> list[str]:
    """Let increments and runs of partitions make a table; what is wrong with it at any moment.

    Args:
        most: how many runs of partitions it has.
    """
    from odi_assets_tests.nodes.support import Sandbox

    folder.mkdir(parents=True)
    box, rows, found = Sandbox(folder, spark, case.pipeline), case.rows, list[str]()
    if case.mode == TIED:
        return [f"{case}: {line}" for line in _tied(box, case, draw, most)]
    first, there = {number for number in rows if number % 3}, set[int]()
    _land(box, "a.csv", case, first)
    if case.mode != "partition_overwrite":
        box.run("raw")
        there = set(first)
    _land(box, "b.csv", case, set(rows) - first)
    parts = list(case.parts())
    draw.shuffle(parts)
    for how, ids in [*parts[: most - 1], parts[0]]:
        result = box.run("raw", **how)
        own = ids & first if case.mode == "append" else ids
        there |= own
        if result.rows_written != len(own) and "upsert" not in case.mode:
            found.append(f"{how}: {result.rows_written} rows written, and {len(own)} are its own")
        found += wrong(box, there, str(how))
    box.run("raw")
    found += wrong(box, set(rows), "the increment")
    if case.mode == "upsert, keys: [id]":
        found += _moved(box, case, parts)
    box.land("stray.csv", ["id,day,v", f"1000,{DAYS[0]},{STRAYS[case.kind]}"])
    if "listed" in case.form:
        found += _refused(box, case)
    else:
        box.run("raw")
    found += wrong(box, {*rows, *([] if "listed" in case.form else [1000])}, "a row of another value")
    return [f"{case}: {line}" for line in found]


def _tied(box: Sandbox, case: ValueCase, draw: random.Random, most: int) -> list[str]:
    """Runs of partitions between two increments take no row that came to the mark since: the second one loads it."""
    first, found = {number for number in case.rows if number % 3}, list[str]()
    _land(box, "a.csv", case, first, n=1)
    box.run("raw")
    _land(box, "b.csv", case, set(case.rows) - first, n=1)
    parts = list(case.parts())
    draw.shuffle(parts)
    for how, _ in parts[:most]:
        box.run("raw", **how)
        found += wrong(box, first, str(how))
    box.land("c.csv", ["id,day,v,n", f"1000,{DAYS[0]},{VALUES[case.kind][0]},2"])
    box.run("raw")
    return [*found, *wrong(box, {*case.rows, 1000}, "the increment")]


def _moved(box: Sandbox, case: ValueCase, parts: list[tuple[dict[str, Any], frozenset[int]]]) -> list[str]:
    """Let a newer file move keys to other partitions: no run of a partition may bring their older rows back."""
    pairs, found = [*product(DAYS, VALUES[case.kind])], list[str]()
    next_to = dict(zip(pairs, [*pairs[1:], pairs[0]], strict=True))
    moved = {number: next_to[pair] for number, pair in case.rows.items() if number % 4 == 0}
    box.land("c.csv", ["id,day,v", *(f"{number},{','.join(pair)}" for number, pair in moved.items())])
    box.run("raw")
    newest = box.rows("raw")
    for how, _ in parts[:3]:
        try:
            box.run("raw", **how)
        except OdiError as error:
            if "only_if_newer" not in str(error):
                found.append(f"{how}: the remedy is not named: {error}")
        if box.rows("raw") != newest:
            found.append(f"{how}: older rows of keys that were moved are back")
            newest = box.rows("raw")
    return found


def _refused(box: Sandbox, case: ValueCase) -> list[str]:
    try:
        box.run("raw")
    except OdiError as error:
        stray = STRAYS[case.kind] or "NULL"
        named = f"has `v` = {stray}, which is none of its partitions" in str(error)
        return [] if named else [f"{stray} is not named: {error}"]
    return ["a row of no partition was loaded"]


def _land(box: Sandbox, name: str, case: ValueCase, ids: set[int], n: int | None = None) -> None:
    header, cursor = ("id,day,v", "") if n is None else ("id,day,v,n", f",{n}")
    box.land(name, [header, *(f"{number},{','.join(case.rows[number])}{cursor}" for number in sorted(ids))])
