"""The ways on that a stop over a landing zone names, taken as its message has them."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.change_sweep.model import table_rows
from benchmarks.change_sweep.remedies import DeadEnd, Remedy, remedies_of
from benchmarks.change_sweep.runs import Ended, command
from benchmarks.change_sweep.world import Config, Home, NodeAt, World
from benchmarks.change_sweep.zone import oracle
from benchmarks.change_sweep.zone.listing import FileThen, files_in
from benchmarks.change_sweep.zone.moves import land
from benchmarks.change_sweep.zone.oracle import Arrivals, Known

Take = Callable[[World, Home, NodeAt], None]


def known(world: World, home: Home, at: NodeAt) -> Known:
    """What is known of a node's table."""
    found = world.expected(home.target(at))
    assert isinstance(found, Known)
    return found


def named(world: World, home: Home, at: NodeAt, message: str) -> list[Remedy]:
    """The remedies that a message names."""
    text = message.partition("→")[2]
    refresh = [remedy for remedy in remedies_of(world, home, at, message, False) if remedy.full]
    return [*refresh, *(Remedy(name, _then_run(take)) for name, take in _named(text))]


def _then_run(take: Take) -> Callable[[World, Home, NodeAt], list[Ended]]:
    def taken(world: World, home: Home, at: NodeAt) -> list[Ended]:
        take(world, home, at)
        home.save()
        return []

    return taken


def _named(text: str) -> Iterator[tuple[str, Take]]:
    if "put it back as it was" in text or "put the files back" in text or "move it back" in text:
        yield "put files back, and land what is new under another name", _put_back
    if "a `read.schema` without these columns" in text:
        yield "a schema without k", _without_k
    if "with `upsert`" in text or "or `upsert`" in text:
        yield "upsert", lambda _, __, at: _write(at, {"mode": "upsert", "keys": ["id"]})
    if "with `append`" in text:
        yield "append", lambda _, __, at: _write(at, {"mode": "append"})
    if "to `reload`" in text:
        yield "on_change: reload", lambda _, __, at: _on_change(at, "reload")
    if "to `ignore`" in text or "on_change: ignore" in text:
        yield "on_change: ignore", lambda _, __, at: _on_change(at, "ignore")
    if "deduplicate in the transform" in text:
        yield "one row of a key in the transform", lambda _, __, at: _one_of_a_key(at)
    if "write.schema: evolve" in text:
        yield "write.schema: evolve", lambda _, __, at: _write(at, {"schema": "evolve"})
    if "land a file there first" in text:
        yield "land a file", lambda world, _, __: _land(world)
    if accepted := re.search(r"odi state accept (\w+\.\w+)", text):
        yield accepted[0], _accept
    if rewound := re.search(r"odi state rewind (\w+\.\w+) --to-version (\d+)( --cascade)?", text):
        yield rewound[0], lambda world, of, at: _rewind(world, of, at, rewound[0].split()[3:])


def _land(world: World) -> None:
    land(world, random.Random(world.landed))


def _write(at: NodeAt, change: Config) -> None:
    at.node["write"] |= change


def _on_change(at: NodeAt, rule: str) -> None:
    at.follow({**at.increment, "on_change": rule})


def _one_of_a_key(at: NodeAt) -> None:
    columns = oracle.columns_of(at)
    order = [f"{name} DESC NULLS LAST" for name in columns if name != "id"]
    at.node["transform"] = {"sql": oracle.ONE_OF_A_KEY.format(columns=", ".join(columns), order=", ".join(order))}


def _without_k(world: World, home: Home, at: NodeAt) -> None:
    del world, home
    at.node["read"]["schema"] = at.node["read"]["schema"].removesuffix(", k STRING")


def _found(world: World, home: Home, at: NodeAt) -> Arrivals:
    now = files_in(home.source(at))
    return oracle.arrivals(known(world, home, at).loaded, now, oracle.columns_of(at))


def _put_back(world: World, home: Home, at: NodeAt) -> None:
    """Loaded files are again where they were; what is in their places gets other names."""
    found, source, loaded = _found(world, home, at), home.source(at), known(world, home, at).loaded
    for path in found.shifted:
        (source / path).unlink()
    back = [*found.shifted.values(), *found.rewritten, *found.gone]
    for file in (source / path for path in back):
        if os.path.lexists(file) and file.stat().st_size:
            file.rename(file.with_name(world.new_name("f") + "".join(file.suffixes)))
    for path in back:
        _restore(source, loaded[path])


def _restore(source: Path, file: FileThen) -> None:
    place = source / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_bytes(file.data)
    os.utime(place, ns=(file.content[0], file.content[0]))


def _accept(world: World, home: Home, at: NodeAt) -> None:
    _typed(home, "state", "accept", str(at), "--yes")
    then = known(world, home, at)
    above = oracle.up_to(then.mark, table_rows(home.source(at)))
    world.tables[str(home.target(at))] = oracle.holding(replace(then, above=above), table_rows(home.target(at)))


def _rewind(world: World, home: Home, at: NodeAt, typed: list[str]) -> None:
    """As it is typed: ``NODE --to-version N``."""
    _typed(home, "state", "rewind", *typed, "--yes")
    version, then = int(typed[typed.index("--to-version") + 1]), known(world, home, at)
    held = [then.versions[one] for one in sorted(then.versions) if one <= version]
    world.tables[str(home.target(at))] = replace(held[-1] if held else Known(), versions=then.versions)


def _typed(home: Home, *arguments: str) -> None:
    code, _, err = command(home, *arguments)
    if code:
        raise DeadEnd(f"`odi {' '.join(arguments)}` ends with {code}: {err.strip()}")
