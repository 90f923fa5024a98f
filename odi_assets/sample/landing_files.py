"""The landing zone's files: the files of each day, and how they appear, move and go without ever being incomplete."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from odi_assets.errors import SourceError
from odi_assets.util.durable import sync_folder

JANUARY = tuple(dt.date(2013, 1, day) for day in range(1, 32))
"""The days that are in git."""

YEAR = tuple(dt.date(2013, 1, 1) + dt.timedelta(days=n) for n in range(365))
"""Every day of the published data."""

LAST_WEATHER = dt.date(2013, 12, 30)
"""The published weather ends a day before the flights do."""

_PART = ".part"
_LOCK_SECONDS = 30


@dataclass(frozen=True)
class Zone:
    """The two folders of the sample below a project's ``root``: landed files, and files that are held back.

    Held files are below ``data/lake``, which git ignores, so none is committed by mistake.
    """

    root: Path

    @property
    def landing(self) -> Path:
        return self.root / "data" / "landing"

    @property
    def held(self) -> Path:
        return self.root / "data" / "lake" / ".held"

    def names(self, day: dt.date) -> tuple[str, ...]:
        """The files of ``day``, relative to either folder."""
        flights, weather = f"flights/{day}.csv", f"weather/{day}.jsonl"
        return (flights, weather) if day <= LAST_WEATHER else (flights,)

    def missing(self, day: dt.date) -> tuple[str, ...]:
        """The files of ``day`` that have not landed."""
        return tuple(name for name in self.names(day) if not (self.landing / name).exists())

    def has_landed(self, day: dt.date) -> bool:
        """Whether every file of ``day`` has landed."""
        return not self.missing(day)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock out other sample commands within.

        Raises:
            SourceError: this project has no landing zone, or another sample command is at work for half a minute.
        """
        if not self.landing.is_dir():
            raise SourceError(
                f"there is no landing zone at {self.landing}",
                fix="run this in a clone of the project; `git checkout -- data/landing` brings back what was deleted",
                path=str(self.landing),
            )
        self.held.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.held / ".lock", timeout=_LOCK_SECONDS):
                yield
        except Timeout as error:
            raise SourceError(
                f"another `odi sample` command is at work in {self.root}",
                fix="let it end, then try again",
                path=str(self.root),
            ) from error

    def remove_parts(self) -> None:
        """Remove files of interrupted writes."""
        for folder in (self.landing, self.held):
            for part in folder.glob(f"*/.*{_PART}"):
                part.unlink()


def stage(content: bytes, final: Path) -> Path:
    """Write ``content`` beside ``final`` under a name that no reader takes for a finished file, and make it durable."""
    final.parent.mkdir(parents=True, exist_ok=True)
    part = final.with_name(f".{final.name}{_PART}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return part


def reveal(part: Path, final: Path) -> None:
    """Give a staged file its final name, with the present as its modification time.

    The time is set last because new files are found by it: one staged before a run and revealed after it would
    otherwise lie behind the run's high-water mark and never be read.
    """
    os.utime(part)
    part.rename(final)
    sync_folder(final.parent)


def move(source: Path, final: Path) -> None:
    """Move a file so that at every moment it is whole in at least one of the two places."""
    reveal(stage(source.read_bytes(), final), final)
    remove(source)


def remove(path: Path) -> None:
    """Remove a file, durably."""
    path.unlink()
    sync_folder(path.parent)
