"""State is lost, copied, put back, or kept elsewhere."""

from __future__ import annotations

import random
import shutil

from benchmarks.change_sweep.birth import any_choice
from benchmarks.change_sweep.changes.change import Change
from benchmarks.change_sweep.changes.projects import lake_of
from benchmarks.change_sweep.runs import command
from benchmarks.change_sweep.world import STATE_FOLDER, World


def copy(world: World, draw: random.Random) -> str | None:
    state = draw.choice(world.homes).state
    if not state.is_dir():
        return None
    kept = world.root / "copies" / world.new_name("copy")
    shutil.copytree(state, kept)
    world.copies.append((state, kept))
    return "copy the state"


def delete(world: World, draw: random.Random) -> str | None:
    state = draw.choice(world.homes).state
    if not state.is_dir():
        return None
    shutil.rmtree(state)
    return "delete the state"


def put_back(world: World, draw: random.Random) -> str | None:
    found = any_choice(draw, world.copies)
    if found is None:
        return None
    state, kept = found
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(kept, state)
    return "put an older copy of the state back"


def other_backend(world: World, draw: random.Random) -> str:
    home = draw.choice(world.homes)
    system = {"connection": lake_of(home), "path": "system"}
    had_state = home.state.is_dir()
    had_system = home.config.pop("system", None)
    if not had_system:
        home.config["system"] = system
    world.before = None
    home.save()
    done = "keep state in " + ("a JSON file" if had_system else "Delta tables")
    if not had_state or home.state.is_dir() or draw.random() < 0.5:
        return f"{done}, without moving it"
    source = (
        "{connection}:{path}".format(**had_system) if had_system else str(home.folder / STATE_FOLDER / "state.json")
    )
    code, _, said = command(home, "state", "migrate", "--from", source, "--yes")
    return f"{done}, and move it there" + (f": {said.strip()}" if code else "")


CHANGES = (
    Change("copy the state", copy, weight=3),
    Change("delete the state", delete),
    Change("put an older state back", put_back, weight=3),
    Change("other backend", other_backend, weight=3),
)
