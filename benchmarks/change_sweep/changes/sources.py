"""Files of a landing zone, and the tables that stand for one, are changed by whoever delivers them."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from benchmarks.change_sweep.birth import any_choice
from benchmarks.change_sweep.changes.change import Change, a_reader
from benchmarks.change_sweep.landing import arrow, in_days, land, new_rows, write_file
from benchmarks.change_sweep.model import file_rows, files_of
from benchmarks.change_sweep.world import Home, NodeAt, World


def land_more(world: World, draw: random.Random) -> str:
    home, at = a_reader(world, draw)
    count = draw.choice((1, 1, 2))
    for _ in range(count):
        land(world, home, at, draw)
    return f"land {count} × rows"


def _a_file(world: World, draw: random.Random, *, loaded: bool = False) -> tuple[Home, NodeAt, Path] | None:
    home, at = a_reader(world, draw)
    if at.node["read"]["format"] == "delta":
        return None
    source, seen = home.source(at), world.expected(home.target(at)).seen
    files = [file for file in files_of(source) if not file.is_symlink()]
    found = any_choice(draw, [one for one in files if not loaded or seen.issuperset(file_rows(one, source))])
    return None if found is None else (home, at, found)


def touch(world: World, draw: random.Random) -> str | None:
    # A file that is renamed and touched before a run is a new one.
    if (found := _a_file(world, draw)) is None or (inode := found[2].stat().st_ino) in world.renamed:
        return None
    world.touched.add(inode)
    os.utime(found[2])
    return f"touch {found[2].name}"


def rename_file(world: World, draw: random.Random) -> str | None:
    if (found := _a_file(world, draw)) is None or str(found[2]) in world.rewritten:
        return None
    file = found[2]
    if (inode := file.stat().st_ino) in world.touched:
        return None
    world.renamed.add(inode)
    new = file.with_name(f"{world.new_name(draw.choice('ag'))}{file.suffix}")
    file.rename(new)
    return f"rename {file.name} to {new.name}"


def delete_file(world: World, draw: random.Random) -> str | None:
    found = _a_file(world, draw, loaded=True)
    if found is None or len(files_of(found[0].source(found[1]))) < 2 or str(found[2]) in world.rewritten:
        return None
    world.gone |= frozenset(file_rows(found[2], found[0].source(found[1])))
    found[2].unlink()
    return f"delete {found[2].name}, which was loaded"


def rewrite_file(world: World, draw: random.Random) -> str | None:
    found = _a_file(world, draw, loaded=True)
    if found is None or found[1].node["read"]["incremental"].get("on_change") or str(found[2]) in world.rewritten:
        return None
    _, at, file = found
    rows = new_rows(world, draw, 2)
    if in_days(world, at):
        rows = [{**one, "day": file.parent.name.removeprefix("day=")} for one in rows]
    world.rewritten[str(file)] = file.read_bytes()
    write_file(file, rows)
    return f"write other rows into {file.name}, which was loaded"


def link_file(world: World, draw: random.Random) -> str | None:
    home, at = a_reader(world, draw)
    if at.node["read"]["format"] == "delta":
        return None
    source = home.source(at)
    before = set(files_of(source))
    land(world, home, at, draw)
    (file,) = set(files_of(source)) - before
    elsewhere = world.root / world.new_name("elsewhere")
    whole_folder = draw.random() < 0.3 and not at.node["read"]["path"].endswith("*.csv") and file.parent == source
    elsewhere.mkdir()
    file.rename(elsewhere / file.name)
    if whole_folder:
        (source / elsewhere.name).symlink_to(elsewhere)
    else:
        file.symlink_to(elsewhere / file.name)
    return f"land a link to {'a folder' if whole_folder else 'a file'} elsewhere"


def _a_table(world: World, draw: random.Random) -> Path | None:
    home, at = a_reader(world, draw)
    path = home.source(at)
    is_table = at.node["read"]["format"] == "delta" and DeltaTable.is_deltatable(str(path))
    return path if is_table else None


def overwrite_source(world: World, draw: random.Random) -> str | None:
    if (path := _a_table(world, draw)) is None:
        return None
    write_deltalake(str(path), arrow(new_rows(world, draw, 3)), mode="overwrite")
    world.rewrite(path)
    return "the table that is read is overwritten with other rows"


def delete_from_source(world: World, draw: random.Random) -> str | None:
    if (path := _a_table(world, draw)) is None:
        return None
    deleted = DeltaTable(str(path)).delete(f"v % 5 = {draw.randrange(5)}")["num_deleted_rows"]
    if deleted:
        world.rewrite(path)
    return f"{deleted} rows of the table that is read are deleted"


def compact_source(world: World, draw: random.Random) -> str | None:
    if (path := _a_table(world, draw)) is None:
        return None
    DeltaTable(str(path)).optimize.compact()
    return "the table that is read is compacted"


def remake_source(world: World, draw: random.Random) -> str | None:
    if (path := _a_table(world, draw)) is None:
        return None
    shutil.rmtree(path)
    write_deltalake(str(path), arrow(new_rows(world, draw, 2)))
    world.rewrite(path)
    return "the table that is read is dropped and made again"


CHANGES = (
    Change("land", land_more, weight=30),
    Change("touch a file", touch, weight=1),
    Change("rename a file", rename_file),
    Change("delete a loaded file", delete_file, weight=1),
    Change("rewrite a loaded file", rewrite_file, may_stop=True, weight=1),
    Change("land a link", link_file),
    Change("overwrite a source table", overwrite_source, may_stop=True, weight=1),
    Change("delete from a source table", delete_from_source, weight=1),
    Change("compact a source table", compact_source, weight=1),
    Change("make a source table anew", remake_source, may_stop=True, weight=1),
)
