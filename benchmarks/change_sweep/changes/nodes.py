"""A node follows its source in another way, or writes in another way."""

from __future__ import annotations

import random

from benchmarks.change_sweep.birth import BY_COLUMN, any_choice
from benchmarks.change_sweep.changes.change import Change, a_node, a_reader
from benchmarks.change_sweep.landing import land
from benchmarks.change_sweep.world import Expected, World


def other_cursor(world: World, draw: random.Random) -> str | None:
    home = draw.choice(world.homes)
    at = any_choice(draw, [at for at in home.nodes() if at.increment.get("column")])
    if at is None:
        return None
    world.will_change(home)
    new = "w" if at.increment["column"] == "v" else "v"
    at.increment["column"] = new
    home.save()
    return f"{at} follows the column {new}"


def other_path(world: World, draw: random.Random) -> str:
    home, at = a_reader(world, draw)
    world.will_change(home)
    before = world.before
    path = at.node["read"]["path"]
    at.node["read"]["path"] = path.replace("in2", "in") if path.startswith("in2") else path.replace("in", "in2", 1)
    home.save()
    land(world, home, at, draw)
    world.before = before
    return f"{at} reads {at.node['read']['path']}, where other rows are"


def other_increment(world: World, draw: random.Random) -> str | None:
    home, at = a_node(world, draw)
    now = at.increment.get("mode")
    if now is None or not world.typed or at.node["write"]["mode"] == "partition_overwrite":
        return None
    world.will_change(home)
    followed = "files" if "read" in at.node and at.node["read"]["format"] != "delta" else "version"
    at.follow({"mode": followed} if now == "stateful" else dict(BY_COLUMN))
    home.save()
    return f"{at} is followed by {at.increment['mode']}, not by {now}"


def other_write_mode(world: World, draw: random.Random) -> str | None:
    home, at = a_node(world, draw)
    write = at.node["write"]
    below = [other for other in home.nodes() if other.upstream == str(at)]
    modes = {"append": ["upsert", "overwrite", "append_once"], "upsert": ["overwrite"], "overwrite": ["upsert"]}
    # What an append below an upsert takes in depends on when it runs.
    if any(other.node["write"]["mode"] == "append" for other in below) or not at.increment:
        return None
    new = any_choice(draw, modes.get(write["mode"], []))
    if new is None or (new == "append_once" and world.ids_again):
        return None
    world.will_change(home)
    for option in ("keys", "only_if_newer", "schema"):
        write.pop(option, None)
    write["mode"] = new
    if new in ("upsert", "append_once"):
        write["keys"] = ["id"]
    if new == "upsert":
        write["only_if_newer"] = "v"
    if new != "overwrite" and not world.typed:
        write["schema"] = "evolve"
    home.save()
    return f"{at} writes {new}"


def other_keys(world: World, draw: random.Random) -> str | None:
    home, at = a_node(world, draw)
    if not world.typed or "keys" not in at.node["write"]:
        return None
    world.will_change(home)
    at.node["write"]["keys"] = ["id"] if at.node["write"]["keys"] == ["id", "day"] else ["id", "day"]
    home.save()
    return f"{at} has the keys {at.node['write']['keys']}"


def other_partition(world: World, draw: random.Random) -> str | None:
    home, at = a_node(world, draw)
    if not world.typed or "partition" in at.node:
        return None
    world.will_change(home)
    at.node["write"]["partition_by"] = [] if at.node["write"].get("partition_by") else ["day"]
    home.save()
    return f"{at} is partitioned by {at.node['write']['partition_by']}"


def other_table(world: World, draw: random.Random) -> str | None:
    home, at = a_node(world, draw)
    before = world.tables.get(str(home.target(at)))
    if before is None:
        return None
    world.will_change(home)
    at.node["write"]["path"] = world.new_name(at.name)
    world.tables[str(home.target(at))] = Expected(instead_of=before)
    home.save()
    return f"{at} writes to {at.node['write']['path']}"


CHANGES = (
    Change("other cursor column", other_cursor, may_stop=True, rows_stay=True, weight=4),
    Change("other read path", other_path, may_stop=True),
    Change("other mode of increment", other_increment, may_stop=True, rows_stay=True),
    Change("other write mode", other_write_mode, may_stop=True),
    Change("other keys", other_keys, may_stop=True, rows_stay=True),
    Change("other partition", other_partition, may_stop=True, weight=1),
    Change("other write path", other_table, may_stop=True, weight=1),
)
