"""Rows that files brought at or below a mark: of the files whose paths the mark does not know.

A mark whose node makes partitions again knows more: by the value that folders give to the partition column, the state
of each file. So a file that moved from ``k=1/`` to ``k=2/`` is seen to leave one partition and to join another.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.late import NONE_LATE, Late, place_of, rows_below
from odi_assets.sources.cursor.parquet_bounds import bounds_of_files
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.files.folders import folder_values
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.marks import CursorMark, LoadedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.sources.files.snapshot import FilesSnapshot

_MOST = 500
"""Files that a mark knows by their paths. Of more, no path is kept: the commit that sets the mark stays small."""
MOST_IN_FOLDERS = 50_000
"""Files in folders of partitions that a mark knows: 5 bytes of its commit for each."""
_DIGEST = 4
_Folders = Mapping[str | None, Counter[bytes]]
"""By the value that folders give to the partition column: digests of the states of the files below them."""


def known_files(files: FilesSnapshot, before: str | None) -> str | None:
    """The files as a mark keeps them: a short digest of each path, and of its state; None of too many.

    Where the node makes partitions again, ``|`` follows, and the files by the folders of these partitions.

    Args:
        before: what the mark before kept. Files of it that are gone stay known: they may come back elsewhere.

    Raises:
        IncrementError: more files lie in folders of partitions than a mark knows.
    """
    paths = None
    if len(files.chosen) <= _MOST:
        pairs = sorted(_of_path(file) + _of_state(file) for file in files.chosen)
        paths = base64.b64encode(b"".join(pairs)).decode()
    if not files.parted_by:
        return paths
    folders = _folders(files.chosen, files.parted_by)
    if len(files.chosen) > MOST_IN_FOLDERS:
        if folders.keys() <= {None}:
            return paths
        raise _too_many(files)
    kept = _with_gone(folders, _kept_folders(before), MOST_IN_FOLDERS - len(files.chosen))
    encoded = [
        [value, base64.b64encode(b"".join(sorted(states.elements()))).decode()] for value, states in kept.items()
    ]
    return f"{paths or ''}|{json.dumps(encoded, separators=(',', ':'))}"


def _with_gone(now: _Folders, then: _Folders, room: int) -> _Folders:
    """The files that are there ``now``, and up to ``room`` of those that were there ``then`` and are nowhere."""
    none = Counter[bytes]()
    joined = set[bytes]().union(*(states - then.get(value, none) for value, states in now.items()))
    folders = dict(now)
    for value, states in then.items():
        gone = states - now.get(value, none)
        left = Counter({state: count for state, count in gone.items() if state not in joined})
        if left and left.total() <= room:
            folders[value] = folders.get(value, none) + left
            room -= left.total()
    return folders


def _too_many(files: FilesSnapshot) -> IncrementError:
    column = files.parted_by
    return IncrementError(
        f"{files.label} has {len(files.chosen):,} files, and the HWM of a node that computes partitions of folders "
        f"`{column}=` again knows {MOST_IN_FOLDERS:,}: a row that moves to another folder would be lost",
        fix="read it with `incremental: files`, which knows any number of files; or write what is read with `append` "
        "or `upsert`, and let a second node write by partitions",
        label=files.label,
    )


def _folders(files: Sequence[SourceFile], parted_by: str) -> dict[str | None, Counter[bytes]]:
    folders: dict[str | None, Counter[bytes]] = {}
    for file in files if parted_by else ():
        folders.setdefault(_value(file.path, parted_by), Counter())[_of_content(file)] += 1
    return folders


def _value(path: str, column: str) -> str | None:
    """What the folders of a file say of a column; None for NULL, or nothing."""
    return folder_values(path, (column.lower(),)).get(column.lower()) if "=" in path else None


def _kept_folders(kept: str | None) -> dict[str | None, Counter[bytes]]:
    text = (kept or "").partition("|")[2]
    folders: dict[str | None, Counter[bytes]] = {}
    for value, digests in json.loads(text) if text else ():
        states = base64.b64decode(digests)
        folders[value] = Counter(states[at : at + _DIGEST] for at in range(0, len(states), _DIGEST))
    return folders


def moved_between(files: Sequence[SourceFile], parted_by: str, known: str) -> tuple[frozenset[str | None], set[str]]:
    """The values of folders that files moved between since a mark knew them, and the paths where they are now."""
    then, now = _kept_folders(known), _folders(files, parted_by)
    if not then:
        return frozenset(), set()
    none = Counter[bytes]()
    left = {value: states - now.get(value, none) for value, states in then.items()}
    joined = {value: states - then.get(value, none) for value, states in now.items()}
    moved = set[bytes]().union(*left.values()) & set[bytes]().union(*joined.values())
    values = {value for side in (left, joined) for value, states in side.items() if moved & states.keys()}
    states = {file.path: _of_content(file) for file in files}
    places = {path for path, state in states.items() if state in moved and state in joined[_value(path, parted_by)]}
    return frozenset(values), places


def _kept_states(known: str) -> set[bytes]:
    kept = base64.b64decode(known.partition("|")[0])
    return {kept[at : at + 2 * _DIGEST] for at in range(0, len(kept), 2 * _DIGEST)}


def arrived_since(files: Sequence[SourceFile], known: str) -> tuple[list[SourceFile], bool]:
    """The files whose paths are not among the ``known`` ones; and whether one of the others was rewritten."""
    states = _kept_states(known)
    paths = {pair[:_DIGEST] for pair in states}
    new = [file for file in files if _of_path(file) not in paths]
    others = [file for file in files if _of_path(file) in paths]
    return new, any(_of_path(file) + _of_state(file) not in states for file in others)


def late_in_files(
    files: FilesSnapshot, mark: CursorMark, window: Window, start: Any, spark: SparkSession | None
) -> Late:
    """The rows of files that arrived since ``mark`` was set, and lie below ``window``."""
    if mark.held_then is None:
        return NONE_LATE
    moved, places = moved_between(files.chosen, files.parted_by, mark.held_then)
    if window.lower is None or mark.held_then.startswith("|"):
        return Late(moved=moved)
    new, rewritten = arrived_since(files.chosen, mark.held_then)
    # Rows of moved files are read with their partitions.
    new = [file for file in new if file.path not in places]
    ranges = _loaded_since(new, mark)
    below, mixed = _below_by_footers(files, [file for file in new if not ranges[file.path]], window, start)
    mixed = [*mixed, *(file for file in new if ranges[file.path])]
    if not mixed or spark is None:
        # Rows that a rewritten file had before look like those that it has now.
        return Late(below, not (mixed or rewritten), by_reading=bool(mixed), moved=moved)
    for loaded in {ranges[file.path] for file in mixed}:
        alike = replace(files, chosen=tuple(file for file in mixed if ranges[file.path] == loaded))
        below += rows_below(alike.rows(spark), window, start, loaded)
    return Late(below, not rewritten, moved=moved)


def _loaded_since(new: Sequence[SourceFile], mark: CursorMark) -> dict[str, tuple[LoadedRange, ...]]:
    """By path of a file, the ranges that were loaded since ``mark`` and saw the file as it is now."""
    ranges_by_path: dict[str, tuple[LoadedRange, ...]] = {file.path: () for file in new}
    for loaded_range in mark.ranges:
        states = _kept_states(loaded_range.held)
        for file in new:
            if _of_path(file) + _of_state(file) in states:
                ranges_by_path[file.path] += (loaded_range,)
    return ranges_by_path


def _below_by_footers(
    files: FilesSnapshot, new: Sequence[SourceFile], window: Window, start: Any
) -> tuple[int, Sequence[SourceFile]]:
    """How many rows are in files that lie below ``window`` as a whole; and the files that may lie on both sides."""
    if files.format != FileFormat.PARQUET or files.schema_ddl or window.fallback or window.date_format:
        return 0, new
    below, mixed = 0, []
    all_bounds = bounds_of_files(files.base, [file.path for file in new], window.column)
    for file, bounds in zip(new, all_bounds, strict=True):
        if bounds is None:
            mixed.append(file)
            continue
        side = place_of(bounds.lower, bounds.upper, window.lower, inclusive=window.lower_inclusive)
        if side == "below" and (start is None or bounds.lower >= start):
            below += bounds.rows - bounds.nulls
        elif side != "above" and bounds.upper is not None:
            mixed.append(file)
    return below, mixed


def _of_path(file: SourceFile) -> bytes:
    return _short(file.path)


def _of_state(file: SourceFile) -> bytes:
    return _short(f"{file.size}\0{file.mtime_ns}\0{file.etag}")


def _of_content(file: SourceFile) -> bytes:
    """What stays as a file moves: its size and time; in an object store, where a move is a copy, its size and etag."""
    return _short(f"{file.size}\0{file.etag or file.mtime_ns}")


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_DIGEST).digest()
