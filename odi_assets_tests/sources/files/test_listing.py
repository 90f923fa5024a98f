"""Files of a landing folder: which are sources, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odi_assets.config.models import LocalConnection
from odi_assets.connections.location import Location, resolve
from odi_assets.sources.files.listing import list_files


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


def test_hidden_files_and_folders_are_not_sources(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "_b.csv", ".c.csv", "_temporary/d.csv", ".tmp/e.csv", "_day=1/f.csv", "g.csv._COPYING_")
    assert names(base, "**/*") == ["_day=1/f.csv", "a.csv"]


def test_names_that_are_no_text_are_left_to_those_who_can_open_them(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    (tmp_path / "caf\udce9.csv").write_text("x")
    assert names(base, "*.csv") == ["a.csv"]
