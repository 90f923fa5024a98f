"""Which files of a staging folder belong to the write, whatever else executors leave in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odi_assets.connections.location import Location
from odi_assets.delta.files.footers import written_files


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), path)


def test_what_a_task_that_was_given_up_still_writes_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "odi_write=1"
    put(folder / "_day=2024-01-01" / "part-0.parquet")
    put(folder / "_temporary" / "0" / "_temporary" / "attempt_1" / "part-1.parquet")
    (folder / "_temporary" / "0" / "_temporary" / "attempt_1" / "part-2.parquet").write_bytes(b"PAR1 half")
    put(folder / ".hidden" / "part-3.parquet")
    for table in (Location(str(tmp_path)), Location(tmp_path.as_uri())):
        assert [file.path for file in written_files(table, "odi_write=1")] == [
            "odi_write=1/_day=2024-01-01/part-0.parquet"
        ]


def test_a_folder_that_cannot_be_listed_is_an_error_and_one_that_was_not_written_holds_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "odi_write=1" / "day=1" / "part-0.parquet")
    assert written_files(Location(str(tmp_path)), "odi_write=2") == []
    real: Callable[..., Any] = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("day=1"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        written_files(Location(str(tmp_path)), "odi_write=1")
