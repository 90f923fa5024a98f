"""Files of a landing folder in the order of their cursor (mtime, path), and those that are new."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError, SourceError

_GLOB_CHARACTERS = "*?["


@dataclass(frozen=True, order=True)
class SourceFile:
    """A file of a source. ``path`` is relative to the connection, so that the HWM survives a move of the folder."""

    mtime_ns: int
    path: str
    size: int

    @property
    def cursor(self) -> tuple[int, str]:
        return self.mtime_ns, self.path


def list_files(base: Location, pattern: str) -> list[SourceFile]:
    """The files that ``pattern`` names below ``base``, oldest first.

    A pattern is a file, a folder (all files below it) or a glob. Names that begin with ``_`` or ``.`` are left out, as
    Spark does: writers use them for files that are not finished.

    Raises:
        SourceError: the storage cannot be listed.
    """
    root = base.local_path.as_posix() if base.is_local else base.uri
    try:
        filesystem, root_path = fsspec.core.url_to_fs(root, **base.fsspec_options)
        target = f"{root_path.rstrip('/')}/{pattern.strip('/')}".rstrip("/")
        if any(character in pattern for character in _GLOB_CHARACTERS):
            found = filesystem.glob(target, detail=True)
        else:
            found = filesystem.find(target, detail=True)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise SourceError(f"{base.uri}/{pattern} cannot be listed: {error}", path=pattern) from error
    prefix = root_path.rstrip("/") + "/"
    files = (
        SourceFile(_mtime_ns(info, filesystem), path.removeprefix(prefix), int(info.get("size") or 0))
        for path, info in found.items()
        if info.get("type") == "file"
    )
    return sorted(file for file in files if not _is_hidden(file.path))


def _mtime_ns(info: dict[str, Any], filesystem: Any) -> int:
    if "mtime" in info and "ino" in info:
        # fsspec keeps seconds as a float, which loses the last digits; the file system has them.
        return Path(info["name"]).stat().st_mtime_ns
    modified = info.get("last_modified") or info.get("LastModified") or info.get("updated") or info.get("mtime")
    if isinstance(modified, str):
        modified = dt.datetime.fromisoformat(modified)
    if isinstance(modified, dt.datetime):
        delta = modified.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
    if isinstance(modified, int | float):
        return int(modified * 1_000_000_000)
    raise SourceError(f"{filesystem.protocol} gives no modification time for {info.get('name')}")


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in PurePosixPath(path).parts)


def hwm_of(files: Sequence[SourceFile]) -> dict[str, Any] | None:
    """The HWM that stands for having read all of ``files``: the cursor of the last one."""
    if not files:
        return None
    last = max(files)
    return {"mtime_ns": last.mtime_ns, "path": last.path}


def newer_than(files: Iterable[SourceFile], hwm: Any, label: str) -> list[SourceFile]:
    """The files after the HWM, oldest first.

    Raises:
        IncrementError: the HWM is not one of files.
    """
    if hwm is None:
        return sorted(files)
    try:
        mark = (int(hwm["mtime_ns"]), str(hwm["path"]))
    except (TypeError, KeyError, ValueError) as error:
        raise IncrementError(
            f"the HWM of {label} is {hwm!r}, and that of files needs `mtime_ns` and `path`",
            fix="set it right with odi state set, or read everything once with odi run --full-refresh",
        ) from error
    return sorted(file for file in files if file.cursor > mark)
