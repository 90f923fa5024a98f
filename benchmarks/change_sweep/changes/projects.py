"""A project is moved, renamed, written in another way, or gets a neighbour."""

from __future__ import annotations

import os
import random
from copy import deepcopy
from pathlib import Path

from benchmarks.change_sweep.changes.change import Change, a_node
from benchmarks.change_sweep.landing import land
from benchmarks.change_sweep.world import Home, World


def _save_all(world: World) -> None:
    for home in world.homes:
        home.save()


def move_project(world: World, draw: random.Random) -> str:
    home = draw.choice(world.homes)
    new = world.root / world.new_name("home")
    world.move(home.folder, new)
    _save_all(world)
    return f"move the project's folder to {new.name}"


def move_folder(world: World, draw: random.Random) -> str:
    home, name = draw.choice(world.homes), draw.choice(("landing", "lake"))
    connection = connection_of(home, name)
    old, new = home.place(connection), world.root / world.new_name(name)
    here = [
        (other, given)
        for other in world.homes
        for key, given in other.config["connections"].items()
        if other.place(key) == old
    ]
    world.move(old, new)
    for other, given in here:
        given["base_path"] = _spelled(other, new, draw)
    _save_all(world)
    return f"move the {name} to {new.name}"


def spell_path(world: World, draw: random.Random) -> str:
    home = draw.choice(world.homes)
    name = draw.choice(sorted(home.config["connections"]))
    place = home.place(name)
    if draw.random() < 0.3:
        link = world.root / world.new_name("link")
        link.symlink_to(place)
        place = link
    world.will_change(home)
    home.config["connections"][name]["base_path"] = _spelled(home, place, draw)
    home.save()
    return f"lead the connection {name} to the same place by another path"


def _spelled(home: Home, place: Path, draw: random.Random) -> str:
    relative = os.path.relpath(place, home.folder)
    # An absolute path stays where it is when the project is moved, and a relative one moves along.
    return draw.choice((str(place), relative, f"./{relative}/"))


def lake_of(home: Home) -> str:
    """The connection that nodes write to."""
    return connection_of(home, "lake")


def connection_of(home: Home, role: str) -> str:
    """The connection that nodes read from (landing) or write to (lake)."""
    for at in home.nodes():
        given = at.node["write"] if role == "lake" else at.node.get("read")
        if given:
            return str(given["connection"])
    raise LookupError(role)


def rename_connection(world: World, draw: random.Random) -> str:
    home = draw.choice(world.homes)
    old = draw.choice(sorted(home.config["connections"]))
    new = world.new_name("c")
    world.will_change(home)
    home.config["connections"][new] = home.config["connections"].pop(old)
    given = [one for at in home.nodes() for one in (at.node.get("read"), at.node["write"])]
    for one in [*given, home.config.get("system")]:
        if one and one["connection"] == old:
            one["connection"] = new
    home.save()
    return f"rename the connection {old} to {new}"


def reformat(world: World, draw: random.Random) -> str:
    home, at = a_node(world, draw)
    home.sorted_keys = not home.sorted_keys
    at.node["description"] = world.new_name("words ")
    home.save()
    return "reorder the project file, and describe a node"


def rename_project(world: World, draw: random.Random) -> str:
    home = draw.choice(world.homes)
    world.will_change(home)
    home.config["project"] = world.new_name("sweep")
    home.save()
    return "rename the project"


def rename_node(world: World, draw: random.Random) -> str:
    home, at = a_node(world, draw)
    world.will_change(home)
    taken = {one.name for place in world.homes for one in place.nodes()}
    old, new = str(at), world.other_name(draw, at.name, at.name.rstrip("0123456789"), taken)
    _point_to(home, old, f"{at.pipeline}.{new}")
    at.node["name"] = new
    home.save()
    return f"rename {old} to {new}"


def rename_pipeline(world: World, draw: random.Random) -> str:
    home = draw.choice(world.homes)
    pipeline = draw.choice(home.config["pipelines"])
    world.will_change(home)
    old, taken = pipeline["pipeline"], {one["pipeline"] for place in world.homes for one in place.config["pipelines"]}
    new = world.other_name(draw, old, old[0], taken)
    for node in pipeline["nodes"]:
        _point_to(home, f"{old}.{node['name']}", f"{new}.{node['name']}")
    pipeline["pipeline"] = new
    home.save()
    return f"rename the pipeline {old} to {new}"


def _point_to(home: Home, old: str, new: str) -> None:
    for at in home.nodes():
        if at.upstream == old:
            next(iter(at.node["inputs"].values()))["node"] = new


def share_catalog(world: World, draw: random.Random) -> str | None:
    """A second project with the same names keeps its state in the same place, and has sources and tables of its own."""
    first = world.homes[0]
    if len(world.homes) > 1:
        return None
    config = deepcopy(first.config)
    config["project"] = "neighbour"
    beside = "system" not in config
    if not beside:
        catalog = config["system"]["connection"]
        config["connections"]["catalog"] = {"type": "local", "base_path": str(first.place(catalog))}
        config["system"]["connection"] = "catalog"
    folder = first.folder if beside else world.root / "neighbour"
    for name in {connection_of(first, role) for role in ("landing", "lake")}:
        own = world.root / f"neighbour_{name}"
        own.mkdir()
        config["connections"][name]["base_path"] = str(own)
    second = Home(folder, config, "other.yaml")
    second.save()
    world.homes.append(second)
    land(world, second, next(at for at in second.nodes() if at.upstream is None), draw)
    return "a second project with nodes of the same names on the same " + ("state file" if beside else "catalog")


def share_lake(world: World, draw: random.Random) -> str | None:
    """A second project reads the same sources and writes the same tables, under names of its own or under the same."""
    first = world.homes[0]
    if len(world.homes) > 1:
        return None
    config = deepcopy(first.config)
    config["project"] = "neighbour"
    config.pop("system", None)
    for name in config["connections"]:
        config["connections"][name]["base_path"] = str(first.place(name))
    second = Home(world.root / "neighbour", config)
    world.homes.append(second)
    renames = draw.random() < 0.5
    if renames:
        at = next(second.nodes())
        _point_to(second, str(at), f"{at.pipeline}.mine")
        at.node["name"] = "mine"
    second.save()
    return "a second project reads the same sources and writes the same tables" + (
        ", by another name" if renames else ""
    )


CHANGES = (
    Change("move the project", move_project),
    Change("move landing zone or lake", move_folder),
    Change("spell a path differently", spell_path),
    Change("rename a connection", rename_connection),
    Change("reformat the project file", reformat),
    Change("rename the project", rename_project, may_stop=True, rows_stay=True, weight=1),
    Change("rename a node", rename_node, may_stop=True, rows_stay=True),
    Change("rename a pipeline", rename_pipeline, may_stop=True, rows_stay=True, weight=1),
    Change("two projects on one catalog", share_catalog, may_stop=True, weight=1),
    Change("two projects on one lake", share_lake, may_stop=True, rows_stay=True, weight=1),
)
