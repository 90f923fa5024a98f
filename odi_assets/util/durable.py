"""Changes of files and folders that survive a power cut."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

_AT_ONCE = 8


def write_file(path: Path, contents: str | bytes, *, is_new: bool = False) -> None:
    """Put text or bytes in the place of a file, whole, and on the disk. What a link leads to is replaced, not the link.

    Args:
        is_new: replace no file, whoever else writes there.

    Raises:
        FileExistsError: with ``is_new``, there is one.
        OSError: the file cannot be written.
    """
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents.encode("utf-8", errors="surrogatepass") if isinstance(contents, str) else contents)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            Path(name).chmod(target.stat().st_mode & 0o7777)
        else:
            Path(name).chmod(0o644)
        if is_new:
            os.link(name, target)
        else:
            Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
    sync_folder(target.parent)


def sync_file(path: Path, *, missing_ok: bool = False) -> None:
    """Put the contents of a file on the disk, whoever wrote it.

    Args:
        missing_ok: do nothing if there is no such file.

    Raises:
        OSError: it cannot be opened, or the disk failed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Sequence[Path], *, missing_ok: bool = False) -> None:
    """Put the contents of several files on the disk, some at a time.

    Args:
        missing_ok: leave out those that are not there.

    Raises:
        OSError: one of them cannot be opened, or the disk failed.
    """
    sync = partial(sync_file, missing_ok=missing_ok)
    if len(paths) < 2:
        for path in paths:
            sync(path)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(paths))) as pool:
        list(pool.map(sync, paths))


def sync_folder(folder: Path) -> None:
    """Put new names and removals in a folder on the disk, where folders can be opened.

    Raises:
        OSError: it cannot be done; the change itself was made.
    """
    if os.name != "posix":
        return
    sync_file(folder)
