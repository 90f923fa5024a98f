"""A project on a temporary folder, its source, and what is seen of its target without Spark."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from benchmarks.kill_sweep.scenarios import Rows, Scenario, SourceRow
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project

KEY = NodeKey("p", "target")
FIRST_DAY = date(2024, 1, 1)
DAYS = 6
_HEAD = """\
project: sweep
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
"""
_DELTA_STATE = "system: {connection: lake, path: system}\n"
_SPARK = """\
spark: {master: "local[1]", conf: {spark.sql.shuffle.partitions: "1"}}
"""

_KNOWN = """\
  - name: known
    read: {connection: landing, format: delta, path: known}
    write: {connection: lake, path: known, mode: overwrite}
"""


class Box:
    """One project: ``landed`` is all that its source ever got."""

    def __init__(
        self, root: Path, scenario: Scenario, *, delta_state: bool, draw: random.Random, connections: str = ""
    ) -> None:
        self.root = root
        self.scenario = scenario
        self.delta_state = delta_state
        self.landed: list[SourceRow] = []
        self._draw = draw
        (root / "landing").mkdir(parents=True)
        text = _HEAD + connections + _SPARK + (_DELTA_STATE if delta_state else "")
        text += f"pipelines:\n- pipeline: p\n  nodes:\n  - name: target\n{scenario.node}"
        if scenario.known:
            text += _KNOWN
            write_deltalake(str(root / "lake" / "known"), pa.table({"third": pa.array([1, 2], pa.int64())}))
        self.file = root / "odibi.yaml"
        self.file.write_text(text, encoding="utf-8")
        self.project = Project.load(self.file)
        self.state = self.project.open_state()
        self.target = root / "lake" / "target"

    def land(self) -> None:
        """New rows, whole or not at all for whoever reads meanwhile."""
        rows = [self._new_row(len(self.landed) + nth) for nth in range(self._draw.randint(1, 6))]
        if self.scenario.source == "files":
            self._land_file(rows)
        else:
            write_deltalake(str(self.root / "landing" / "source"), _table(rows), mode="append")
        self.landed += rows

    def _new_row(self, v: int) -> SourceRow:
        again = self.scenario.ids_again and v and self._draw.random() < 0.5
        identity = self._draw.randrange(v) if again else v
        return SourceRow(identity, v, FIRST_DAY + timedelta(days=self._draw.randrange(DAYS)))

    def _land_file(self, rows: list[SourceRow]) -> None:
        text = "\n".join(["id,v,day", *(f"{row.id},{row.v},{row.day}" for row in rows)])
        # Names that begin with a dot are none of a source's.
        scratch = self.root / "landing" / ".landing"
        scratch.write_text(text + "\n", encoding="utf-8")
        scratch.replace(self.root / "landing" / f"{rows[0].v:08}.csv")

    @property
    def expected(self) -> Rows:
        """What the target must hold once a run was left alone."""
        return self.scenario.model(self.landed)

    @property
    def quarantined(self) -> tuple[Rows, Rows]:
        """What the quarantine must hold once a run was left alone, and what it holds."""
        expected = Counter() if self.scenario.bad is None else self.scenario.bad(self.landed)
        return expected, self._rows_of(self.root / "lake" / "target_bad")

    def version(self) -> int:
        """The target's version; -1 before there is one."""
        try:
            return DeltaTable(str(self.target)).version()
        except TableNotFoundError:
            return -1

    def rows(self, version: int | None = None) -> Rows:
        """The target's rows, in the order of its model's columns."""
        return self._rows_of(self.target, version)

    def _rows_of(self, table: Path, version: int | None = None) -> Rows:
        try:
            found = DeltaTable(str(table), version=version).to_pyarrow_table()
        except TableNotFoundError:
            return Counter()
        names = [name for name in ("id", "v", "day", "n", "total") if name in found.column_names]
        return Counter(zip(*(found[name].to_pylist() for name in names), strict=True))

    def position(self, hwm: Any) -> Any:
        """Where in its source an HWM stands: something that grows."""
        if not isinstance(hwm, dict):
            return hwm
        return hwm["version"] if "version" in hwm else (hwm["mtime_ns"], hwm["path"])


def _table(rows: list[SourceRow]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("day", pa.date32())])
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
