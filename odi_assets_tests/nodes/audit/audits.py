"""Random tables, and damage to them: what an audit has to find, by pandas, and its commands, followed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.audit.found import Audit
from odi_assets_tests.nodes.support import Sandbox

Row = tuple[int, datetime, str | None]
FIRST = datetime(2024, 3, 1)
DAYS = 6
MODES = {
    "append": "mode: append",
    "append by partitions": "mode: append",
    "append_once": "mode: append_once, keys: [id]",
    "upsert": "mode: upsert, keys: [id]",
    "partition_overwrite": "mode: partition_overwrite",
}
DAMAGE = ["delete", "other value", "null", "repeat", "stranger"]
"""What :func:`damage_table` does to a table."""
PARTITIONED = {"append by partitions", "partition_overwrite"}


def node(read: str, mode: str) -> str:
    """A pipeline of one node."""
    made = "\n    partition: {column: day, every: day, start: 2024-03-01}" if mode in PARTITIONED else ""
    return f"""
- pipeline: p
  nodes:
  - name: events
    read: {{{read}}}{made}
    write: {{connection: lake, path: events, {MODES[mode]}}}
"""


def random_rows(chance: random.Random, first: int, count: int, days: Iterable[int]) -> list[Row]:
    """Rows of new ids at whole seconds of some days."""
    found, choices = [], list(days)
    for number in range(first, first + count):
        at = FIRST + timedelta(days=chance.choice(choices), seconds=chance.randrange(86_400))
        found.append((number, at, chance.choice([None, "a", "b", "ü"])))
    return found


def audited(box: Sandbox, by: str | None = None) -> Audit:
    return audit(box.project, box.spark, box.state, NodeKey("p", "events"), by)


def stored(box: Sandbox) -> list[Row]:
    """The rows of the table, read without our code."""
    table = DeltaTable(str(box.root / "lake" / "events")).to_pyarrow_table(columns=["id", "at", "v"])
    times = [value.replace(tzinfo=None) for value in table["at"].to_pylist()]
    return list(zip(table["id"].to_pylist(), times, table["v"].to_pylist(), strict=True))


def differing_days(source: Iterable[Row], table: Iterable[Row]) -> set[str]:
    """The days on which the rows are not the same, each as often as it is there."""
    sides = []
    for rows in (source, table):
        frame = pd.DataFrame(rows, columns=["id", "at", "v"])
        frame["day"] = [f"{at:%Y-%m-%d}" for _, at, _ in rows]
        frame["v"] = frame["v"].fillna("\0")
        sides.append(frame.groupby(["day", "id", "at", "v"]).size())
    both = pd.concat(sides, axis=1).fillna(0)
    return set(both[both[0] != both[1]].index.get_level_values("day"))


def damage_table(box: Sandbox, chance: random.Random, rows: list[Row], kinds: Iterable[str]) -> None:
    """Change the table behind the back of the node."""
    place = str(box.root / "lake" / "events")
    for kind in kinds:
        number, at, value = chance.choice(rows)
        if kind == "delete":
            DeltaTable(place).delete(f"id = {number}")
        elif kind == "other value":
            DeltaTable(place).update(predicate=f"id = {number}", updates={"v": "'other'"})
        elif kind == "null":
            DeltaTable(place).update(predicate=f"id = {number}", updates={"v": "NULL"})
        elif kind == "repeat":
            _add(place, number, at, value)
        elif kind == "stranger":
            _add(place, 10_000 + number, at, value)


def _add(place: str, number: int, at: datetime, value: str | None) -> None:
    schema = pa.schema(DeltaTable(place).schema().to_arrow())
    known: dict[str, Any] = {"id": number, "at": at, "v": value, "day": at.date()}
    columns = {name: pa.array([known[name]], schema.field(name).type) for name in schema.names}
    write_deltalake(place, pa.table(columns), mode="append")


def follow(box: Sandbox, found: Audit) -> None:
    """Do what the commands say."""
    for command in dict.fromkeys(one.command for one in found.differing):
        assert command is not None
        words = command.split()
        assert words[:5] == ["odi", "run", "p", "--node", "events"], command
        if words[5:] == ["--full-refresh"]:
            box.run("events", full_refresh=True, accept_loss=True)
            return
        assert (words[5], words[7]) == ("--from", "--to"), command
        box.run("events", start=words[6], end=words[8])
