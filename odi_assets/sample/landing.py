"""Lands days of the sample, holds days back, and resets the sample.

The pipeline reads ``data/landing`` itself. January is there in git; a file of it that is not there is in
``data/lake/.held``, and every step keeps it whole in at least one of the two, so that an interrupted command loses
nothing and :func:`reset` mends it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from odi_assets.errors import SourceError
from odi_assets.sample.landing_files import JANUARY, YEAR, Zone, move, remove, reveal, stage
from odi_assets.sample.nycflights import Published, is_installed
from odi_assets.sample.tables import Dropped, drop_tables
from odi_assets.util.words import counted


@dataclass(frozen=True)
class Arrival:
    """What landed.

    Attributes:
        days: the days that are complete now and were not before, in order.
        files: the files that landed, in the order in which they did.
        remaining: days of 2013 that have not landed yet.
    """

    days: tuple[dt.date, ...]
    files: tuple[Path, ...]
    remaining: int

    @property
    def summary(self) -> str:
        """What landed, for people."""
        end = "" if self.remaining else "; the published data ends with 2013-12-31, so there is nothing after it"
        if not self.days:
            return f"nothing landed{end}"
        return f"{_counted(self.days)} landed, {_span(self.days)} ({len(self.files)} files){end}"


@dataclass(frozen=True)
class Reset:
    """What :func:`reset` did.

    Attributes:
        landed: the days that are in the landing zone now.
        held: the days of January that are held back now.
        removed: the days after January that were removed.
        dropped: the tables and HWM keys that are gone.
    """

    landed: tuple[dt.date, ...]
    held: tuple[dt.date, ...]
    removed: tuple[dt.date, ...]
    dropped: Dropped

    @property
    def summary(self) -> str:
        """What is there now and what is gone, for people."""
        parts = [f"the landing zone holds {_counted(self.landed)}{_span(self.landed, ', ')}"]
        if self.held:
            parts.append(f"{_counted(self.held)} wait{'s' if len(self.held) == 1 else ''} for `odi sample arrive`")
        if self.removed:
            parts.append(f"{_counted(self.removed)} after January removed")
        if self.dropped.tables or self.dropped.keys:
            parts.append(
                f"{len(self.dropped.tables)} tables dropped, {len(self.dropped.keys)} high-water marks deleted"
            )
        return "; ".join(parts)


def hold(root: Path, keep_days: int) -> tuple[dt.date, ...]:
    """Move the days of January after the first ``keep_days`` out of the landing zone, and say which are held now.

    Raises:
        SourceError: ``keep_days`` is not 0 to 31, or there is no landing zone.
    """
    _check_keep(keep_days)
    zone = Zone(root.resolve())
    with zone.alone():
        return _hold(zone, keep_days)


def arrive(root: Path, days: int) -> Arrival:
    """Land the next ``days`` days of 2013: the held ones first, then days of the published package.

    The flights and the weather of a day land together; a file that has landed is never written again. Fewer days
    land when the year ends; :attr:`Arrival.summary` says so. If a file can be had from nowhere, nothing lands at all.

    Raises:
        SourceError: ``days`` is below 1, there is no landing zone, or the package is needed and not installed.
    """
    if days < 1:
        raise SourceError(f"{days} days cannot arrive", fix="ask for 1 day or more")
    zone = Zone(root.resolve())
    with zone.alone():
        zone.remove_parts()
        absent = [day for day in YEAR if not zone.has_landed(day)]
        coming = absent[:days]
        contents = _published(zone, coming)
        files = [path for day in coming for path in _land(zone, day, contents)]
        return Arrival(tuple(coming), tuple(files), remaining=len(absent) - len(coming))


def can_arrive(root: Path) -> bool:
    """Whether :func:`arrive` would land another day: one is held back, or the published package is installed."""
    zone = Zone(root.resolve())
    coming = next((day for day in YEAR if not zone.has_landed(day)), None)
    if coming is None:
        return False
    return is_installed() or all((zone.held / name).exists() for name in zone.missing(coming))


def reset(project_file: Path, *, days: int | None = None) -> Reset:
    """Put the sample back to its start, or to its first ``days`` days of January with the others held back.

    Drops the Delta tables of pipeline ``flights`` and deletes its HWMs; run history stays. Interrupted at any point, it
    may simply be run again.

    Raises:
        ConfigError: the project file is wrong, or is not the sample's.
        SourceError: ``days`` is not 0 to 31, there is no landing zone, or a day of January is nowhere to be found.
    """
    if days is not None:
        _check_keep(days)
    zone = Zone(project_file.resolve().parent)
    with zone.alone():
        dropped = drop_tables(project_file)
        zone.remove_parts()
        removed = _remove_later_days(zone)
        _restore(zone)
        held = _hold(zone, days) if days is not None else ()
    return Reset(tuple(day for day in JANUARY if day not in held), held, removed, dropped)


def _check_keep(days: int) -> None:
    if not 0 <= days <= len(JANUARY):
        raise SourceError(f"January cannot keep {days} days", fix=f"give a number from 0 to {len(JANUARY)}")


def _hold(zone: Zone, keep_days: int) -> tuple[dt.date, ...]:
    for day in JANUARY[keep_days:]:
        for name in zone.names(day):
            if (zone.landing / name).exists():
                move(zone.landing / name, zone.held / name)
    return tuple(day for day in JANUARY if any((zone.held / name).exists() for name in zone.missing(day)))


def _restore(zone: Zone) -> None:
    lost = []
    for name in (name for day in JANUARY for name in zone.names(day)):
        landed, held = zone.landing / name, zone.held / name
        if landed.exists():
            # Both are there when a move was interrupted before its last step; each is whole.
            if held.exists():
                remove(held)
        elif held.exists():
            move(held, landed)
        else:
            lost.append(name)
    if lost:
        raise SourceError(
            f"{len(lost)} of January's files are neither in {zone.landing} nor held back: {', '.join(lost[:3])} …",
            fix="`git checkout -- data/landing` brings them back",
            files=tuple(lost),
        )


def _remove_later_days(zone: Zone) -> tuple[dt.date, ...]:
    removed = []
    for day in YEAR[len(JANUARY) :]:
        landed = [zone.landing / name for name in zone.names(day) if (zone.landing / name).exists()]
        for path in landed:
            remove(path)
        if landed:
            removed.append(day)
    return tuple(removed)


def _published(zone: Zone, days: Sequence[dt.date]) -> dict[str, bytes]:
    """What the package has for the files of ``days`` that neither landed nor are held."""
    wanted = {name for day in days for name in zone.missing(day) if not (zone.held / name).exists()}
    if not wanted:
        return {}
    package = Published()
    flights, weather = package.flights(days), package.weather(days)
    contents = {f"flights/{day}.csv": content for day, content in flights.items()}
    contents |= {f"weather/{day}.jsonl": content for day, content in weather.items()}
    return {name: contents[name] for name in wanted}


def _land(zone: Zone, day: dt.date, contents: dict[str, bytes]) -> list[Path]:
    finals = {name: zone.landing / name for name in zone.missing(day)}
    # Everything slow comes before the first file is revealed, so that a day's files appear together.
    parts = {
        name: stage(contents[name] if name in contents else (zone.held / name).read_bytes(), final)
        for name, final in finals.items()
    }
    for name, part in parts.items():
        reveal(part, finals[name])
    # Of all the day's files: an earlier arrival may have stopped between a file's two places.
    for name in zone.names(day):
        if (zone.held / name).exists():
            remove(zone.held / name)
    return list(finals.values())


def _counted(days: Sequence[dt.date]) -> str:
    return counted(len(days), "day")


def _span(days: Sequence[dt.date], before: str = "") -> str:
    if not days:
        return ""
    return f"{before}{days[0]}" if len(days) == 1 else f"{before}{days[0]} to {days[-1]}"
