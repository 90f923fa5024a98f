"""Files of a landing folder in the order of their cursor (mtime, path)."""

from __future__ import annotations

import datetime as dt
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
from fsspec.utils import glob_translate

from odi_assets.connections.location import Location
from odi_assets.errors import SourceError

_GLOB_CHARACTERS = set("*?[")
# The rule of Spark's HadoopFSUtils.shouldFilterOutPathName (`_day=1` is a partition), and names that are no text.
_LEFT_OUT = re.compile(r"(?:^|/)(?:\.|_[^=/]*(?:/|$)|[^/]*\._COPYING_(?:/|$))|[\ud800-\udfff]")


@dataclass(frozen=True, order=True)
class SourceFile:
    """A file of a source. ``path`` is relative to the connection, so the HWM stays valid if the folder is moved.

    Attributes:
        etag: the object store's tag of the content; empty for local files.
    """

    mtime_ns: int
    path: str
    size: int
    etag: str = field(default="", compare=False)


def list_files(base: Location, pattern: str) -> list[SourceFile]:
    """The files that ``pattern`` names below ``base``, oldest first.

    A pattern is a file, a folder (all files below it) or a glob. Names that begin with ``_`` or ``.`` or end with
    ``._COPYING_`` are left out, as in Spark: writers use them for unfinished files. So are names that are not valid
    Unicode, which Spark cannot open. A link is the file or folder that it leads to, inside ``base`` or not.

    Raises:
        SourceError: ``base`` is not there, or a folder or a file of the pattern cannot be looked at.
    """
    try:
        return sorted(_local_files(base, pattern) if base.is_local else _remote_files(base, pattern))
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{base.uri}/{pattern} cannot be listed: {error}",
            fix="give odi the right to look there, or mount what is to be there; nothing was taken for missing",
            path=pattern,
        ) from error


def _local_files(base: Location, pattern: str) -> Iterator[SourceFile]:
    root, parts = base.local_path, [part for part in pattern.split("/") if part]
    # A folder that is not there may be a disk that is not mounted, below it nothing can be told from nothing landed.
    root.stat()
    fixed = next((i for i, part in enumerate(parts) if set(part) & _GLOB_CHARACTERS), len(parts))
    start, is_glob = root.joinpath(*parts[:fixed]), fixed < len(parts)
    matches = re.compile(glob_translate(root.joinpath(*parts).as_posix())).match
    depth = None if "**" in pattern or not is_glob else len(parts) - fixed
    try:
        is_folder = stat.S_ISDIR(start.stat().st_mode)
    except FileNotFoundError:
        if start.is_symlink():
            raise
        return
    for path in _below(start, depth, ()) if is_folder else [] if is_glob else [start]:
        name = path.relative_to(root).as_posix()
        if not _LEFT_OUT.search(name) and (not is_glob or matches(path.as_posix())):
            status = path.stat()
            yield SourceFile(status.st_mtime_ns, name, status.st_size)


def _below(folder: Path, depth: int | None, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """The files below a folder, down to ``depth`` levels; None: all. A link to a folder ``above`` is not followed."""
    status = folder.stat()
    if depth == 0 or (status.st_dev, status.st_ino) in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _LEFT_OUT.search(entry.name):
                continue
            if entry.is_dir():
                below = None if depth is None else depth - 1
                yield from _below(folder / entry.name, below, (*above, (status.st_dev, status.st_ino)))
            else:
                yield folder / entry.name


def _remote_files(base: Location, pattern: str) -> Iterator[SourceFile]:
    filesystem, root_path = fsspec.core.url_to_fs(base.uri, **base.fsspec_options)
    prefix = root_path.rstrip("/") + "/"
    target = f"{prefix}{pattern.strip('/')}".rstrip("/")
    is_glob = bool(set(pattern) & _GLOB_CHARACTERS)
    try:
        found = filesystem.glob(target, detail=True) if is_glob else filesystem.find(target, detail=True)
    except FileNotFoundError:
        return
    for path, info in found.items():
        name = path.removeprefix(prefix)
        if info.get("type") == "file" and not _LEFT_OUT.search(name):
            etag = str(info.get("ETag") or info.get("etag") or "").strip('"')
            yield SourceFile(_mtime_ns(info, filesystem), name, int(info.get("size") or 0), etag)


def _mtime_ns(info: dict[str, Any], filesystem: Any) -> int:
    modified = info.get("last_modified") or info.get("LastModified") or info.get("updated") or info.get("mtime")
    if isinstance(modified, str):
        modified = dt.datetime.fromisoformat(modified)
    if isinstance(modified, dt.datetime):
        delta = modified.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
    if isinstance(modified, int | float):
        return int(modified * 1_000_000_000)
    raise SourceError(f"{filesystem.protocol} gives no modification time for {info.get('name')}")
