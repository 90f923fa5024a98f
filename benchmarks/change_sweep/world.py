"""A world: projects on a temporary folder, and all that a sweep does to it and knows of it."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Config = dict[str, Any]
Row = frozenset[tuple[str, str]]
"""A row: its columns that are not NULL, with their values as text."""
STATE_FOLDER = ".odibi"


class NodeAt(NamedTuple):
    """A node of a project file."""

    pipeline: str
    node: Config

    @property
    def name(self) -> str:
        return str(self.node["name"])

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.name}"

    @property
    def upstream(self) -> str | None:
        """The node that it reads, as ``pipeline.node``; None for one that reads a source."""
        if "read" in self.node:
            return None
        (given,) = self.node["inputs"].values()
        name = str(given["node"])
        return name if "." in name else f"{self.pipeline}.{name}"

    @property
    def increment(self) -> Config:
        """How it follows its source; empty if it reads all of it."""
        given = self.node["read"] if "read" in self.node else next(iter(self.node["inputs"].values()))
        found: Config = given.get("incremental") or {}
        return found

    def follow(self, increment: Config) -> None:
        """Follow the source in another way."""
        given = self.node["read"] if "read" in self.node else next(iter(self.node["inputs"].values()))
        given["incremental"] = increment


@dataclass
class Home:
    """A project on disk."""

    folder: Path
    config: Config
    file_name: str = "odibi.yaml"
    sorted_keys: bool = False

    @property
    def file(self) -> Path:
        return self.folder / self.file_name

    def save(self) -> None:
        """Write the project file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump(self.config, sort_keys=self.sorted_keys), encoding="utf-8")

    def place(self, connection: str, path: str = "") -> Path:
        """Where a path of a connection is."""
        return Path(os.path.realpath(self.folder / self.config["connections"][connection]["base_path"] / path))

    def nodes(self) -> Iterator[NodeAt]:
        """All nodes, those of a pipeline after each other."""
        for pipeline in self.config["pipelines"]:
            for node in pipeline["nodes"]:
                yield NodeAt(pipeline["pipeline"], node)

    def node(self, name: str) -> NodeAt:
        """The node ``pipeline.node``."""
        return next(node for node in self.nodes() if str(node) == name)

    def target(self, at: NodeAt) -> Path:
        """The table of a node."""
        return self.place(at.node["write"]["connection"], at.node["write"]["path"])

    def source(self, at: NodeAt) -> Path:
        """What a node reads: the folder of its files, or a table."""
        if at.upstream is not None:
            return self.target(self.node(at.upstream))
        return self.place(at.node["read"]["connection"], at.node["read"]["path"].removesuffix("/*.csv"))

    @property
    def state(self) -> Path:
        """The folder of its state: system tables, or that of the JSON file."""
        system = self.config.get("system")
        return self.place(system["connection"], system["path"]) if system else self.folder / STATE_FOLDER


@dataclass
class Expected:
    """What a table must hold.

    Attributes:
        rows: the rows it must hold.
        repeated: those that it must hold more than once, with how often more.
        seen: rows of its source that were taken in, or left out for good; they are not to be added (again).
        marks: by source and cursor column, how far the source was read by that column.
        read_from: the source that was read last, and how often that had been rewritten by then.
        versions: by version of the table, what it held then.
        pending: changes since the last good run that a run may stop at.
        instead_of: the table that the node wrote before it was given this one.
    """

    rows: frozenset[Row] = frozenset()
    repeated: Counter[Row] = field(default_factory=Counter)
    seen: frozenset[Row] = frozenset()
    marks: dict[tuple[str, str], int] = field(default_factory=dict)
    read_from: tuple[str, int] | None = None
    versions: dict[int, Expected] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    instead_of: Expected | None = None

    @property
    def wanted(self) -> Counter[Row]:
        """The rows it must hold, with how often."""
        return Counter(self.rows) + self.repeated


@dataclass
class World:
    """All that there is.

    Attributes:
        typed: rows of sources have one shape and typed columns; else each file has columns of its own.
        ids_again: rows of an ``id`` may come again.
        tables: by path, what is expected of each table.
        rewrites: by path, how often a table lost or replaced rows.
        given_up: names of nodes and pipelines that were renamed.
        copies: copies of state folders: whose they are, and where.
        before: the configuration before the last change of it, if nothing but that was changed since.
        rewritten: by path, what a file held before somebody wrote other rows into it.
        touched: inodes of files that were touched.
        renamed: inodes of files that were renamed.
        gone: rows of files that were deleted after they had been loaded.
        accepted: by path, what a table held when it was accepted.
    """

    root: Path
    homes: list[Home]
    typed: bool
    ids_again: bool
    landed: int = 0
    names: int = 0
    given_up: set[str] = field(default_factory=set)
    tables: dict[str, Expected] = field(default_factory=dict)
    rewrites: Counter[str] = field(default_factory=Counter)
    copies: list[tuple[Path, Path]] = field(default_factory=list)
    before: tuple[int, Config] | None = None
    rewritten: dict[str, bytes] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    renamed: set[int] = field(default_factory=set)
    gone: frozenset[Row] = frozenset()
    accepted: dict[str, frozenset[Row]] = field(default_factory=dict)

    def expected(self, path: Path) -> Expected:
        """What is expected of the table at ``path``."""
        return self.tables.setdefault(str(path), Expected())

    def new_name(self, stem: str) -> str:
        """A name that nothing had before."""
        self.names += 1
        return f"{stem}{self.names}"

    def other_name(self, draw: random.Random, old: str, stem: str, taken: set[str]) -> str:
        """Another name for what is called ``old``: one that nothing had before, or one that is free again."""
        free = sorted(name for name in self.given_up if name.startswith(stem) and name not in taken)
        self.given_up.add(old)
        return draw.choice(free) if free and draw.random() < 0.5 else self.new_name(stem)

    def pending(self, path: Path) -> list[str]:
        """Why a run of the node that writes this table may stop."""
        neighbours = ["a neighbour"] if len(self.homes) > 1 else []
        return [*self.expected(path).pending, *neighbours]

    def rewrite(self, path: Path) -> None:
        """The table at ``path`` lost or replaced rows: who follows it by a column may stop at that."""
        self.rewrites[str(path)] += 1
        for home in self.homes:
            for at in home.nodes():
                if at.increment.get("column") and home.source(at) == path:
                    self.expected(home.target(at)).pending.append(f"{path.name} was rewritten")

    def may_stop(self, what: str) -> None:
        """From now on, a run may stop because of this."""
        for home in self.homes:
            for at in home.nodes():
                # A table that no run has made yet, too.
                self.expected(home.target(at))
        for expected in self.tables.values():
            expected.pending.append(what)

    def will_change(self, home: Home) -> None:
        """Remember the configuration, to be able to go back to it."""
        self.before = self.homes.index(home), deepcopy(home.config)

    def move(self, old: Path, new: Path) -> None:
        """Move a folder, with all that is known of what is in it."""
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        self.before = None

        def moved(path: str) -> str:
            return str(new / Path(path).relative_to(old)) if Path(path).is_relative_to(old) else path

        self.tables = {moved(path): expected for path, expected in self.tables.items()}
        self.rewrites = Counter({moved(path): count for path, count in self.rewrites.items()})
        self.rewritten = {moved(path): text for path, text in self.rewritten.items()}
        self.copies = [(Path(moved(str(whose))), Path(moved(str(copy)))) for whose, copy in self.copies]
        for expected in self.tables.values():
            for one in (expected, *expected.versions.values()):
                one.marks = {(moved(source), column): mark for (source, column), mark in one.marks.items()}
                if one.read_from is not None:
                    one.read_from = moved(one.read_from[0]), one.read_from[1]
        for home in self.homes:
            home.folder = Path(moved(str(home.folder)))
            for connection in home.config["connections"].values():
                connection["base_path"] = moved(connection["base_path"])
        for link in self.root.iterdir():
            if link.is_symlink():
                led_to = moved(str(link.readlink()))
                link.unlink()
                link.symlink_to(led_to)


def row(columns: dict[str, Any]) -> Row:
    """A row of a source or a table."""
    return frozenset((name, str(value)) for name, value in columns.items() if value is not None)


def shown(rows: Counter[Row]) -> str:
    """A few rows, for people."""
    some = [json.dumps(dict(sorted(one))) + (f" × {count}" if count > 1 else "") for one, count in rows.items()]
    return ", ".join(sorted(some)[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
