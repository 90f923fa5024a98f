"""How a world begins: one project, with a source of some kind and a few nodes below."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

from benchmarks.change_sweep.world import Config, Home, World

T = TypeVar("T")
SourceKind = Literal[
    "files", "files by a column", "versions of a table", "a table by a column", "csv shapes", "json shapes",
    "parquet shapes", "folders of days",
]  # fmt: skip
SOURCES: tuple[SourceKind, ...] = SourceKind.__args__  # type: ignore[attr-defined]
_SCHEMA = "id BIGINT, v BIGINT, w BIGINT, day DATE"
_HEADER = {"header": "true"}
_READS: dict[SourceKind, Config] = {
    "files": {"format": "csv", "path": "in/*.csv", "schema": _SCHEMA, "options": _HEADER},
    "files by a column": {"format": "csv", "path": "in/*.csv", "schema": _SCHEMA, "options": _HEADER},
    "versions of a table": {"format": "delta", "path": "in"},
    "a table by a column": {"format": "delta", "path": "in"},
    "csv shapes": {"format": "csv", "path": "in", "options": _HEADER},
    "json shapes": {"format": "json", "path": "in"},
    "parquet shapes": {"format": "parquet", "path": "in"},
    "folders of days": {"format": "parquet", "path": "in"},
}
_SIX_DIGITS = 100_000
"""Where columns are text, cursors of one length have the order of numbers."""
BY_COLUMN: Config = {"mode": "stateful", "column": "v"}


def born(root: Path, draw: random.Random) -> World:
    """A new world below ``root``."""
    kind = draw.choice(SOURCES)
    shapes = kind.endswith("shapes")
    ids_again = not shapes and draw.random() < 0.3
    world = World(root, [], typed=not shapes, ids_again=ids_again, landed=0 if not shapes else _SIX_DIGITS)
    raw = _raw(kind, draw, upsert=ids_again)
    below = _below(draw, appended=raw["write"]["mode"] == "append", shapes=shapes)
    pipelines = [{"pipeline": "p", "nodes": [raw, *below]}]
    if below and draw.random() < 0.3:
        for node in below:
            node["inputs"]["raw"]["node"] = "p.raw"
        pipelines = [{"pipeline": "p", "nodes": [raw]}, {"pipeline": "q", "nodes": below}]
    config: Config = {
        "project": "sweep",
        "connections": {name: {"type": "local", "base_path": path} for name, path in _places(draw).items()},
        "pipelines": pipelines,
        # A life is alone with its tables: what fails at once fails for good.
        "retry": {"retries": 1, "base_delay": 0.01, "jitter": 0},
    }
    if draw.random() < 0.5:
        config["system"] = {"connection": "lake", "path": "system"}
    home = Home(root / "home", config)
    home.save()
    for name in config["connections"]:
        home.place(name).mkdir(parents=True, exist_ok=True)
    world.homes.append(home)
    return world


def _places(draw: random.Random) -> dict[str, str]:
    up = draw.choice(("", "../"))
    return {"landing": f"{up}landing", "lake": f"{up}lake"}


def _raw(kind: SourceKind, draw: random.Random, *, upsert: bool) -> Config:
    write: Config = {"connection": "lake", "path": "raw", "mode": "append"}
    if upsert:
        write |= {"mode": "upsert", "keys": ["id"], "only_if_newer": "v"}
    elif kind.endswith("shapes") and draw.random() < 0.7:
        write["schema"] = "evolve"
    if kind.startswith("versions"):
        increment: Config = {"mode": "version"}
    elif kind.endswith("column"):
        increment = dict(BY_COLUMN)
    else:
        increment = {"mode": "files"}
    return {"name": "raw", "read": {"connection": "landing", **_READS[kind], "incremental": increment}, "write": write}


def _below(draw: random.Random, *, appended: bool, shapes: bool) -> list[Config]:
    increments = [{"mode": "version"}] if shapes else [{"mode": "version"}, {"mode": "version"}, dict(BY_COLUMN)]
    found = []
    evolve: Config = {"schema": "evolve"} if shapes else {}
    writes: dict[str, Config] = {"newest": {"mode": "upsert", "keys": ["id"], "only_if_newer": "v", **evolve}}
    writes["whole"] = {"mode": "overwrite"}
    if appended:
        writes["copy"] = {"mode": "append", **evolve}
    if not shapes:
        writes["days"] = {"mode": "partition_overwrite"}
    for name in draw.sample(sorted(writes), draw.choice((0, 1, 1, 2))):
        given: Config = {"node": "raw"}
        if name != "whole":
            given["incremental"] = dict(draw.choice(increments)) if name != "days" else {"mode": "version"}
        node: Config = {"name": name, "inputs": {"raw": given}, "transform": {"sql": "SELECT * FROM raw"}}
        if name == "days":
            node["transform"]["sql"] = "SELECT day, count(*) AS n, sum(v) AS total FROM raw GROUP BY day"
            node["partition"] = {"column": "day", "every": "day", "start": "2024-01-01"}
        node["write"] = {"connection": "lake", "path": name, **writes[name]}
        found.append(node)
    return found


def any_choice(draw: random.Random, given: Sequence[T]) -> T | None:
    """One of ``given``; None if there is none."""
    return draw.choice(given) if given else None
