"""Files of a landing folder: which are sources, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odi_assets.config.models import LocalConnection
from odi_assets.connections.location import Location, resolve
from odi_assets.errors import SourceError
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


def test_globs_look_no_deeper_than_they_say(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "2024/01/a.csv", "2024/02/b.csv", "2024/c.csv", "2024/01/deep/d.csv", "2025/01/e.json")
    assert names(base, "*/*/*.csv") == ["2024/01/a.csv", "2024/02/b.csv"]
    assert names(base, "202?/*.csv") == ["2024/c.csv"]
    assert names(base, "2024/0[12]/*") == ["2024/01/a.csv", "2024/02/b.csv"]
    assert names(base, "**") == names(base, "")


def test_links_are_what_they_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    touch(outside, "far.csv", "folder/near.csv")
    landing = Location(str(tmp_path / "landing"))
    touch(tmp_path / "landing", "own.csv")
    (tmp_path / "landing" / "link.csv").symlink_to(outside / "far.csv")
    (tmp_path / "landing" / "linked").symlink_to(outside / "folder")
    assert names(landing, "**/*.csv") == ["link.csv", "linked/near.csv", "own.csv"]
    assert names(landing, "linked") == ["linked/near.csv"]
    assert [file.mtime_ns for file in list_files(landing, "link.csv")] == [1_000]
    (outside / "folder" / "loop").symlink_to(tmp_path / "landing")
    assert names(landing, "**/*.csv") == ["link.csv", "linked/near.csv", "own.csv"]


def test_a_link_to_nothing_is_an_error_and_not_an_empty_folder(base: Location, tmp_path: Path) -> None:
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere")
    for pattern in ("*.csv", "gone.csv"):
        with pytest.raises(SourceError, match=r"gone\.csv"):
            names(base, pattern)


def test_what_cannot_be_looked_at_is_an_error_and_not_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be listed"):
        names(Location(str(tmp_path / "unmounted")), "*.csv")
    touch(tmp_path, "file")
    with pytest.raises(SourceError, match="cannot be listed"):
        names(Location(str(tmp_path / "file")), "a/*.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_without_the_right_to_look_is_an_error(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a/secret/1.csv")
    (tmp_path / "a" / "secret").chmod(0)
    try:
        with pytest.raises(SourceError, match="secret"):
            names(base, "a/**/*.csv")
    finally:
        (tmp_path / "a" / "secret").chmod(0o755)
