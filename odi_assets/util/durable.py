"""Changes of folders that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


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
