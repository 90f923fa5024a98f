"""Changes of files and folders that survive a power cut."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Put a text in the place of a file, whole, and on the disk. What a link leads to is replaced, not the link.

    Raises:
        OSError: the file cannot be written.
    """
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", errors="surrogatepass"))
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            Path(name).chmod(target.stat().st_mode & 0o7777)
        else:
            Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Put new names and removals in a folder on the disk, where folders can be opened.

    Raises:
        OSError: it cannot be done; the change itself was made.
    """
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
