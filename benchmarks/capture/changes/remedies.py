"""The ways on that a stop names, typed as its message says."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatchcase

from benchmarks.capture.changes.oracle import captured
from benchmarks.capture.changes.steps import end_prepared
from benchmarks.capture.changes.world import World
from odi_assets.cli import main

_COMMAND = re.compile(
    r"odi (run p(?: --node \w+)* --full-refresh(?: --yes)?|state (?:adopt|rewind|accept|rename) [\w.]+[^;,()`→]*?)"
    r"(?= makes| takes| begins| gives| goes| puts| drops|[;,.:]|$| and | or | if | to )"
)
_SQL = re.compile(
    r"((?:ALTER TABLE|ALTER PUBLICATION|COMMIT PREPARED|SELECT pg_drop_replication_slot|SELECT pg_create_logical)"
    r"(?:\([^)]*\)|[^;,(])*?)(?=;| or |, |$)"
)
Remedy = Callable[[], str]


class Refused(Exception):
    """A command failed; what it said may name what has to be done before."""


def remedies(world: World, node: str, message: str) -> list[tuple[str, Remedy]]:
    """What a message says that can be done, each with what does it."""
    return list(_named(world, node, message))


def _named(world: World, node: str, message: str) -> Iterator[tuple[str, Remedy]]:
    fix = message.partition("→")[2]
    commands = [found[1].strip() for found in _COMMAND.finditer(fix)]
    for statement in [found[1].strip() for found in _SQL.finditer(fix)]:
        # After the slot is dropped, the command behind it makes a new one.
        rest = commands if "pg_drop" in statement else []
        yield statement, lambda statement=statement, rest=rest: _typed(world, statement, rest)  # type: ignore[misc]
    for command in commands:
        if "pg_drop_replication_slot" not in fix:
            yield f"odi {command}", lambda command=command: _odi(world, command)  # type: ignore[misc]
    if "the next run tries again" in fix:
        yield "end transactions", lambda: _end_all(world)
    if "of `tables`" in fix or "correct `tables`" in fix:
        yield "take it out of `tables`", lambda: _left_out(world)
    if "`apply.table`" in fix:
        yield "leave the node out", lambda: _without_node(world, node)
    if "give it a primary key" in fix:
        yield "a primary key", lambda: _keyed(world)
    if "the node that captures once more" in fix:
        yield "run the capture", lambda: str(world.run(world.capture).status)


def _typed(world: World, statement: str, commands: list[str]) -> str:
    with world.server.connect() as database:
        if "PARENT" in statement:
            parent = "SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = %s::regclass"
            (name,) = database.execute(parent, [statement.rpartition(" ")[2]]).fetchone() or ("",)
            statement = statement.replace("PARENT", str(name))
        for child in [""] if "CHILD" not in statement else _children(world, statement):
            database.execute(statement.replace("CHILD", child))
    return "; ".join([statement, *(_odi(world, one) for one in commands[:1])])


def _children(world: World, statement: str) -> list[str]:
    table = statement.rpartition(" ")[2]
    with world.server.connect() as database:
        query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
        return [str(name) for (name,) in database.execute(query, [table]).fetchall()]


def _odi(world: World, command: str) -> str:
    """A command in this process; what it says where it fails."""
    buffers = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(buffer, encoding="utf-8", write_through=True) for buffer in buffers)
    command += " --yes" if "--yes" not in command and command.startswith("state") else ""
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["--config", str(world.file), *command.split()])
    if f"--node {world.capture}" in command and "--full-refresh" in command:
        world.begun_again = True
    if code != 0:
        raise Refused(f"odi {command}: exit {code}: {buffers[1].getvalue().decode()[-1000:]}")
    return f"odi {command}"


def _end_all(world: World) -> str:
    if world.open is not None:
        world.open.rollback()
        world.close()
    return f"all transactions end; {end_prepared(world, random.Random(0))}"


def _keyed(world: World) -> str:
    """Give the tables that a stop names a key of their own."""
    with world.server.connect() as database:
        # A table that has got one waits for its capture, which may have stopped over something else.
        for name in set(world.blamed) - set(world.added):
            database.execute(f"ALTER TABLE {name} ADD key_{len(world.added)} serial PRIMARY KEY")
            world.added.append(name)
    world.run(world.capture)
    return f"a primary key for {', '.join(sorted(world.blamed))}"


def _left_out(world: World) -> str:
    """Only what can be captured stays in `tables`, and is applied."""
    with world.server.connect() as database:
        there = captured(database)
    bad = world.blamed
    names = [name for name in there if name not in bad and any(fnmatchcase(name, one) for one in world.patterns)]
    world.patterns = names or ["public.*"]
    world.applied = [name for name in world.applied if f"public.{name}" in names]
    world.save()
    return f"tables: {world.patterns}"


def _without_node(world: World, node: str) -> str:
    name = node.removesuffix("_history")
    world.applied = [one for one in world.applied if one != name]
    world.save()
    return f"without the node of {name}"
