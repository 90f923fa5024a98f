"""What a stream reads of a Delta table, and who can read it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.cloudpickle import dumps

from odi_assets.config.models import StreamInput, WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.table import LiveFile
from odi_assets.errors import SourceError
from odi_assets.sources.delta.appended import AppendedFiles
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.source import Target

STEPS = ("append", "append", "back", "compact", "read", "read one")
ON_AN_EXECUTOR = """
import pickle, sys
sys.modules["odi_assets"] = None
reader, parts = pickle.load(sys.stdin.buffer)
print([value for part in parts for batch in reader.read(part) for value in batch.column("id").to_pylist()])
"""


def append(table: Path, *ids: int) -> None:
    write_deltalake(str(table), pa.table({"id": pa.array(ids, pa.int64())}), mode="append")


def ids_in(table: Path, files: list[LiveFile]) -> list[int]:
    return [value for file in files for value in pq.ParquetFile(table / file.path).read()["id"].to_pylist()]


def test_a_version_that_a_stream_passes_over_is_named_with_what_it_does_not_read(tmp_path: Path) -> None:
    append(tmp_path, 0, 1)
    files = AppendedFiles(Location(str(tmp_path)), "a table", skip=True)
    start, _ = files.after(files.newest())
    assert files.passed_over(start) == []
    append(tmp_path, 2)
    table = DeltaTable(tmp_path)
    table.delete("id = 0")
    merged = pa.table({"id": pa.array([1, 3], pa.int64())})
    merge = table.merge(merged, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update({"id": "s.id + 10"}).when_not_matched_insert_all().execute()
    append(tmp_path, 4)
    DeltaTable(tmp_path).optimize.compact()
    assert (files.passed_over(start), ids_in(tmp_path, files.after(start)[1])) == ([2, 3], [2, 4])


def test_rows_that_a_rewind_took_away_and_another_one_brought_back_are_read(tmp_path: Path) -> None:
    append(tmp_path, 0)
    files = AppendedFiles(Location(str(tmp_path)), "a table")
    start, found = files.after(files.newest())
    assert ids_in(tmp_path, found) == [0]
    append(tmp_path, 1)
    DeltaTable(tmp_path).restore(0)
    assert files.after(start)[1] == []
    DeltaTable(tmp_path).restore(1)
    append(tmp_path, 2)
    end, found = files.after(start)
    assert ids_in(tmp_path, found) == [1, 2]
    assert files.between(start, end) == found
    one, first = files.after(start, most=1)
    assert ids_in(tmp_path, first) == [1]
    assert ids_in(tmp_path, files.after(one)[1]) == [2]
    assert files.unread_versions(start) == {4}


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=12))
def test_a_stream_has_each_row_once_however_its_table_went_to_and_fro(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        append(path, 0)
        files, read = AppendedFiles(Location(folder), "a table"), list[int]()
        start = files.newest()
        for number, (step, drawn) in enumerate([*steps, ("read", 0)], 1):
            table = DeltaTable(path)
            if step == "append":
                append(path, number)
            elif step == "back":
                if table.version():
                    table.restore(drawn % table.version())
            elif step == "compact":
                table.optimize.compact()
            else:
                there = {*table.to_pyarrow_table()["id"].to_pylist()}
                try:
                    # A plan looks at all that is new, whatever a batch takes of it.
                    files.after(start)
                except SourceError:
                    # What was read is not in the table any more.
                    assert not there.issuperset(read)
                    return
                assert there.issuperset(read), "rows that were read went, and nobody says so"
                start, found = files.after(start, most=1 if step == "read one" else None)
                read += ids_in(path, found)
        assert sorted(read) == sorted(there)


def test_executors_read_the_rows_without_this_package(tmp_path: Path) -> None:
    append(tmp_path, 0)
    append(tmp_path, 1, 2)
    target = Target("main.rows", Location(str(tmp_path / "target")), WriteMode.APPEND.traits, ())
    source = DeltaTableSource(name="df", label="a table", target=target, location=Location(str(tmp_path)))
    reader = source.streamed(StreamInput()).data_source()({}).streamReader(pa.schema([]))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    parts = reader.partitions(reader.initialOffset(), end)
    done = subprocess.run(
        [sys.executable, "-c", ON_AN_EXECUTOR], input=dumps((reader, parts)), capture_output=True, check=False
    )
    assert (done.stdout.decode().strip(), done.stderr.decode()) == ("[0, 1, 2]", "")
