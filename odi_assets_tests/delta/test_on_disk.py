"""What a query wrote is put on the disk although Spark removes files of it at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odi_assets.connections.location import Location
from odi_assets.delta import on_disk
from odi_assets.delta.on_disk import sync_folder_of


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is put on the disk, in order."""
    found: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_files_that_go_as_a_checkpoint_is_put_on_the_disk_do_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str]
) -> None:
    (tmp_path / "state").mkdir()
    for name in ("1.delta", "2.delta", "3.delta"):
        (tmp_path / "state" / name).write_bytes(b"changes")
    os.utime(tmp_path / "state" / "1.delta", (0, 0))
    walk = os.walk

    def cleaned(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, names in walk(root):
            (Path(folder) / "2.delta").unlink(missing_ok=True)
            yield folder, folders, names
        yield str(root / "left"), [], ["4.delta"]

    monkeypatch.setattr(on_disk.os, "walk", cleaned)
    sync_folder_of(Location(str(tmp_path)), since=1.0)
    assert synced == [tmp_path.name, "3.delta", "state"]
