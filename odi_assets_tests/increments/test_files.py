"""Files of a landing folder: which are sources, in which order, and which are new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odi_assets.config.models import LocalConnection
from odi_assets.connections.location import Location, resolve
from odi_assets.errors import IncrementError
from odi_assets.increments.files import hwm_of, list_files, newer_than


@pytest.fixture
def base(tmp_path: Path) -> Location:
    return resolve(LocalConnection(base_path="."), "", tmp_path)


def touch(folder: Path, *names: str, at: int = 1_000) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, ns=(at, at))


def names(base: Location, pattern: str) -> list[str]:
    return [file.path for file in list_files(base, pattern)]


def test_a_glob_a_folder_and_a_single_file_name_files(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a/1.csv", "a/2.csv", "a/3.txt", "a/b/4.csv")
    assert names(base, "a/*.csv") == ["a/1.csv", "a/2.csv"]
    assert names(base, "a/**/*.csv") == ["a/1.csv", "a/2.csv", "a/b/4.csv"]
    assert names(base, "a") == ["a/1.csv", "a/2.csv", "a/3.txt", "a/b/4.csv"]
    assert names(base, "a/1.csv") == ["a/1.csv"]
    assert names(base, "nowhere/*.csv") == []


def test_files_come_in_the_order_of_their_change_and_then_of_their_path(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "z.csv", at=1_000_000_001)
    touch(tmp_path, "b.csv", "a.csv", at=1_000_000_002)
    assert names(base, "*.csv") == ["z.csv", "a.csv", "b.csv"]


def test_nanoseconds_count(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", at=1_700_000_000_000_000_001)
    touch(tmp_path, "a.csv", at=1_700_000_000_000_000_002)
    mark = hwm_of(list_files(base, "b.csv"))
    assert [file.path for file in newer_than(list_files(base, "*.csv"), mark, "x")] == ["a.csv"]


def test_hidden_files_and_folders_are_not_sources(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "_b.csv", ".c.csv", "_temporary/d.csv", ".tmp/e.csv")
    assert names(base, "**/*.csv") == ["a.csv"]


def test_of_files_with_one_time_those_with_a_later_path_are_new(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "b.csv", "c.csv")
    files = list_files(base, "*.csv")
    assert [file.path for file in newer_than(files, hwm_of(files[:2]), "x")] == ["c.csv"]


def test_an_hwm_that_is_not_one_of_files_is_an_error(base: Location) -> None:
    with pytest.raises(IncrementError, match=r"the HWM of landing:x is 7, and that of files needs `mtime_ns`"):
        newer_than(list_files(base, "*.csv"), 7, "landing:x")
