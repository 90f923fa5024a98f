"""Lives in which tables are put back from copies, branch, are restored and corrected.

Rows only ever come, or are corrected: so after a run that says that all is well, the table of each node must hold what
a rebuild from its source would give, whatever the history of that source is.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import ClassVar

from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from benchmarks.change_sweep.birth import BY_COLUMN
from benchmarks.change_sweep.changes.change import Change, a_reader
from benchmarks.change_sweep.changes.sources import land_more
from benchmarks.change_sweep.landing import Columns, arrow, new_rows, write_file
from benchmarks.change_sweep.life import Life
from benchmarks.change_sweep.model import file_rows, files_of, source_rows, table_rows, table_version, whole
from benchmarks.change_sweep.remedies import DeadEnd, Refused, Remedy
from benchmarks.change_sweep.runs import Ended, command
from benchmarks.change_sweep.world import Config, Expected, Home, NodeAt, Row, World

_VERSION: Config = {"mode": "version"}
_ALL_DAYS: Config = {"mode": "rolling_window", "column": "day", "lookback": 50, "unit": "year"}
"""All days that are drawn lie in the window."""
_CSV: Config = {
    **{"format": "csv", "path": "in/*.csv", "options": {"header": "true"}},
    "schema": "id BIGINT, v BIGINT, w BIGINT, day DATE",
}
_SOURCES: tuple[Config, ...] = (
    {"format": "delta", "path": "in", "incremental": _VERSION},
    {"format": "delta", "path": "in", "incremental": BY_COLUMN},
    {**_CSV, "incremental": {"mode": "files"}},
)
_WRITES: dict[str, Config] = {
    "append": {"mode": "append"},
    "once": {"mode": "append_once", "keys": ["id"]},
    "newest": {"mode": "upsert", "keys": ["id"]},
    "whole": {"mode": "overwrite"},
    "days": {"mode": "partition_overwrite"},
}
_MOST_NODES = 5
_PLAIN = ("append", "once", "newest")


def _born(root: Path, draw: random.Random) -> World:
    world = World(root, [], typed=True, ids_again=False)
    raw: Config = {"name": "raw", "read": {"connection": "landing", **draw.choice(_SOURCES)}}
    nodes = [_written(raw, draw.choice(_PLAIN))]
    for name in draw.sample(sorted(_WRITES), draw.choice((1, 2, 2))):
        above = draw.choice([one["name"] for one in nodes if one["name"] in ("raw", *_PLAIN)])
        # The rows of an increment by a column are not told by partitions before they are read.
        increment = draw.choice((_VERSION, BY_COLUMN, _ALL_DAYS) if name == "days" else (_VERSION, BY_COLUMN))
        node: Config = {"name": name, "inputs": {"up": {"node": above, "incremental": increment}}}
        nodes.append(_written(node, name) if name != "days" else _summed(_written(node, name), draw))
    config: Config = {
        "project": "histories",
        "connections": {name: {"type": "local", "base_path": name} for name in ("landing", "lake")},
        "pipelines": [{"pipeline": "p", "nodes": nodes}],
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


def _written(node: Config, kind: str) -> Config:
    return {**node, "write": {"connection": "lake", "path": node["name"], **_WRITES[kind]}}


def _summed(node: Config, draw: random.Random) -> Config:
    """A node as sums by day, or by day and id: its table is partitioned by them, and recomputed by the first."""
    by = draw.choice((["day"], ["day", "id"], ["id", "day"]))
    columns = ", ".join(by)
    node["transform"] = {"sql": f"SELECT {columns}, count(*) AS n, sum(v) AS total FROM up GROUP BY {columns}"}
    if by == ["day"]:
        node["partition"] = {"column": "day", "every": "day", "start": "2024-01-01"}
    else:
        node["write"]["partition_by"] = by
    return node


# -- what happens ------------------------------------------------------------------------------------------------------


def _tables(world: World) -> list[Path]:
    (home,) = world.homes
    paths = {home.target(at) for at in home.nodes()}
    paths |= {home.source(at) for at in home.nodes() if at.upstream is None and at.node["read"]["format"] == "delta"}
    return [path for path in sorted(paths) if table_version(path) is not None]


def _sources(world: World) -> list[Path]:
    (home,) = world.homes
    return [path for path in _tables(world) if path not in {home.target(at) for at in home.nodes()}]


def copy_a_table(world: World, draw: random.Random) -> str | None:
    found = _tables(world)
    if not found:
        return None
    path, copy = draw.choice(found), world.root / "copies" / world.new_name("copy")
    shutil.copytree(path, copy)
    world.copies.append((path, copy))
    return f"copy {path.name}, at version {table_version(path)}"


def put_back(world: World, draw: random.Random) -> str | None:
    found = [(path, copy) for path, copy in world.copies if path != _lake(world)]
    if not found:
        return None
    path, copy = draw.choice(found)
    now = table_version(path)
    # A lake that was put back since may not have it.
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(copy, path)
    text = f"put {path.name} back from a copy, from version {now} to {table_version(path)}"
    return text + _go_on(world, path, draw)


def _lake(world: World) -> Path:
    return world.homes[0].place("lake")


def copy_the_lake(world: World, draw: random.Random) -> str:
    """All tables of nodes, with the state of that moment."""
    del draw
    (home,) = world.homes
    copy = world.root / "copies" / world.new_name("lake")
    shutil.copytree(_lake(world), copy / "lake")
    if home.state.exists() and not home.state.is_relative_to(_lake(world)):
        shutil.copytree(home.state, copy / "state")
    world.copies.append((_lake(world), copy))
    return f"copy the whole lake as {copy.name}"


def put_the_lake_back(world: World, draw: random.Random) -> str | None:
    """The tables go back, with the state of their moment or below the state of now."""
    (home,) = world.homes
    found = [copy for path, copy in world.copies if path == _lake(world)]
    if not found:
        return None
    copy, with_state = draw.choice(found), draw.random() < 0.5
    lake, now = _lake(world), world.root / "the state of now"
    if not with_state and home.state.exists():
        home.state.rename(now)
    shutil.rmtree(lake)
    shutil.copytree(copy / "lake", lake)
    if with_state and (copy / "state").exists():
        shutil.rmtree(home.state, ignore_errors=True)
        shutil.copytree(copy / "state", home.state)
    if now.exists():
        shutil.rmtree(home.state, ignore_errors=True)
        now.rename(home.state)
    return f"put the whole lake back from {copy.name}, {'with its state' if with_state else 'below the state of now'}"


def _go_on(world: World, path: Path, draw: random.Random) -> str:
    """Some commits: of rows, if it is a source; else of none, so that version numbers come again."""
    count = draw.choice((0, 1, 2, 4))
    for _ in range(count):
        if path in _sources(world):
            write_deltalake(str(path), arrow(new_rows(world, draw, draw.randint(1, 2))), mode="append")
        else:
            DeltaTable(str(path)).alter.set_table_properties({"odi.sweep": world.new_name("x")}, False)
    return f"; {count} commits more"


def branch(world: World, draw: random.Random) -> str | None:
    """The path of a source is changed to a copy of it; one of the two, or both, go on."""
    home, at = a_reader(world, draw)
    if not _sources(world):
        return None
    source = home.source(at)
    at.node["read"]["path"] = world.new_name("in")
    home.save()
    shutil.copytree(source, home.source(at))
    return f"{at} reads a copy of {source.name}" + _go_on(world, home.source(at), draw)


def split(world: World, draw: random.Random) -> str | None:
    """A table goes on under a new name of its node, and the name goes on with a table of its own."""
    (home,) = world.homes
    found = [at for at in home.nodes() if table_version(home.target(at)) is not None]
    nodes = home.config["pipelines"][0]["nodes"]
    if not found or len(nodes) >= _MOST_NODES:
        return None
    at = draw.choice(found)
    other = {**deepcopy(at.node), "name": world.new_name(at.name)}
    at.node["write"]["path"] = world.new_name("table")
    nodes.insert(draw.choice((0, len(nodes))), other)
    home.save()
    return f"{other['name']} goes on with the table {other['write']['path']}, and {at.name} with a new one"


def restore_source(world: World, draw: random.Random) -> str | None:
    found = [path for path in _sources(world) if table_version(path)]
    if not found:
        return None
    path = draw.choice(found)
    version = _restored(path, draw)
    return None if version is None else f"restore {path.name} to version {version}" + _go_on(world, path, draw)


def restore_target(world: World, draw: random.Random) -> str | None:
    (home,) = world.homes
    found = [path for at in home.nodes() if table_version(path := home.target(at))]
    if not found:
        return None
    path = draw.choice(found)
    version = _restored(path, draw)
    return None if version is None else f"somebody restores {path.name} to version {version}"


def _restored(path: Path, draw: random.Random) -> int | None:
    """The earlier version that a table is put back to; None if its log does not have the one that was drawn."""
    table = DeltaTable(str(path))
    version = draw.randrange(table.version())
    try:
        table.restore(version)
    except TableNotFoundError:
        return None
    return version


def compact(world: World, draw: random.Random) -> str | None:
    found = _tables(world)
    if not found:
        return None
    path = draw.choice(found)
    DeltaTable(str(path)).optimize.compact()
    return f"compact {path.name}"


def maintain_old_logs(world: World, draw: random.Random) -> str | None:
    """All commits are older than the retention of their logs, and the tables are maintained."""
    del draw
    (home,) = world.homes
    _outdate(_tables(world))
    for at in home.nodes():
        if at.increment.get("mode") == "stateful":
            # Rows that were rewritten are compared with a version of before, which may be cleaned away.
            world.expected(home.target(at)).pending.append("old logs were cleaned")
    code, _, err = command(home, "tables", "maintain", "--yes")
    return f"maintain tables with old logs{f': {err.strip()}' if code else ''}"


def _outdate(tables: list[Path]) -> None:
    """Make all commits older than the retention of their logs."""
    then = time.time() - 40 * 86_400
    for path in tables:
        for file in (path / "_delta_log").glob("*.json"):
            os.utime(file, (then, then))


def clean_a_log(world: World, draw: random.Random) -> str | None:
    """Another writer cleans the log of a table that no node reads, up to its newest version: nothing but a checkpoint
    holds what the node's commits have said."""
    (home,) = world.homes
    read = {home.source(at) for at in home.nodes()}
    found = [path for at in home.nodes() if (path := home.target(at)) not in read and table_version(path)]
    if not found:
        return None
    path = draw.choice(found)
    table = DeltaTable(str(path))
    table.create_checkpoint()
    _outdate([path])
    table.cleanup_metadata()
    return f"somebody cleans the log of {path.name}"


def rewind(world: World, draw: random.Random) -> str | None:
    (home,) = world.homes
    found = [at for at in home.nodes() if table_version(home.target(at))]
    if not found:
        return None
    at = draw.choice(found)
    version = draw.randrange(int(table_version(home.target(at)) or 0))
    reads_files = at.upstream is None and at.node["read"]["format"] != "delta"
    if reads_files and not _is_of(home.target(at), version, source_rows(home, at)):
        # Files have no history: what was read of a file that is another one now would come back for good.
        return None
    cascade = ["--cascade"] if draw.random() < 0.3 else []
    code, _, err = command(home, "state", "rewind", str(at), "--to-version", str(version), *cascade, "--yes")
    return f"rewind {at} to version {version} {' '.join(cascade)}" + (f": {err.strip()}" if code else "")


def correct(world: World, draw: random.Random) -> str | None:
    """A row of the source becomes another one with the same cursor; if it lies in files, its node is rewound too."""
    home, at = a_reader(world, draw)
    source = home.source(at)
    if at.node["read"]["format"] == "delta":
        if table_version(source) is None:
            return None
        rows = [_columns(one) for one in table_rows(source)]
        write_deltalake(str(source), arrow(_corrected(world, rows, draw)), mode="overwrite")
        return "the source is overwritten, with a row corrected"
    files = files_of(source)
    if not files or table_version(home.target(at)) is None:
        return None
    file = draw.choice(files)
    rows = [_columns(one) for one in file_rows(file, source)]
    file.unlink()
    write_file(source / f"{world.new_name('f')}.csv", _corrected(world, rows, draw))
    # Rebuilt or rewound: what it read of the file goes.
    newest = int(table_version(home.target(at)) or 0)
    for version in (0, newest) if draw.random() < 0.5 else (newest,):
        if version < newest and _is_of(home.target(at), version, source_rows(home, at)):
            code, _, err = command(home, "state", "rewind", str(at), "--to-version", str(version), "--yes")
            return f"{file.name} is corrected, and {at} rewound to version {version}" + (err.strip() if code else "")
    code, _, err = command(home, "run", at.pipeline, "--node", at.name, "--full-refresh", "--yes")
    return f"{file.name} is corrected, and {at} rebuilt" + (f": {err.strip()}" if code else "")


def _is_of(path: Path, version: int, rows: frozenset[Row]) -> bool:
    """Whether a version of a table holds no row that was corrected since."""
    return table_rows(path, version).keys() <= rows


def _columns(one: frozenset[tuple[str, str]]) -> Columns:
    found = dict(one)
    return {**{name: int(found[name]) for name in ("id", "v", "w")}, "day": found["day"]}


def _corrected(world: World, rows: list[Columns], draw: random.Random) -> list[Columns]:
    wrong = draw.randrange(len(rows))
    world.names += 1
    return [{**one, "w": one["w"] + world.names * 1_000_000} if i == wrong else one for i, one in enumerate(rows)]


def _changes(*changes: Change) -> dict[str, Change]:
    return {change.name: change for change in changes}


_SPLIT = "split a node"
_LAND = Change("land", land_more, weight=12)
_HISTORY = _changes(
    _LAND,
    Change("copy a table", copy_a_table, weight=8),
    Change("put a copy back", put_back, may_stop=True, weight=8),
    Change("copy the lake", copy_the_lake, weight=4),
    Change("put the lake back", put_the_lake_back, may_stop=True, weight=4),
    Change("read a copy", branch, may_stop=True, weight=3),
    Change(_SPLIT, split, may_stop=True, weight=3),
    Change("restore a source", restore_source, may_stop=True, weight=2),
    Change("somebody restores a table", restore_target, may_stop=True, weight=2),
    Change("compact a table", compact, weight=2),
    Change("maintain old logs", maintain_old_logs, weight=2),
    Change("clean a log", clean_a_log, may_stop=True, weight=4),
)
_CORRECTIONS = _changes(
    _LAND,
    Change("correct a row", correct, may_stop=True, weight=8),
    Change("rewind a node", rewind, may_stop=True, weight=6),
    Change("restore a source", restore_source, may_stop=True, weight=3),
    Change("compact a table", compact, weight=2),
    Change("maintain old logs", maintain_old_logs, weight=3),
)


def _rewind_to(world: World, home: Home, node: str, version: str | None) -> list[Ended]:
    """As the message says: to the version that it names, or to the newest one of the list."""
    if version is None:
        code, out, err = command(home, "state", "rewind", node, "--list", "--json")
        if code:
            raise DeadEnd(err)
        version = str(max(one["version"] for one in json.loads(out)))
    code, _, err = command(home, "state", "rewind", node, "--to-version", version, "--cascade", "--yes")
    if code:
        # A node below may have to be adopted before.
        how = Refused if "odi state adopt" in err else DeadEnd
        raise how(f"odi state rewind {node} --to-version {version} --cascade ends with {code}: {err}")
    for path in [home.target(at) for at in home.nodes()]:
        world.tables[str(path)] = replace(world.expected(path), rows=frozenset(table_rows(path)))
        world.rewrite(path)
    return []


# -- lives -------------------------------------------------------------------------------------------------------------


@dataclass
class HistoryLife(Life):
    """A life whose tables are put back, branch and are restored."""

    runs_drawn: ClassVar[Mapping[str, int]] = {"run": 16, "run one node": 4, "run with --full-refresh": 1}
    changes_drawn: ClassVar[Mapping[str, Change]] = _HISTORY

    def birth(self, draw: random.Random) -> World:
        return _born(self.folder, draw)

    def must_hold(
        self, home: Home, at: NodeAt, *, full: bool = False, days: tuple[date, date] | None = None
    ) -> Expected:
        del days
        path = home.target(at)
        accepted = None if full else self._world.accepted.get(str(path))
        rows = whole(at, source_rows(home, at))
        if accepted is not None:
            # What an accepted table lacks stays away. What it holds is not lost where rows are only added, but for rows
            # that its source has lost, too: that rebuilds it.
            kept = accepted & rows if at.node["write"]["mode"].startswith("append") else frozenset()
            rows = frozenset(table_rows(path)) | kept
        if self._world.expected(path).rows - rows:
            self._world.rewrite(path)
        return replace(self._world.expected(path), rows=rows)

    def named_remedies(self, home: Home, at: NodeAt, message: str, pending: list[str]) -> list[Remedy]:
        # Rows are the same where nothing but names has changed.
        pending = [one for one in pending if one != _SPLIT]
        found = [one for one in super().named_remedies(home, at, message, pending) if "rewind" not in one.name]
        # From an accepted table on, a rebuild tells no longer what it must hold.
        found = [replace(one, for_good="accept" not in one.name) for one in found]
        text = message.partition("→")[2]
        named = re.search(r"odi state rewind (\w+\.\w+) --(list|to-version (\d+))", text)
        if named is not None and "once the table is back" not in text:
            found.append(Remedy(named[0], lambda world, of, _: _rewind_to(world, of, named[1], named[3])))
        return found


@dataclass
class CorrectionsLife(HistoryLife):
    """A life in which rows that were read are corrected, above every kind of increment."""

    changes_drawn: ClassVar[Mapping[str, Change]] = _CORRECTIONS
