"""Files of a landing folder in the order of their cursor (mtime, path)."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec

from odi_assets.connections.location import Location
from odi_assets.errors import SourceError

_GLOB_CHARACTERS = "*?["
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
    Unicode, which Spark cannot open.

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
        SourceFile(
            _mtime_ns(info, filesystem),
            path.removeprefix(prefix),
            int(info.get("size") or 0),
            str(info.get("ETag") or info.get("etag") or "").strip('"'),
        )
        for path, info in found.items()
        if info.get("type") == "file" and not _LEFT_OUT.search(path.removeprefix(prefix))
    )
    return sorted(files)


def _mtime_ns(info: dict[str, Any], filesystem: Any) -> int:
    if "mtime" in info and "ino" in info:
        # fsspec has seconds as a float, which loses the last digits.
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
