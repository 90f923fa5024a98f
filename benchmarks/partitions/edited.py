"""Parts of a table are run while the node's definition is another one, which is taken back then, or kept.

A part moves no mark. So nothing shows a later run what it did: it has to stop, or to leave rows that are right under
both definitions.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.harness import Options, Row
from odi_assets.errors import ConfigError, OdiError
from odi_assets.nodes.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets_tests.nodes.support import Sandbox

_DAYS = [date(2024, 1, number) for number in range(1, 5)]
_ROWS = {number: _DAYS[number % 3] for number in range(1, 10)}
_OTHER_ROWS = {number: _DAYS[number % 2] for number in range(101, 105)}
"""Rows of the source, and of another one, by their ids."""
_COLUMNS = 'schema: "id BIGINT, day DATE, at TIMESTAMP, seq BIGINT", options: {header: "true"}'
_FILES = f'read: {{connection: landing, format: csv, path: "a/*.csv", {_COLUMNS}, incremental: FOLLOWED}}'
_TABLE = "read: {connection: landing, format: delta, path: a/table, incremental: FOLLOWED}"
_INPUT = "inputs: {up: {node: up_a, incremental: FOLLOWED}}"
_BY_TIME = "{mode: stateful, column: at}"
SOURCES: Mapping[str, tuple[str, str]] = {
    "files": (_FILES, "files"),
    "files by a cursor": (_FILES, _BY_TIME),
    "a table by version": (_TABLE, "version"),
    "a table by a cursor": (_TABLE, _BY_TIME),
    "a node by version": (_INPUT, "version"),
}
MODES = ("partition_overwrite", "append", "overwrite", "append_once, keys: [id]", "upsert, keys: [id]",
         "upsert, keys: [id, day]")  # fmt: skip
HISTORIES = (("increment",), ("part",), ("part", "increment"), ("increment", "part"))
"""What made the table before the edit. A node that appends takes no part before its first increment."""
EDITS: Mapping[str, tuple[str, str]] = {
    "another source": ("a/", "b/"),
    "another node": ("up_a,", "up_b,"),
    "another day": ("day AS day", "date_add(day, 1) AS day"),
    "another cursor": ("column: at", "column: seq"),
    "no increment": (", incremental: FOLLOWED", ""),
    "other keys": ("keys: [id]", "keys: [id, seq]"),
}
_REBUILT = {"another source": _OTHER_ROWS, "another node": _OTHER_ROWS,
            "another day": {number: day + timedelta(1) for number, day in _ROWS.items()}}  # fmt: skip
"""By edit that changes the rows, what a table that is rebuilt has under it."""


@dataclass(frozen=True)
class EditedCase:
    """A node, what made its table, and how it is edited before a part of it is run."""

    source: str
    mode: str
    history: tuple[str, ...]
    edit: str

    def __str__(self) -> str:
        return f"{self.source}, {self.mode}, {' then '.join(self.history)}, {self.edit}"

    @property
    def is_one(self) -> bool:
        """Whether there is such a node, and it can be edited so."""
        takes_parts = self.mode != "append" or self.history[0] == "increment"
        return takes_parts and self.change[0] in self.pipeline.partition("- name: n\n")[2]

    @property
    def is_of_node(self) -> bool:
        """Whether its source is the table of another node."""
        return SOURCES[self.source][0] == _INPUT

    @property
    def change(self) -> tuple[str, str]:
        """The text that is edited, and what it becomes."""
        old, new = EDITS[self.edit]
        return old.replace("FOLLOWED", SOURCES[self.source][1]), new

    @property
    def pipeline(self) -> str:
        read, followed = SOURCES[self.source]
        return "\n".join(
            [
                "- pipeline: p",
                "  nodes:",
                *(_upstream(name) for name in ("a", "b") if read == _INPUT),
                "  - name: n",
                f"    {read.replace('FOLLOWED', followed)}",
                f'    transform: {{sql: "SELECT id, day AS day, at, seq FROM {"up" if read == _INPUT else "df"}"}}',
                "    partition: {column: day, every: day, start: 2024-01-01}",
                f"    write: {{connection: lake, path: n, mode: {self.mode}}}",
                "",
            ]
        )


def _upstream(name: str) -> str:
    read = _FILES.replace("a/", f"{name}/").replace("FOLLOWED", "files")
    return f"  - name: up_{name}\n    {read}\n    write: {{connection: lake, path: up_{name}, mode: append}}"


def edited_cases() -> list[EditedCase]:
    """All of them."""
    return [
        case for case in map(EditedCase, *zip(*product(SOURCES, MODES, HISTORIES, EDITS), strict=True)) if case.is_one
    ]


def lived_with_an_edit(case: EditedCase, spark: SparkSession, folder: Path, draw: random.Random) -> list[str]:
    """Make a table, run parts of it under the edit, and rebuild it or take the edit back; what is wrong then."""
    from odi_assets_tests.nodes.support import Sandbox

    folder.mkdir(parents=True)
    box = Sandbox(folder, spark, case.pipeline)
    _deliver(box, case, draw)
    for how in case.history:
        box.run("n", **(_part(draw) if how == "part" else {}))
    try:
        _edit(box, case)
    except ConfigError:
        return []
    stopped = [error for error in (_tried(box, _part(draw)) for _ in range(2)) if error is not None]
    findings = [f"no way on is named: {error}" for error in stopped if "→" not in error]
    if case.edit in _REBUILT and draw.random() < 0.4:
        box.run("n", full_refresh=True, accept_loss=True)
        findings += _wrong(box, _REBUILT[case.edit], f"{len(stopped)} of 2 parts stopped, and a full refresh")
        return [f"{case}: {line}" for line in findings]
    _edit(box, case, back=True)
    for how in [_part(draw), {}]:
        error = _tried(box, how)
        findings += [] if error is None else [f"it stops although the edit is taken back: {error}"]
    findings += _wrong(box, _ROWS, f"{len(stopped)} of 2 parts stopped, and the edit was taken back")
    return [f"{case}: {line}" for line in findings]


def _deliver(box: Sandbox, case: EditedCase, draw: random.Random) -> None:
    for name, rows in (("a", _ROWS), ("b", _OTHER_ROWS)):
        numbers = draw.sample(sorted(rows), len(rows))
        # In two files, so that one of them may hold all or a part of a day.
        for file, some in enumerate((numbers[:4], numbers[4:])):
            lines = [f"{number},{rows[number]},{rows[number]}T05:00:{number % 60:02},{number}" for number in some]
            box.land(f"{name}/{file}.csv", ["id,day,at,seq", *lines] if some else ["id,day,at,seq"])
        table = pa.table({"id": numbers, "day": [rows[number] for number in numbers], "seq": numbers})
        moments = pa.array([f"{rows[number]}T05:00:{number % 60:02}Z" for number in numbers])
        table = table.append_column("at", moments.cast(pa.timestamp("us", "UTC")))
        write_deltalake(str(box.root / "landing" / name / "table"), table)
        if case.is_of_node:
            box.run(f"up_{name}")


def _part(draw: random.Random) -> dict[str, Any]:
    first, last = sorted(draw.sample(range(len(_DAYS)), 2))
    return {"start": _DAYS[first].isoformat(), "end": _DAYS[last].isoformat()}


def _edit(box: Sandbox, case: EditedCase, *, back: bool = False) -> None:
    """Edit the project file, or take the edit back, and load it as a new process would."""
    file = box.root / "odibi.yaml"
    if back:
        file.write_text((box.root / "before.yaml").read_text("utf-8"), "utf-8")
    else:
        shutil.copy(file, box.root / "before.yaml")
        above, name, node = file.read_text("utf-8").partition("- name: n\n")
        file.write_text(above + name + node.replace(*case.change), "utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()


def _tried(box: Sandbox, how: dict[str, Any]) -> str | None:
    try:
        box.run("n", **how)
    except OdiError as error:
        return str(error)
    return None


def _wrong(box: Sandbox, wanted: Mapping[int, date], after: str) -> list[str]:
    rows = Counter((row[0], row[1]) for row in box.rows("n"))
    if rows == Counter(wanted.items()):
        return []
    lost, more = sorted(wanted.items() - rows.keys()), sorted((rows - Counter(wanted.items())).elements())
    return [f"after {after}: lost {lost}, not its own or repeated {more}"]


def edits(options: Options) -> list[Row]:
    """Nodes that are edited before parts of their tables are run: as many as asked for."""
    from benchmarks.snapshots.lab import session

    logging.getLogger("odi_assets").setLevel(logging.ERROR)
    draw, cases, findings = random.Random(options.seed), edited_cases(), list[str]()
    draw.shuffle(cases)
    spark, folder = session(), Path(tempfile.mkdtemp(prefix="odi-partitions-"))
    try:
        for number, case in enumerate(cases[: options.steps]):
            lines = lived_with_an_edit(case, spark, folder / str(number), draw)
            findings += lines
            for line in lines or [f"{case}: as it should be"]:
                options.say(f"{number + 1}/{min(options.steps, len(cases))} {line}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    made = min(options.steps, len(cases))
    return [
        Row("edited nodes", made, None, "", None, f">= {made}", True),
        Row(
            "rows of two sources or definitions, stops that do not end",
            len(findings),
            None,
            "",
            None,
            "0",
            not findings,
        ),
    ]
