"""Somebody else writes a node's table."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from benchmarks.change_sweep.birth import any_choice
from benchmarks.change_sweep.changes.change import Change
from benchmarks.change_sweep.landing import arrow, new_rows
from benchmarks.change_sweep.model import table_rows
from benchmarks.change_sweep.world import World, row


def _a_target(world: World, draw: random.Random) -> Path | None:
    targets = {
        home.target(at)
        for home in world.homes
        for at in home.nodes()
        if at.node["write"]["mode"] in ("append", "upsert", "append_once")
    }
    return any_choice(draw, [path for path in sorted(targets) if world.typed and _is_as_expected(world, path)])


def _is_as_expected(world: World, path: Path) -> bool:
    return DeltaTable.is_deltatable(str(path)) and table_rows(path) == Counter(world.expected(path).rows)


def append(world: World, draw: random.Random) -> str | None:
    if (path := _a_target(world, draw)) is None:
        return None
    rows = [{**one, "id": one["v"]} for one in new_rows(world, draw, 1)]
    write_deltalake(str(path), arrow(rows), mode="append")
    expected = world.expected(path)
    world.tables[str(path)] = replace(expected, rows=expected.rows | {row(one) for one in rows})
    return f"somebody appends to {path.name}"


def overwrite(world: World, draw: random.Random) -> str | None:
    if (path := _a_target(world, draw)) is None:
        return None
    write_deltalake(str(path), arrow(new_rows(world, draw, 2)), mode="overwrite")
    world.rewrite(path)
    return f"somebody overwrites {path.name}"


def restore(world: World, draw: random.Random) -> str | None:
    path = _a_target(world, draw)
    if path is None or not DeltaTable(str(path)).version():
        return None
    table = DeltaTable(str(path))
    before = table_rows(path)
    version = draw.randrange(table.version())
    table.restore(version)
    if table_rows(path) == before:
        return f"somebody restores {path.name} to version {version}, which holds the same rows"
    world.rewrite(path)
    return f"somebody restores {path.name} to version {version}"


def drop(world: World, draw: random.Random) -> str | None:
    if (path := _a_target(world, draw)) is None:
        return None
    shutil.rmtree(path)
    world.rewrite(path)
    return f"somebody drops {path.name}"


def compact(world: World, draw: random.Random) -> str | None:
    if (path := _a_target(world, draw)) is None:
        return None
    DeltaTable(str(path)).optimize.compact()
    return f"somebody compacts {path.name}"


CHANGES = (
    Change("another's append", append),
    Change("another's compaction", compact, weight=1),
    Change("another's overwrite", overwrite, may_stop=True, weight=1),
    Change("another's restore", restore, may_stop=True, weight=1),
    Change("another's drop", drop, may_stop=True, weight=1),
)
