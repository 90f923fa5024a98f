"""Each partition of a table is backfilled beside increments: what it holds then, against arithmetic."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Options, Row
from benchmarks.partitions.cases import Case, Part, cases
from odi_assets.errors import ConfigError
from odi_assets.nodes.request import Bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets_tests.nodes.support import Sandbox

MODES = ("append", "partition_overwrite", "upsert, keys: [id]")
_PIPELINE = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, at KIND", options: {header: "true"},
       incremental: files}
    partition: PARTITION
    write: {connection: lake, path: raw, mode: MODE}
"""
_UNDECIDED = ("TIMESTAMP_NTZ", "INT")
"""Types that do not say to which of two hours a row belongs that the clock shows alike."""


@dataclass(frozen=True)
class Range:
    """Partitions that are backfilled together.

    Attributes:
        ids: the rows that they hold.
    """

    parts: tuple[Part, ...]
    ids: frozenset[int]


def ranges(case: Case) -> list[Range]:
    """The ranges of single partitions; of two hours that the clock shows alike, where the type does not part them."""
    groups: list[list[Part]] = []
    for part in case.parts:
        together = case.kind in _UNDECIDED and part.shared
        if together and groups and groups[-1][-1].shared:
            groups[-1].append(part)
        else:
            groups.append([part])
    undecided = {number for number, (_, key) in case.rows.items() if key is None}
    found = []
    for group in groups:
        keys = {part.key for part in group}
        ids = {number for number, (_, key) in case.rows.items() if key in keys}
        shared = case.kind in _UNDECIDED and group[0].shared
        found.append(Range(tuple(group), frozenset(ids | (undecided if shared else set()))))
    return found


def lived(case: Case, mode: str, spark: SparkSession, folder: Path, draw: random.Random) -> list[str]:
    """Let increments and backfills of each partition make a table; what is wrong with it at any moment."""
    from odi_assets_tests.nodes.support import Sandbox

    folder.mkdir(parents=True)
    partition = ", ".join(f"{name}: {value}" for name, value in case.config.items())
    text = _PIPELINE.replace("KIND", case.kind).replace("MODE", mode).replace("PARTITION", f"{{{partition}}}")
    box, found = Sandbox(folder, spark, text), list[str]()
    first, every = {number for number in case.rows if number % 2}, set(case.rows)
    _land(box, "a.csv", case, first)
    there = set[int]()
    if mode != "partition_overwrite":
        box.run("raw")
        there = set(first)
    _land(box, "b.csv", case, every - first)
    order = ranges(case)
    draw.shuffle(order)
    for one in [*order, order[0]]:
        found += [f"{part.key} was not refused" for part in one.parts if len(one.parts) > 1 and not _refused(box, part)]
        result = box.run("raw", start=one.parts[0].start.isoformat(), end=one.parts[-1].end.isoformat())
        loaded = one.ids & first if mode == "append" else one.ids
        there |= loaded
        what = " ".join(part.key for part in one.parts)
        if mode != MODES[2] and result.rows_written != len(loaded):
            found.append(f"{what}: {result.rows_written} rows written, and {len(loaded)} are its own")
        found += wrong(box, there, what)
    box.run("raw")
    return [f"{case}, {mode}: {line}" for line in [*found, *wrong(box, every, "the increment")]]


def _land(box: Sandbox, name: str, case: Case, ids: set[int]) -> None:
    box.land(name, ["id,at", *(f"{number},{case.rows[number][0]}" for number in sorted(ids))])


def _refused(box: Sandbox, part: Part) -> bool:
    try:
        box.run("raw", bounds=Bounds.of(part.start, part.end))
    except ConfigError as error:
        return "twice" in str(error)
    return False


def wrong(box: Sandbox, wanted: set[int], after: str) -> list[str]:
    """What the table lacks of the rows ``wanted``, and has besides or twice."""
    ids = [row[0] for row in box.rows("raw")]
    if sorted(ids) == sorted(wanted):
        return []
    lost, more = sorted(wanted - set(ids)), sorted(set(ids) - wanted)
    return [f"after {after}: lost {lost}, not its own {more}, {len(ids) - len(set(ids))} repeated"]


def chosen(steps: int, seed: int) -> list[tuple[Case, str]]:
    """As many cases as asked for, each with a write mode: all lengths and types alike often."""
    draw, every = random.Random(seed), [(case, mode) for case in cases() for mode in MODES]
    by_kind: dict[tuple[str, str], list[tuple[Case, str]]] = {}
    for case, mode in every:
        by_kind.setdefault((case.every, case.kind), []).append((case, mode))
    for one in by_kind.values():
        draw.shuffle(one)
    found = [one[at] for at in range(max(map(len, by_kind.values()))) for one in by_kind.values() if at < len(one)]
    return found[:steps]


def sweep(tables: Sequence[tuple[Case, str]], spark: SparkSession, seed: int, options: Options) -> list[str]:
    """What is wrong with any of the tables."""
    draw, found = random.Random(seed), list[str]()
    folder = Path(tempfile.mkdtemp(prefix="odi-partitions-"))
    try:
        for number, (case, mode) in enumerate(tables):
            lines = lived(case, mode, spark, folder / str(number), draw)
            found += lines
            for line in lines or [f"{case}, {mode}: as it should be"]:
                options.say(f"{number + 1}/{len(tables)} {line}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def backfills(options: Options) -> list[Row]:
    """Tables whose partitions are backfilled, one by one, beside increments."""
    from benchmarks.snapshots.lab import session

    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    spark, tables = session(), chosen(options.steps, options.seed)
    try:
        found = sweep(tables, spark, options.seed, options)
    finally:
        spark.stop()
    return [
        Row("tables", len(tables), None, "", None, f">= {min(options.steps, len(tables))}", True),
        Row("rows lost, repeated, or in another partition", len(found), None, "", None, "0", not found),
    ]
