"""Sets aside what is torn of a table's log, so that the table can be opened at its last whole version.

Nothing is deleted: files are moved to a folder inside the table's own, whose name begins with ``_``, so that no vacuum
cleans it.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from odi_assets.connections.location import Location
from odi_assets.delta.damage import LOG, Log, data_beside_empty_log, read_log
from odi_assets.delta.errors import deltalake_calls
from odi_assets.util.durable import sync_folder

ASIDE = "_odi_aside"
"""The folder of what was set aside, in the table's own."""


@dataclass(frozen=True)
class Repair:
    """What of a table is set aside.

    Attributes:
        faults: what is wrong with its log.
        moves: paths relative to the table, in the order they are moved; all of the table if ``whole``.
        whole: the log no longer has any whole version.
        version: the version that the table is at afterwards; None if there is no table then.
    """

    location: Location
    faults: tuple[str, ...]
    moves: tuple[str, ...]
    whole: bool
    version: int | None


def plan_repair(location: Location) -> Repair | None:
    """How the table at ``location`` is repaired; None if its log is whole. Changes nothing.

    Raises:
        TableError: the log cannot be looked at.
    """
    log = read_log(location, every=True)
    if log.is_empty:
        data = data_beside_empty_log(location)
        return None if data is None else _whole(location, (f"{LOG} is empty, and there are data files: {data}",))
    if not log.faults:
        return None
    faults, version = tuple(map(str, log.faults)), log.reachable
    if version is None:
        return _whole(location, faults)
    return Repair(location, faults, tuple(f"{LOG}/{name}" for name in _after(log, version)), False, version)


def apply_repair(repair: Repair) -> str:
    """Move what ``repair`` names, and return where to.

    Raises:
        TableError: a file cannot be moved; the command can be given again.
    """
    location = repair.location
    aside = f"{ASIDE}/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    with deltalake_calls("setting aside damaged files", location):
        for path in repair.moves:
            _move(location, path, f"{aside}/{path}")
        if location.is_local:
            for folder in {posixpath.dirname(path) for path in repair.moves}:
                sync_folder(location.local_path / aside / folder)
                sync_folder(location.local_path / folder)
    return location.child(aside).uri


def set_aside(location: Location, paths: tuple[str, ...]) -> str:
    """Move files of a table out of the way, and return where to.

    Raises:
        TableError: a file cannot be moved.
    """
    return apply_repair(Repair(location, (), paths, False, None))


def _whole(location: Location, faults: tuple[str, ...]) -> Repair:
    filesystem, root = location.in_store()
    names = sorted(path.rstrip("/").rpartition("/")[2] for path in filesystem.ls(root, detail=False))
    # The log goes last: without it, nobody would know that the rest was a table. Folders of ours stay where they are.
    moves = tuple(name for name in names if not name.startswith("_odi") and name != LOG)
    return Repair(location, faults, (*moves, LOG), True, None)


def _after(log: Log, version: int) -> tuple[str, ...]:
    """Files that are torn, and files of versions after ``version``, the newest first: a repair that is interrupted
    leaves a log whose damage is seen."""
    existing: list[tuple[int, str]] = []
    for number, name in log.commits.items():
        existing.append((number, name))
    for number, names in [*log.checkpoints.items(), *log.others.items()]:
        existing += [(number, name) for name in names]
    torn = {fault.name for fault in log.faults if fault.version is None or fault.why != "is missing"}
    parts = {name for number, names in log.checkpoints.items() if number not in log.sound for name in names}
    affected = [(number, name) for number, name in existing if number > version or name in torn | parts]
    hint = [(version + 1, fault.name) for fault in log.faults if fault.version is None]
    return tuple(name for _, name in sorted([*affected, *hint], reverse=True))


def _move(location: Location, path: str, to: str) -> None:
    if location.is_local:
        target = location.local_path / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (location.local_path / path).rename(target)
        for link in _broken_links(target):
            # Deleting unused files of the table would stop at the link.
            link.with_name(f"{link.name}.link").write_text(str(link.readlink()), encoding="utf-8")
            link.unlink()
        return
    filesystem, root = location.in_store()
    filesystem.mv(f"{root}/{path}", f"{root}/{to}", recursive=True)


def _broken_links(path: Path) -> list[Path]:
    inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [entry for entry in (path, *inside) if entry.is_symlink() and not entry.exists()]
