"""Lives of a landing zone: what reads it, and what the oracle says of each table."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import ClassVar

from deltalake import DeltaTable

from benchmarks.change_sweep.changes.change import Change
from benchmarks.change_sweep.judge import Violation
from benchmarks.change_sweep.life import Found, Life
from benchmarks.change_sweep.model import table_rows, table_version
from benchmarks.change_sweep.remedies import Remedy
from benchmarks.change_sweep.world import Config, Expected, Home, NodeAt, Row, World
from benchmarks.change_sweep.zone import oracle, ways_on
from benchmarks.change_sweep.zone.listing import files_in
from benchmarks.change_sweep.zone.moves import MOVES
from benchmarks.change_sweep.zone.oracle import Known

_WRITES: tuple[Config, ...] = (
    {"mode": "append"},
    {"mode": "append_once", "keys": ["id"]},
    {"mode": "upsert", "keys": ["id"]},
    {"mode": "overwrite"},
    {"mode": "partition_overwrite", "partition_by": ["k"]},
)
_RULES = {
    "append": (None, None, "raise", "reload", "ignore"),
    "append_once": (None, "raise", "reload", "ignore"),
    "upsert": (None, "raise", "reload", "ignore"),
    "overwrite": (None, "raise", "reload"),
    "partition_overwrite": (None, None, "raise", "reload"),
}
_BELOW = {write["mode"]: write for write in _WRITES if write["mode"] in ("upsert", "partition_overwrite")}
"""How the rows that a table gained are written below it; others are appended."""
_BY_COLUMN: Config = {"mode": "stateful", "column": "v"}


def _born(root: Path, draw: random.Random) -> World:
    world = World(root, [], typed=True, ids_again=False)
    write, kind = draw.choice(_WRITES), draw.choice(("csv", "json", "parquet"))
    rule = draw.choice(_RULES[write["mode"]])
    has_k = write["mode"] == "partition_overwrite" or draw.random() < 0.8
    read: Config = {"connection": "landing", "format": kind, "path": "in/"}
    read["schema"] = "id BIGINT, v BIGINT, w BIGINT" + (", k STRING" if has_k else "")
    if kind == "csv":
        read["options"] = {"header": "true"}
    files: Config = {"mode": "files"} | ({"on_change": rule} if rule else {})
    nodes = [_node("raw", {"read": {**read, "incremental": files}}, write)]
    for name in draw.sample(("copy", "after", "column"), draw.choice((0, 1, 1, 2))):
        if name == "copy":
            above: Config = {"inputs": {"up": {"node": "raw", "incremental": {"mode": "version"}}}}
            nodes.append(_node(name, above, _BELOW.get(write["mode"], {"mode": "append"})))
        elif name == "after":
            above = {"inputs": {"up": {"node": "raw", "incremental": dict(_BY_COLUMN)}}}
            nodes.append(_node(name, above, {"mode": "append"}))
        else:
            writes = [one for one in _WRITES if has_k or one["mode"] != "partition_overwrite"]
            nodes.append(_node(name, {"read": {**read, "incremental": dict(_BY_COLUMN)}}, draw.choice(writes)))
    config: Config = {
        "project": "zone",
        "connections": {name: {"type": "local", "base_path": name} for name in ("landing", "lake")},
        "pipelines": [{"pipeline": "p", "nodes": nodes}],
        "retry": {"retries": 1, "base_delay": 0.01, "jitter": 0},
    }
    home = Home(root / "home", config)
    home.save()
    for name in config["connections"]:
        home.place(name).mkdir(parents=True, exist_ok=True)
    home.place("landing", "in").mkdir()
    world.homes.append(home)
    world.tables = {str(home.target(at)): Known() for at in home.nodes()}
    return world


def _node(name: str, above: Config, write: Config) -> Config:
    return {"name": name, **above, "write": {"connection": "lake", "path": name, **write}}


@dataclass
class ZoneLife(Life):
    """A life in which files of a landing zone are moved, renamed, rewritten, copied, hidden, packed and put back."""

    length: ClassVar[int] = 16
    runs_drawn: ClassVar[Mapping[str, int]] = {"run": 30}
    changes_drawn: ClassVar[Mapping[str, Change]] = MOVES

    def birth(self, draw: random.Random) -> World:
        return _born(self.folder, draw)

    def reasons(self, home: Home, at: NodeAt) -> list[str]:
        known = ways_on.known(self._world, home, at)
        if at.upstream is not None:
            above = oracle.up_to(known.mark, table_rows(home.source(at)))
            is_other = at.increment.get("column") and above != known.above
            lack = _lack(home, at, oracle.columns_of(home.node(at.upstream)))
            return [*lack, *(["other rows below the mark"] if is_other else [])]
        if at.increment.get("column"):
            now = files_in(home.source(at))
            twice = ["a key comes twice"] if oracle.keys_come_twice(at, now) else []
            return twice if now else ["there is no file"]
        reasons = oracle.reasons_to_stop(at, known, files_in(home.source(at)))
        return [*reasons, *_lack(home, at, oracle.columns_of(at))]

    def must_hold(
        self, home: Home, at: NodeAt, *, full: bool = False, days: tuple[date, date] | None = None
    ) -> Expected:
        del days
        known = ways_on.known(self._world, home, at)
        if at.upstream is not None:
            return _below(known, at, table_rows(home.source(at)), full=full)
        now = files_in(home.source(at))
        if at.increment.get("column"):
            (rows, loaded), whole = oracle.by_cursor(at, known, now), oracle.whole(at, now.values())
            # Where any file changed, an overwrite may be made again though no row is new.
            again = at.node["write"]["mode"] == "overwrite" and table_rows(home.target(at)) == whole
            rows = whole if full or again else rows
            mark = oracle.greatest(oracle.rows_of(now.values(), oracle.columns_of(at)), 0 if full else known.mark)
            return oracle.holding(replace(known, mark=mark, loaded=now if full else loaded), rows)
        if full:
            return oracle.holding(replace(known, loaded=now), oracle.whole(at, now.values()))
        if why := oracle.reasons_to_stop(at, known, now):
            raise Found(Violation("silent", f"{at} did not stop: {', '.join(why)}"))
        rows, loaded = oracle.after_run(at, known, now)
        return oracle.holding(replace(known, loaded=loaded), rows)

    def named_remedies(self, home: Home, at: NodeAt, message: str, pending: list[str]) -> list[Remedy]:
        del pending
        return ways_on.named(self._world, home, at, message)


def _lack(home: Home, at: NodeAt, columns: list[str]) -> list[str]:
    """Why rows of these columns may stop a run: a remedy took a column away that the table has."""
    path = home.target(at)
    if at.node["write"]["mode"] == "overwrite" or "schema" in at.node["write"] or table_version(path) is None:
        return []
    there = {field.name for field in DeltaTable(str(path)).schema().fields}
    return [f"the table has {name}" for name in sorted(there.difference(columns))]


def _below(known: Known, at: NodeAt, above: Counter[Row], *, full: bool) -> Known:
    if not at.increment.get("column"):
        return oracle.holding(known, above)
    mark = oracle.greatest(above, 0 if full else known.mark)
    rows = above if full else known.wanted + (above - oracle.up_to(known.mark, above))
    return oracle.holding(replace(known, mark=mark, above=above), rows)
