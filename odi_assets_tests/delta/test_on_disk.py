"""What a query wrote is put on the disk although Spark removes files of it at the same time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta import on_disk
from odi_assets.delta.on_disk import sync_commit, sync_folder_of, sync_written
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError


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


def test_of_a_commit_of_many_keys_only_what_adds_files_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str]
) -> None:
    actions: list[dict[str, Any]] = [{"txn": {"appId": f"key {number}", "version": 1}} for number in range(2000)]
    actions[1000:1000] = [{"add": {"path": "part%201.parquet"}}, {"txn": {"appId": "add", "version": 1}}]
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    (tmp_path / "part 1.parquet").touch()
    parsed: list[bytes] = []
    loads = json.loads

    def counted(line: bytes) -> Any:
        parsed.append(line)
        return loads(line)

    monkeypatch.setattr(on_disk.json, "loads", counted)
    assert not sync_written(Location(str(tmp_path)), 1), "there is no checkpoint"
    assert synced == ["part 1.parquet", tmp_path.name, f"{1:020d}.json", "_delta_log"]
    assert len(parsed) == 2


def test_a_checkpoint_that_another_writer_is_making_is_left_to_that_writer(tmp_path: Path, synced: list[str]) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for name in (f"{10:020d}.json", f"{10:020d}.checkpoint.parquet"):
        (log / name).touch()
    assert not sync_commit(Location(str(tmp_path)), 10), "what it covers may not be cleaned away yet"
    (log / "_last_checkpoint").touch()
    synced.clear()
    assert sync_commit(Location(str(tmp_path)), 10)
    assert {f"{10:020d}.checkpoint.parquet", "_last_checkpoint"} < {*synced}


def test_a_commit_that_another_writer_cleaned_away_is_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    assert not sync_commit(Location(str(tmp_path)), 10)


def test_a_log_that_another_writer_cleans_at_the_same_time_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    handle = TableHandle.open(Location(str(tmp_path)))
    # What deltalake says if a commit goes between its listing and its deletion.
    for text, fails in (("Object at location /t/_delta_log/0.json not found: os error 2", False), ("no space", True)):
        monkeypatch.setattr(DeltaTable, "cleanup_metadata", Mock(side_effect=OSError(text)))
        with pytest.raises(TableError, match="cleaning the log failed") if fails else nullcontext():
            handle.clean_log()
