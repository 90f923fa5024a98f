"""Paths under a connection."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def local_base(base_path: str, root: Path) -> str:
    """Return the folder of a local connection: ``~`` expanded, relative to the project file's folder, normalized."""
    return os.path.normpath(os.path.join(root.absolute(), os.path.expanduser(base_path)))  # noqa: PTH111, PTH118


def inside(path: str, where: str) -> str | None:
    """Return a path relative to ``where``, normalized, ``""`` for ``where`` itself; None when it leads out.

    Only words are looked at, links are not followed. An absolute path is one of this machine where ``where`` is; in
    stores its slash means nothing.
    """
    if where.startswith("/") and path.startswith("/"):
        path = os.path.relpath(path, where)
    normal = posixpath.normpath(path.strip("/") or ".")
    if normal == ".." or normal.startswith("../"):
        return None
    return "" if normal == "." else normal
