"""The ways on that a stop names, typed as its message says."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatchcase

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
    if "the next run tries again" in fix.lower():
        yield "end transactions", lambda: _end_all(world)
    if "of `tables`" in fix or "correct `tables`" in fix:
        yield "take it out of `tables`", lambda: _left_out(world)
    if "`apply.table`" in fix:
        yield "leave the node out", lambda: _without_node(world, node)
    if "give it a primary key" in fix or "give it one" in fix:
        yield "a primary key", lambda: _keyed(world)
    if "the node that captures once more" in fix:
        yield "run the capture", lambda: str(world.run(world.capture).status)


def _typed(world: World, statement: str, commands: list[str]) -> str:
    if "PARENT" in statement:
        (parent,) = _related(world, "inhparent", "inhrelid", statement)
        statement = statement.replace("PARENT", parent)
    for child in [""] if "CHILD" not in statement else _related(world, "inhrelid", "inhparent", statement):
        world.server.execute(statement.replace("CHILD", child))
    return "; ".join([statement, *(_odi(world, one) for one in commands[:1])])


def _related(world: World, asked: str, known: str, statement: str) -> list[str]:
    """The parent or the children of the table that a statement of PostgreSQL ends with."""
    with world.server.connect() as database:
        query = f"SELECT {asked}::regclass::text FROM pg_inherits WHERE {known} = %s::regclass"
        return [str(name) for (name,) in database.execute(query, [statement.rpartition(" ")[2]]).fetchall()]


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
    return f"all transactions end; {world.server.end_prepared(random.Random(0).choice)}"


def _keyed(world: World) -> str:
    """Give the tables that a stop names a key of their own."""
    # A table that has got one waits for its capture, which may have stopped over something else.
    for name in set(world.blamed) - set(world.added):
        world.server.execute(f"ALTER TABLE {name} ADD key_{len(world.added)} serial PRIMARY KEY")
        world.added.append(name)
    world.run(world.capture)
    return f"a primary key for {', '.join(sorted(world.blamed))}"


def _left_out(world: World) -> str:
    """Only what can be captured stays in `tables`, and is applied."""
    left = [name for name in world.server.captured() if name not in world.blamed]
    names = [name for name in left if any(fnmatchcase(name, one) for one in world.patterns)]
    world.patterns = names or [f"{world.server.schema}.*"]
    world.applied = [name for name in world.applied if f"{world.server.schema}.{name}" in names]
    world.save()
    return f"tables: {world.patterns}"


def _without_node(world: World, node: str) -> str:
    name = node.removesuffix("_history")
    world.applied = [one for one in world.applied if one != name]
    world.save()
    return f"without the node of {name}"
