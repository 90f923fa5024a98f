"""Which files of a staging folder belong to the write, whatever else executors leave in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from odi_assets.connections.location import Location
from odi_assets.delta.footers import written_files


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
