"""Files of a landing folder in the order of their cursor (mtime, path)."""

from __future__ import annotations

import datetime as dt
import glob
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.utils import glob_translate

from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError, SourceError

_GLOB_CHARACTERS = set("*?[")
# The rule of Spark's HadoopFSUtils.shouldFilterOutPathName (`_day=1` is a partition).
_LEFT_OUT = re.compile(r"(?:^|/)(?:\.|_[^=/]*(?:/|$)|[^/]*\._COPYING_(?:/|$))")
_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
"""Folders that make a table of the folder around them, and the format."""
_OF_A_TABLE = re.compile(r"(?:^|/)(?:(_delta_log|\.hoodie)(?:/|$)|metadata/[^/]+\.metadata\.json$)")
_NO_TEXT = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, order=True)
class SourceFile:
    """A file of a source. ``path`` is relative to the connection, so the HWM stays valid if the folder is moved.

    Attributes:
        etag: the object store's tag of the content; empty for local files.
        changed_ns: when a local file or its attributes changed, which nobody sets by hand; 0 in other stores.
    """

    mtime_ns: int
    path: str
    size: int
    etag: str = field(default="", compare=False)
    changed_ns: int = field(default=0, compare=False)


_PAGE = 1000


@dataclass(frozen=True)
class Listing:
    """What a pattern names.

    Attributes:
        files: oldest first.
        folders: where its last part is ``*``, the folders beside the files, which are not looked into; by name.
    """

    pattern: str
    files: list[SourceFile]
    folders: list[str]

    @property
    def note(self) -> str:
        """What it says of its folders; empty if there are none."""
        if not self.folders:
            return ""
        count = "folder" if len(self.folders) == 1 else f"{len(self.folders):,} folders, as"
        return f"not looked into {count} {self.folders[0]}: `path: {with_folders(self.pattern)}` would"


@dataclass(frozen=True)
class _Seen:
    """What a listing meets beside files.

    Attributes:
        tables: the formats of tables, by folder.
    """

    tables: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def see(self, name: str) -> None:
        """Remember the table around a path that only tables have."""
        match = _OF_A_TABLE.search(name)
        if match:
            self.tables[name[: match.start()]] = _LOGS.get(match[1], "Iceberg")


def folder_of(pattern: str) -> str:
    """The folder that a pattern looks into, or the folder or file that it names; empty if that is its base."""
    parts = [part for part in posixpath.normpath(pattern).split("/") if part not in ("", ".")]
    fixed = next((i for i, part in enumerate(parts) if set(part) & _GLOB_CHARACTERS), len(parts))
    return "/".join(parts[:fixed])


_Look = Callable[[str], object] | None
"""Whether a path may match a glob; None: all files are listed."""


class _Pattern(NamedTuple):
    """Where a pattern looks.

    Attributes:
        start: the folder or file that it begins with.
        depth: how many levels below it; None: all.
        look: whether a path may match; None: all do.
    """

    start: str
    depth: int | None
    look: _Look


def _looked_for(base: Location, pattern: str) -> _Pattern:
    parts = [part for part in posixpath.normpath(pattern).split("/") if part not in ("", ".")]
    fixed = next((i for i, part in enumerate(parts) if set(part) & _GLOB_CHARACTERS), len(parts))
    while base.is_local and fixed < len(parts) and os.path.lexists("/".join([base.uri, *parts[: fixed + 1]])):
        fixed = next((i for i in range(fixed + 1, len(parts)) if set(parts[i]) & _GLOB_CHARACTERS), len(parts))
    start, is_glob = "/".join(parts[:fixed]), fixed < len(parts)
    literal = "/".join([*map(glob.escape, parts[:fixed]), *parts[fixed:]])
    look = re.compile(glob_translate(literal)).match if is_glob else None
    return _Pattern(start, len(parts) - fixed if is_glob and "**" not in literal else None, look)


def is_named(base: Location, pattern: str, path: str) -> bool:
    """Whether a pattern names a file that another reader found for it: Spark looks into folders that a glob names."""
    start, _, look = _looked_for(base, pattern)
    return look(path) is not None if look is not None else f"{path}/".startswith(f"{start}/".lstrip("/"))


def with_folders(pattern: str) -> str:
    """The pattern that names the files in folders, too, where the last part of ``pattern`` is ``*``."""
    above = posixpath.dirname(posixpath.normpath(pattern))
    return f"{above}/**" if set(above) & _GLOB_CHARACTERS else above or "."


def list_files(base: Location, pattern: str) -> list[SourceFile]:
    """The files of :func:`listing`."""
    return listing(base, pattern).files


def listing(base: Location, pattern: str) -> Listing:
    """The files that ``pattern`` names below ``base``.

    A pattern is a file, a folder (all files below it) or a glob. Names that begin with ``_`` or ``.`` or end with
    ``._COPYING_`` are left out, as in Spark: writers use them for unfinished files. A link is the file or folder
    that it leads to, inside ``base`` or not.

    On this machine, the first parts of a pattern that are there as they are written are no globs: ``in[1]/*.csv``
    names the files of a folder ``in[1]`` if there is one.

    Raises:
        SourceError: ``base`` is not there, or a folder or a file of the pattern cannot be looked at; or Spark cannot
            open a file because of its name; or a folder lies where a file is to be, or the other way round; or files
            belong to a table, whose log says which of them count.
    """
    seen = _Seen()
    looked_for = _looked_for(base, pattern)
    try:
        files = sorted((_local_files if base.is_local else _remote_files)(base, looked_for, seen))
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{base.uri}/{pattern} cannot be listed: {error}",
            fix="give odi the right to look there, mount what is to be there, or remove a link that leads nowhere; "
            "nothing was taken for missing",
            path=pattern,
        ) from error
    _require_no_table(base, files, seen.tables)
    above = base.is_local and ":" in base.uri
    odd = next((f.path for f in files if (above or ":" in f.path) and base.child(f.path).is_escaped), None)
    if odd is not None:
        raise SourceError(
            f"{base.uri}/{odd} has a name that Spark cannot open: a colon beside one of \\ {{ }} [ ] * ?",
            fix="give it another name, or a `path` to the node that does not match it",
            path=odd,
        )
    return Listing(pattern, files, sorted(seen.folders))


def _require_no_table(base: Location, files: Iterable[SourceFile], tables: Mapping[str, str]) -> None:
    """Raises SourceError if files are of a table: of its files, some hold rows that were removed or replaced since."""
    if not tables:
        return
    for file in files:
        around = [file.path[:at] for at, character in enumerate(file.path) if character == "/"]
        folder = next((parent for parent in ("", *around) if parent in tables), None)
        if folder is None or not file.path.endswith(".parquet"):
            continue
        kind, uri = tables[folder], "/".join(filter(None, (base.uri, folder)))
        fix = "let its own engine write its rows as plain files, or as a Delta table, and read those"
        if kind == "Delta":
            fix = (
                f"read it with `format: delta, path: {folder or '.'}`; where a node of this project writes it, with "
                "`inputs: {x: {node: …}}`"
            )
        raise SourceError(
            f"{uri} is a {kind} table: among its files, as {file.path}, are some whose rows were removed or replaced",
            fix=fix,
            path=file.path,
        )


def _local_tables_above(root: Path, below: str, tables: dict[str, str]) -> None:
    """Remember the tables in whose folders a path leads, from ``root`` on."""
    for folder in (root / below).parents:
        if not folder.is_relative_to(root):
            break
        inside = "" if folder == root else folder.relative_to(root).as_posix()
        metadata = folder / "metadata"
        if metadata.is_dir() and any(file.name.endswith(".metadata.json") for file in metadata.iterdir()):
            tables[inside] = "Iceberg"
        for log, kind in _LOGS.items():
            if (folder / log).is_dir():
                tables[inside] = kind


def _local_files(base: Location, looked_for: _Pattern, seen: _Seen) -> Iterator[SourceFile]:
    below, depth, look = looked_for
    root = base.local_path
    # A missing folder may be a disk that is not mounted. Below it, an empty listing would look as if nothing landed.
    root.stat()
    start = root / below
    try:
        is_folder = stat.S_ISDIR(start.stat().st_mode)
    except FileNotFoundError:
        if start.is_symlink():
            raise
        return
    if look and not is_folder:
        raise _unreadable(base, below, "is a file, and the path names files in a folder of this name")
    _local_tables_above(root, below, seen.tables)
    for path in _below(start, depth, ()) if is_folder else [start]:
        name = path.relative_to(root).as_posix()
        seen.see(name)
        if not _LEFT_OUT.search(name) and (look is None or look(name)):
            try:
                status = path.stat()
            except FileNotFoundError:
                if path.is_symlink():
                    raise
                # Its writer took it away after the folder was listed.
                continue
            if stat.S_ISDIR(status.st_mode) and _names_all(look, name):
                seen.folders.append(name)
                continue
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(base, name, "is no file, but a folder, a pipe or a device")
            if _NO_TEXT.search(name):
                raise _unreadable(base, name, "has a name that is not UTF-8, which Spark cannot open")
            yield SourceFile(status.st_mtime_ns, name, status.st_size, changed_ns=status.st_ctime_ns)


def _names_all(look: _Look, name: str) -> bool:
    """Whether the last part of a glob is ``*``, which names the files beside folders."""
    return bool(look and look(f"{posixpath.dirname(name)}/\0".lstrip("/")))


def looked_at_again(base: Location, pattern: str, paths: Sequence[str], count: int) -> Iterator[SourceFile]:
    """Files that ``pattern`` listed, as they are now, without those that are gone.

    Args:
        count: how many it listed. A store lists a page of files for what the look at one of them costs.
    """
    if base.is_local:
        for path in paths:
            try:
                status = (base.local_path / path).stat()
            except FileNotFoundError:
                continue
            yield SourceFile(status.st_mtime_ns, path, status.st_size, changed_ns=status.st_ctime_ns)
    elif len(paths) * _PAGE < count:
        for path in paths:
            yield from list_files(base, glob.escape(path))
    else:
        wanted = set(paths)
        yield from (file for file in list_files(base, pattern) if file.path in wanted)


def _unreadable(base: Location, name: str, what: str) -> SourceError:
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return SourceError(
        f"{base.uri}/{shown} {what}",
        fix="rename or remove it, or give the node a `path` that does not match it; nothing was taken for missing",
        path=shown,
    )


def _below(folder: Path, depth: int | None, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """The files below a folder, down to ``depth`` levels, and the logs of tables; None: all levels.

    A link to a folder ``above`` is not followed.
    """
    status = folder.stat()
    if depth == 0 or (status.st_dev, status.st_ino) in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _LEFT_OUT.search(entry.name):
                if entry.name in _LOGS:
                    yield folder / entry.name
                continue
            if entry.is_dir() and depth != 1:
                below = None if depth is None else depth - 1
                yield from _below(folder / entry.name, below, (*above, (status.st_dev, status.st_ino)))
            else:
                yield folder / entry.name


def _remote_files(base: Location, looked_for: _Pattern, seen: _Seen) -> Iterator[SourceFile]:
    """The files of an object store, which has no folders: a prefix that nothing has is no error, a missing bucket is.

    fsspec raises what the libraries of the stores raise, and by default passes over what it cannot list.
    """
    try:
        filesystem, root_path = base.in_store()
        # A process that lives long, such as a sensor's, would see the files of its first look for ever.
        filesystem.invalidate_cache()
        prefix = root_path.rstrip("/") + "/"
        below, depth, look = looked_for
        objects = _objects(filesystem, f"{prefix}{below}".rstrip("/"), depth)
        if not objects:
            # Not even the bucket may be there, or the right to look into it.
            filesystem.ls(root_path.strip("/").partition("/")[0], detail=False)
        for folder in _around(below, objects):
            if filesystem.exists(f"{prefix}{folder}/_delta_log".replace("//", "/")):
                seen.tables[folder] = _LOGS["_delta_log"]
    except (OSError, ValueError, ConfigError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    for path, info in objects.items():
        name = path.removeprefix(prefix)
        seen.see(name)
        if _LEFT_OUT.search(name) or not (look is None or look(name)):
            continue
        if info.get("type") == "file":
            etag = str(info.get("ETag") or info.get("etag") or "").strip('"')
            yield SourceFile(_mtime_ns(info, filesystem), name, int(info.get("size") or 0), etag)
        elif _names_all(look, name):
            seen.folders.append(name)
        elif info.get("type") == "directory":
            raise _unreadable(base, name, "is no file, but a folder")


def _objects(filesystem: Any, start: str, depth: int | None) -> dict[str, Any]:
    try:
        if depth is None:
            # One listing of all that begins so, in pages.
            objects: dict[str, Any] = filesystem.find(start, detail=True)
            return objects
        levels = filesystem.walk(start, maxdepth=depth, detail=True, on_error="raise")
        return {info["name"]: info for _, *entries in levels for each in entries for info in each.values()}
    except FileNotFoundError:
        return {}


def _around(below: str, paths: Iterable[str]) -> list[str]:
    """The folders above a path, in which a table may be; none where there is nothing of tables."""
    parts = below.split("/") if below and any(name.endswith(".parquet") for name in paths) else []
    return ["/".join(parts[:depth]) for depth in range(len(parts))]


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
