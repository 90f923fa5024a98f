"""A disk that loses its power: what was fsynced stays, what was not may be gone, empty, or under its old name.

The record is taken where the process fsyncs: the contents of a file and the names in a folder at that moment are what
POSIX promises to keep. Two extremes are built of each moment: nothing else reached the disk, or all names did and no
contents.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Disk:
    """What of a folder is on the disk for sure.

    Attributes:
        contents: by inode, the bytes of a file when it was last fsynced.
        names: by folder, its entries when it was last fsynced, with their inodes.
        fsyncs: how many there were.
        seconds: what they took.
    """

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)
    fsyncs: int = 0
    seconds: float = 0.0
    _held: dict[int, int] = field(default_factory=dict)

    def take(self, path: Path) -> None:
        """Note that what is at ``path`` was fsynced."""
        if path.is_dir():
            for entry in os.scandir(path):
                if entry.is_file():
                    self._hold(Path(entry.path))
            self.names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        elif path.exists():
            self._hold(path)
            self.contents[path.stat().st_ino] = path.read_bytes()

    def _hold(self, path: Path) -> None:
        """Keep a file open, so that no other file gets its inode while its name may still be on the disk."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        inode = os.fstat(descriptor).st_ino
        if self._held.setdefault(inode, descriptor) != descriptor:
            os.close(descriptor)

    def release(self) -> None:
        """Close what is held open, and forget what is on the disk."""
        for descriptor in self._held.values():
            os.close(descriptor)
        for known in (self._held, self.contents, self.names):
            known.clear()

    def take_all(self, below: Path | None = None) -> None:
        """Note that all that is there now, or ``below`` a folder, is on the disk."""
        for folder, _, names in os.walk(below or self.root):
            self.take(Path(folder))
            for name in names:
                self.take(Path(folder, name))

    def cut(self, *, names_survive: bool) -> None:
        """Make the folder what it is after a power cut.

        Args:
            names_survive: names that were not fsynced are there, too; contents that were not are empty all the same.
        """
        kept: dict[Path, bytes | None] = {}
        self._collect(self.root, kept, names_survive=names_survive)
        for entry in list(self.root.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for path, content in kept.items():
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        # What is left is on the disk, in files of other inodes.
        self.release()
        self.take_all()

    def _collect(self, folder: Path, kept: dict[Path, bytes | None], *, names_survive: bool) -> None:
        kept[folder] = None
        entries = dict(self.names.get(folder, {}))
        if names_survive and folder.is_dir():
            entries |= {entry.name: entry.inode() for entry in os.scandir(folder)}
        for name, inode in entries.items():
            place = folder / name
            if place.is_dir() or place in self.names:
                self._collect(place, kept, names_survive=names_survive)
            else:
                kept[place] = self.contents.get(inode, b"")


@contextmanager
def recorded(root: Path, *, from_now: bool = True) -> Iterator[Disk]:
    """Record what the process fsyncs below ``root``. Folders without a record are taken to be there.

    Args:
        from_now: what is there already is on the disk.
    """
    disk = Disk(root)
    if from_now:
        disk.take_all()
    else:
        disk.take(root)
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        began = time.perf_counter()
        fsync(descriptor)
        took = time.perf_counter() - began
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(root):
            disk.fsyncs += 1
            disk.seconds += took
            disk.take(path)

    os.fsync = watched  # type: ignore[assignment]
    try:
        yield disk
    finally:
        os.fsync = fsync
        disk.release()
