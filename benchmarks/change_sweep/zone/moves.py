"""What happens to the files of a landing zone between runs."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.change_sweep.changes.change import Change
from benchmarks.change_sweep.landing import Columns, write_file
from benchmarks.change_sweep.world import World
from benchmarks.change_sweep.zone.listing import HIVE_NULL, FileThen, files_in

FOLDERS = (
    ".", "more", "k=1", "k=2", "k=3", "state=new/k=1", "state=done/k=1", "more/k=2", "k=1/k=2", "k=a%20b", "k=a b",
    f"k={HIVE_NULL}",
)  # fmt: skip
"""Where files lie. The last ``k=`` of a path counts, ``%20`` is a blank, and no column is called ``state``."""
_FIRST_TIME = 1_700_000_000
_MOST_ROWS = 3


def zone_of(world: World) -> Path:
    """The folder of the landing zone."""
    (home,) = world.homes
    return home.source(next(home.nodes()))


def set_time(world: World, file: Path) -> None:
    """Give a file a time of its own, later than each before."""
    world.names += 1
    os.utime(file, (_FIRST_TIME + world.names,) * 2)


def a_file(world: World, draw: random.Random, *, hidden: bool = False) -> Path | None:
    """One of the files that a run looks at, or of those that are hidden from it."""
    found = sorted(files_in(zone_of(world), hidden=hidden))
    return zone_of(world) / draw.choice(found) if found else None


def _name(world: World, file: Path) -> str:
    return world.new_name("f") + "".join(file.suffixes)


def _shown(world: World, file: Path) -> str:
    return file.relative_to(zone_of(world)).as_posix()


def _elsewhere(world: World, draw: random.Random, file: Path) -> Path:
    """A place that is free for a file, in any folder."""
    folder = zone_of(world) / draw.choice([folder for folder in FOLDERS if "k=" in folder or not _needs_k(world)])
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / file.name
    return folder / _name(world, file) if os.path.lexists(place) else place


def _needs_k(world: World) -> bool:
    """Whether files lie in folders of ``k`` alone: a CSV file has to have the columns of the schema."""
    (home,) = world.homes
    read = next(home.nodes()).node["read"]
    return bool(read["format"] == "csv" and read["schema"].endswith("k STRING"))


def _rows(file: Path) -> list[Columns]:
    then = FileThen(file.name, (0, file.read_bytes()))
    found = [{name: int(value) for name, value in one} for one in then.rows(("id", "v", "w"))]
    return [{name: one[name] for name in ("id", "v", "w")} for one in found]


def _new_rows(world: World, draw: random.Random) -> list[Columns]:
    first, world.landed = world.landed + 1, world.landed + draw.randint(1, _MOST_ROWS)
    return [{"id": v, "v": v, "w": draw.randint(100, 999)} for v in range(first, world.landed + 1)]


def _write(file: Path, rows: list[Columns]) -> None:
    """Write a file as it is written by others: beside its place, and then put there."""
    if file.suffix != ".gz":
        write_file(file, rows)
        return
    plain = file.with_name(f"_{file.stem}")
    write_file(plain, rows)
    file.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()


# -- what happens ------------------------------------------------------------------------------------------------------


def land(world: World, draw: random.Random) -> str:
    """A new file. Its name may have been that of a file that is gone."""
    (home,) = world.homes
    kind = next(home.nodes()).node["read"]["format"]
    file = _elsewhere(world, draw, Path(f"{draw.choice('abc')}.{kind}"))
    _write(file, _new_rows(world, draw))
    set_time(world, file)
    return f"land {_shown(world, file)}"


def move(world: World, draw: random.Random) -> str | None:
    if (file := a_file(world, draw)) is None:
        return None
    place = _elsewhere(world, draw, file)
    file.rename(place)
    return f"move {_shown(world, file)} to {_shown(world, place)}"


def rename(world: World, draw: random.Random) -> str | None:
    if (file := a_file(world, draw)) is None:
        return None
    place = file.with_name(_name(world, file))
    file.rename(place)
    return f"rename {_shown(world, file)} to {place.name}"


def move_folder(world: World, draw: random.Random) -> str | None:
    """A folder gets the name of another value, as a whole."""
    folders = sorted(folder for folder in zone_of(world).iterdir() if folder.is_dir() and not folder.is_symlink())
    if not folders:
        return None
    folder = draw.choice(folders)
    place = folder.with_name(f"k={draw.randint(4, 9)}")
    if place.exists():
        return None
    folder.rename(place)
    return f"rename the folder {folder.name} to {place.name}"


def copy(world: World, draw: random.Random) -> str | None:
    """A copy beside the file, or in another folder; with the time of the file, or with its own."""
    if (file := a_file(world, draw)) is None:
        return None
    place = file.with_name(_name(world, file)) if draw.random() < 0.5 else _elsewhere(world, draw, file)
    shutil.copy2(file, place)
    if is_new := draw.random() < 0.5:
        set_time(world, place)
    return f"copy {_shown(world, file)} to {_shown(world, place)}" + ("" if is_new else ", with its time")


def rewrite(world: World, draw: random.Random) -> str | None:
    """Rows get other values; the size stays as it was, and the time may."""
    if (file := a_file(world, draw)) is None:
        return None
    before = file.stat()
    _write(file, [{**one, "w": 1099 - one["w"]} for one in _rows(file)])
    if is_new := draw.random() < 0.5:
        set_time(world, file)
    else:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"rewrite {_shown(world, file)}" + ("" if is_new else ", with its time")


def extend(world: World, draw: random.Random) -> str | None:
    if (file := a_file(world, draw)) is None:
        return None
    _write(file, _rows(file) + _new_rows(world, draw))
    set_time(world, file)
    return f"append to {_shown(world, file)}"


def cut(world: World, draw: random.Random) -> str | None:
    """Take the last row away, or each byte."""
    if (file := a_file(world, draw)) is None:
        return None
    rows = _rows(file)[:-1]
    if rows:
        _write(file, rows)
    else:
        file.write_bytes(b"")
    set_time(world, file)
    return f"cut {_shown(world, file)} to {len(rows)} rows"


def delete(world: World, draw: random.Random) -> str | None:
    """Delete a file; a copy is kept elsewhere."""
    if (file := a_file(world, draw)) is None:
        return None
    kept = world.root / "kept" / _shown(world, file)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, kept)
    file.unlink()
    return f"delete {_shown(world, file)}"


def put_back(world: World, draw: random.Random) -> str | None:
    """A deleted file is there again: as it was, with another time, or with other rows."""
    kept = sorted(path for path in (world.root / "kept").rglob("*") if path.is_file())
    if not kept:
        return None
    copy = draw.choice(kept)
    place = zone_of(world) / copy.relative_to(world.root / "kept")
    how = draw.choice(("as it was", "with another time", "with other rows"))
    if os.path.lexists(place):
        return None
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(copy, place)
    if how == "with other rows":
        _write(place, [{**one, "w": 1099 - one["w"]} for one in _rows(place)])
    if how != "as it was":
        set_time(world, place)
    return f"put {_shown(world, place)} back {how}"


def exchange(world: World, draw: random.Random) -> str | None:
    """Two files exchange their names."""
    one, other = a_file(world, draw), a_file(world, draw)
    if one is None or other is None or one == other or one.suffixes != other.suffixes:
        return None
    scratch = one.with_name("_scratch")
    for old, new in ((one, scratch), (other, one), (scratch, other)):
        old.rename(new)
    return f"{_shown(world, one)} and {_shown(world, other)} exchange their names"


def move_over(world: World, draw: random.Random) -> str | None:
    """A file takes the place of another one."""
    one, other = a_file(world, draw), a_file(world, draw)
    if one is None or other is None or one == other or one.suffixes != other.suffixes:
        return None
    one.rename(other)
    return f"move {_shown(world, one)} over {_shown(world, other)}"


def pack(world: World, draw: random.Random) -> str | None:
    """Pack a file in its place, with its time."""
    file = a_file(world, draw)
    if file is None or file.suffix in (".gz", ".parquet"):
        return None
    place = file.with_name(f"{file.name}.gz")
    if os.path.lexists(place):
        return None
    place.write_bytes(gzip.compress(file.read_bytes()))
    shutil.copystat(file, place)
    file.unlink()
    return f"pack {_shown(world, file)}"


def hide(world: World, draw: random.Random) -> str | None:
    if (file := a_file(world, draw)) is None:
        return None
    place = file.with_name(draw.choice("_.") + file.name)
    file.rename(place)
    return f"hide {_shown(world, file)} as {place.name}"


def show(world: World, draw: random.Random) -> str | None:
    """A file that was hidden gets its name."""
    file = a_file(world, draw, hidden=True)
    if file is None:
        return None
    place = file.with_name(file.name[1:])
    if os.path.lexists(place):
        return None
    file.rename(place)
    return f"show {_shown(world, place)}"


def link(world: World, draw: random.Random) -> str | None:
    """A file lies elsewhere now, and a link in its place; or a link to it lands beside it."""
    file = a_file(world, draw)
    if file is None or file.is_symlink():
        return None
    if draw.random() < 0.5:
        place = file.with_name(_name(world, file))
        place.symlink_to(file)
        return f"land {_shown(world, place)}, a link to {file.name}"
    elsewhere = world.root / "elsewhere" / _name(world, file)
    elsewhere.parent.mkdir(exist_ok=True)
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    return f"put a link in the place of {_shown(world, file)}"


def touch(world: World, draw: random.Random) -> str | None:
    """A file gets a new time, or one before all others."""
    if (file := a_file(world, draw)) is None:
        return None
    set_time(world, file)
    if is_back := draw.random() < 0.5:
        os.utime(file, (_FIRST_TIME - world.names,) * 2)
    return f"touch {_shown(world, file)}" + (", back in time" if is_back else "")


Make = Callable[[World, random.Random], str | None]


def _change(name: str, make: Make, weight: int = 3) -> Change:
    return Change(name, _without_ends_of_links(make), weight=weight)


def _without_ends_of_links(make: Make) -> Make:
    """A link to nothing stops each run, so it goes with its file."""

    def made(world: World, draw: random.Random) -> str | None:
        done = make(world, draw)
        for path in zone_of(world).rglob("*"):
            if path.is_symlink() and not path.exists():
                path.unlink()
        return done

    return made


MOVES = {
    change.name: change
    for change in (
        _change("land", land, weight=20),
        _change("move a file", move, weight=6),
        _change("rename a file", rename),
        _change("rename a folder", move_folder),
        _change("copy a file", copy),
        _change("rewrite a file", rewrite),
        _change("append to a file", extend),
        _change("cut a file", cut, weight=2),
        _change("delete a file", delete),
        _change("put a file back", put_back),
        _change("exchange names", exchange),
        _change("move over a file", move_over, weight=2),
        _change("pack a file", pack, weight=2),
        _change("hide a file", hide),
        _change("show a file", show),
        _change("link a file", link, weight=2),
        _change("touch a file", touch),
    )
}
