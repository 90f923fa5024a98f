"""The ways on that a stop names: found in its message, and taken as the message says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.change_sweep.model import file_rows, table_rows
from benchmarks.change_sweep.runs import Ended, command, run_by_command
from benchmarks.change_sweep.world import Home, NodeAt, World

_REFRESH = re.compile(r"odi run((?: \w+)?(?: --node \w+)* --full-refresh(?: --yes)?)")
_TO_VERSION = re.compile(r"odi state rewind (\w+\.\w+) --to-version (\d+)( --cascade)?")
_OF_A_NODE = re.compile(r"odi state (adopt|accept|rewind) (\w+\.\w+)")


@dataclass(frozen=True)
class Remedy:
    """A way on.

    Attributes:
        take: takes it; returns the nodes that ran, or raises DeadEnd.
        full: it is a full refresh.
        for_good: a life may go on from there. What state alone knows, a loss of state loses.
    """

    name: str
    take: Callable[[World, Home, NodeAt], list[Ended]]
    full: bool = False
    for_good: bool = True

    @property
    def kind(self) -> str:
        """Its name, without the node."""
        return re.sub(r"( \w+\.\w+| \w+ --node \w+)+", " …", self.name)


class DeadEnd(Exception):
    """A remedy could not be taken."""


class Refused(Exception):
    """A remedy was refused, with what to do instead: it does not fit what was changed."""


def remedies_of(world: World, home: Home, at: NodeAt, message: str, rows_stay: bool) -> list[Remedy]:
    """The remedies that a message names, as far as they fit what was changed.

    Args:
        rows_stay: nothing was changed but names: a user who knows that may adopt what is there.
    """
    return list(_named(world, home, at, message, rows_stay))


def _named(world: World, home: Home, at: NodeAt, message: str, rows_stay: bool) -> Iterator[Remedy]:
    text = message.partition("→")[2]
    if found := _REFRESH.search(text.replace("--node NODE", f"--node {at.name}")):
        arguments = found[1].split()
        yield Remedy(f"odi run {' '.join(arguments)}", lambda _, of, __: _refresh(of, *arguments), full=True)
    typed = _TO_VERSION.search(text)
    if typed is not None:
        yield Remedy(typed[0], _rewind_as_typed(*typed[0].split()[1:], "--yes"))
    for what, node in dict.fromkeys(_OF_A_NODE.findall(text)):
        if what == "adopt" and rows_stay:
            yield Remedy(f"odi state adopt {node}", _adopt(node))
        if what == "accept":
            yield Remedy(f"odi state accept {node}", _accept, for_good="does not exist" not in message)
        if (
            what == "rewind"
            and typed is None
            and world.expected(home.target(at)).versions
            and "back from a copy" not in text
        ):
            yield Remedy(f"odi state rewind {node}", _rewind)
    if world.before is not None and re.search(r"\bback\b|\bundo\b|\brename\b|keep", text):
        yield Remedy("undo the change", _undo)
    if "`system.environment`" in text:
        yield Remedy("an environment of its own", _own_environment)
    if "on_change" in text:
        yield Remedy("on_change: ignore", _ignore_changes)
    if "under a new name" in text:
        yield Remedy("land it under a new name", _land_under_new_name)
    if "make `partition_by` agree" in text:
        yield Remedy("partition_by as the table has it", _partition_as_the_table)
    if "write.schema: evolve" in text:
        yield Remedy("write.schema: evolve", _evolve)


def _refresh(home: Home, *arguments: str) -> list[Ended]:
    ended = run_by_command(home, *arguments)
    asked = any("--yes" in one.error for one in ended)
    return run_by_command(home, *arguments, "--yes") if asked and "--yes" not in arguments else ended


def _typed(*arguments: str) -> Callable[[World, Home, NodeAt], list[Ended]]:
    def take(world: World, home: Home, at: NodeAt) -> list[Ended]:
        del world, at
        _require(command(home, *arguments), arguments)
        return []

    return take


def _require(done: tuple[int, str, str], arguments: tuple[str, ...]) -> None:
    code, _, err = done
    if code:
        raise DeadEnd(f"`odi {' '.join(arguments)}` ends with {code}: {err.strip()}")


def _adopt(node: str) -> Callable[[World, Home, NodeAt], list[Ended]]:
    def take(world: World, home: Home, at: NodeAt) -> list[Ended]:
        try:
            return _typed("state", "adopt", node, "--yes")(world, home, at)
        except DeadEnd as refusal:
            if "→" in str(refusal):
                raise Refused(str(refusal)) from refusal
            raise

    return take


def _own_environment(world: World, home: Home, at: NodeAt) -> list[Ended]:
    del at
    home.config["environment"] = world.new_name("environment")
    world.before = None
    home.save()
    return []


def _accept(world: World, home: Home, at: NodeAt) -> list[Ended]:
    _typed("state", "accept", str(at), "--yes")(world, home, at)
    path = home.target(at)
    expected = world.expected(path)
    before = expected.instead_of or expected
    rows = frozenset(table_rows(path))
    world.accepted[str(path)] = rows
    world.tables[str(path)] = replace(
        expected, rows=rows, seen=before.seen, marks=dict(before.marks), read_from=before.read_from, instead_of=None
    )
    return []


def _rewind(world: World, home: Home, at: NodeAt) -> list[Ended]:
    path = home.target(at)
    expected = world.expected(path)
    version = max(expected.versions)
    _typed("state", "rewind", str(at), "--to-version", str(version), "--yes")(world, home, at)
    held = expected.versions[version]
    world.tables[str(path)] = replace(
        expected, rows=held.rows, seen=held.seen, marks=dict(held.marks), read_from=held.read_from
    )
    world.rewrite(path)
    return []


def _rewind_as_typed(*arguments: str) -> Callable[[World, Home, NodeAt], list[Ended]]:
    def take(world: World, home: Home, at: NodeAt) -> list[Ended]:
        _typed(*arguments)(world, home, at)
        # With a cascade, tables below went back too: each holds what it held once.
        for path in [home.target(one) for one in home.nodes()]:
            expected, rows = world.expected(path), frozenset(table_rows(path))
            if rows != expected.rows or path == home.target(at):
                held = next((one for one in expected.versions.values() if one.rows == rows), None)
                told = {} if held is None else {"seen": held.seen, "marks": dict(held.marks)}
                read_from = expected.read_from if held is None else held.read_from
                world.tables[str(path)] = replace(expected, rows=rows, read_from=read_from, **told)
                world.rewrite(path)
        return []

    return take


def _undo(world: World, home: Home, at: NodeAt) -> list[Ended]:
    del home, at
    assert world.before is not None
    number, config = world.before
    world.homes[number].config = config
    world.homes[number].save()
    world.before = None
    # Nodes that ran meanwhile know the other definition.
    world.may_stop("the change was undone")
    return []


def _rewritten_by(world: World, home: Home, at: NodeAt) -> list[Path]:
    source = home.source(at)
    return [Path(file) for file in world.rewritten if Path(file).is_relative_to(source)]


def _ignore_changes(world: World, home: Home, at: NodeAt) -> list[Ended]:
    at.node["read"]["incremental"]["on_change"] = "ignore"
    home.save()
    path, source = home.target(at), home.source(at)
    left_out = {one for file in _rewritten_by(world, home, at) for one in file_rows(file, source)}
    expected = world.expected(path)
    world.tables[str(path)] = replace(expected, seen=expected.seen | left_out)
    return []


def _land_under_new_name(world: World, home: Home, at: NodeAt) -> list[Ended]:
    for file in _rewritten_by(world, home, at):
        changed = file.read_bytes()
        file.write_bytes(world.rewritten.pop(str(file)))
        file.with_name(f"{world.new_name('f')}{file.suffix}").write_bytes(changed)
    return []


def _partition_as_the_table(world: World, home: Home, at: NodeAt) -> list[Ended]:
    del world
    at.node["write"]["partition_by"] = DeltaTable(str(home.target(at))).metadata().partition_columns
    home.save()
    return []


def _evolve(world: World, home: Home, at: NodeAt) -> list[Ended]:
    del world
    at.node["write"]["schema"] = "evolve"
    home.save()
    return []
