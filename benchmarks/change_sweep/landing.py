"""How rows land: files of each format, some of a shape of their own, and tables that somebody writes with deltalake."""

from __future__ import annotations

import csv
import json
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from benchmarks.change_sweep.world import Home, NodeAt, World

FIRST_DAY, DAYS = date(2024, 1, 1), 6
_APART = 1000
"""How far ``w`` is ahead of ``v``: a mark of one means nothing for the other."""
Columns = dict[str, Any]


def new_rows(world: World, draw: random.Random, count: int) -> list[Columns]:
    """Rows that never landed. ``v`` grows with each, and so does ``w``; an ``id`` may come again."""
    found = []
    extra = [name for name in ("a", "b") if draw.random() < 0.5]
    for _ in range(count):
        world.landed += 1
        v = world.landed
        again = world.ids_again and v > 1 and draw.random() < 0.5
        one: Columns = {"id": draw.randrange(1, v) if again else v, "v": v}
        if world.typed:
            one |= {"w": v + _APART, "day": (FIRST_DAY + timedelta(days=draw.randrange(DAYS))).isoformat()}
        else:
            one |= {name: f"{name}{v}" for name in extra}
        found.append(one)
    if world.typed:
        return found
    order = draw.sample(sorted(found[0]), len(found[0]))
    return [{name: one[name] for name in order} for one in found]


def land(world: World, home: Home, at: NodeAt, draw: random.Random) -> None:
    """New rows in the source of a node that reads one."""
    rows, source = new_rows(world, draw, draw.randint(1, 3)), home.source(at)
    if at.node["read"]["format"] == "delta":
        write_deltalake(str(source), arrow(rows), mode="append")
    else:
        write_file(_place(world, home, at, rows[0]), _of_one_day(rows) if in_days(world, at) else rows)


def write_file(file: Path, rows: list[Columns]) -> None:
    """A file of rows, in the format of its name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Names that begin with a dot are none of a source's.
    scratch = file.with_name(f".{file.name}")
    if file.suffix == ".csv":
        with scratch.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    elif file.suffix == ".json":
        scratch.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    else:
        hive = any("=" in part for part in file.parent.parts)
        pq.write_table(pa.Table.from_pylist([_without_day(one) if hive else one for one in rows]), scratch)
    scratch.replace(file)


def _place(world: World, home: Home, at: NodeAt, first: Columns) -> Path:
    kind, source = at.node["read"]["format"], home.source(at)
    name = f"{world.new_name('f')}.{kind}"
    return source / f"day={first['day']}" / name if in_days(world, at) else source / name


def in_days(world: World, at: NodeAt) -> bool:
    """Whether the folders of a landing zone name the day."""
    return world.typed and at.node["read"]["format"] == "parquet"


def _of_one_day(rows: list[Columns]) -> list[Columns]:
    return [{**one, "day": rows[0]["day"]} for one in rows]


def _without_day(one: Columns) -> Columns:
    return {name: value for name, value in one.items() if name != "day"}


def arrow(rows: list[Columns]) -> pa.Table:
    """Rows with the types of a table."""
    typed = [{**one, "day": date.fromisoformat(one["day"])} if "day" in one else one for one in rows]
    return pa.Table.from_pylist(typed)
