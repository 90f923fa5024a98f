"""Puts what a commit is made of on the disk: nothing that deltalake or Spark writes on a local disk is fsynced by them.

Data files go first, and the log's file after the commit, before it counts as done: a commit that survives a power cut
has its rows, and one that was acknowledged survives. A checkpoint is on the disk before a commit that it covers is
cleaned away. Stores answer once what they were given is kept; there, nothing is done here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from odi_assets.connections.location import Location
from odi_assets.delta.damage import LAST_CHECKPOINT, LOG, log_file
from odi_assets.delta.errors import deltalake_calls
from odi_assets.util.durable import sync_file, sync_files, sync_folder


def is_synced(location: Location) -> bool:
    """Whether commits to the table at ``location`` are put on the disk."""
    return location.is_local and location.fsync and os.name == "posix"


def sync_data(location: Location, paths: Iterable[str]) -> None:
    """Put files of a table, and their names, on the disk.

    Raises:
        TableError: it cannot be done.
    """
    files = [location.local_path / path for path in paths] if is_synced(location) else []
    if not files:
        # The table may not exist yet.
        return
    with deltalake_calls("putting files on the disk", location):
        sync_files(files)
        for folder in _folders(location.local_path, files):
            sync_folder(folder)


def sync_commit(location: Location, version: int) -> bool:
    """Put the commit of ``version`` on the disk, with the checkpoint that was made of it.

    Other writers may be at work: one writes the checkpoint and then its hint, another cleans what a later checkpoint
    covers.

    Returns:
        Whether there is such a checkpoint, complete: the commits that it covers may be cleaned away now.

    Raises:
        TableError: it cannot be done. The commit was made, and a power cut may take it back.
    """
    if not is_synced(location):
        return False
    log = location.local_path / LOG
    checkpoint = [log / f"{version:020d}.checkpoint.parquet", log / LAST_CHECKPOINT]
    with deltalake_calls("putting a commit on the disk", location):
        sync_file(log / f"{version:020d}.json", missing_ok=True)
        made = all(file.exists() for file in checkpoint)
        sync_files(checkpoint, missing_ok=True)
        sync_folder(log)
        if not version:
            for folder in (location.local_path, *location.local_path.parents[:3]):
                sync_folder(folder)
    return made


def sync_written(location: Location, version: int) -> bool:
    """Put the commit of ``version`` on the disk with its data files: of one that deltalake wrote them for.

    Returns:
        As :func:`sync_commit` does.

    Raises:
        TableError: it cannot be done. The commit was made, and a power cut may take it back.
    """
    if not is_synced(location):
        return False
    raw = log_file(location, f"{version:020d}.json")
    if raw is None:
        # Cleaned already: a checkpoint that covers it is on the disk.
        return False
    # A commit of system tables has an action for each of thousands of keys; only those that add files are parsed.
    added = [json.loads(line).get("add") for line in raw.splitlines() if b'"add"' in line]
    sync_data(location, [unquote(action["path"]) for action in added if action])
    return sync_commit(location, version)


def sync_folder_of(location: Location, since: float) -> None:
    """Put what was written into a folder since then, in seconds of the clock, on the disk: of a query's checkpoint.

    Files may go at any moment: Spark cleans the state of old batches in the background.

    Raises:
        TableError: it cannot be done.
    """
    if not is_synced(location):
        return
    with deltalake_calls("putting a checkpoint on the disk", location):
        for folder, _, names in os.walk(location.local_path):
            files = [Path(folder, name) for name in names]
            # The folder comes last: its new names are on the disk once the files are.
            for paths in (files, [Path(folder)]):
                sync_files([path for path in paths if _is_changed(path, since)], missing_ok=True)


def _is_changed(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except FileNotFoundError:
        return False


def _folders(root: Path, files: Iterable[Path]) -> set[Path]:
    """The folders of ``files``, and those above them up to ``root``."""
    folders = {root}
    for file in files:
        for folder in file.parents:
            if folder in folders:
                break
            folders.add(folder)
    return folders
