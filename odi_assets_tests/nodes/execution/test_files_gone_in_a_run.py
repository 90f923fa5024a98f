"""Data files that a clean-up removes while a run is to read them: the run says so, and the next one is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError, TableError
from odi_assets_tests.nodes.support import Sandbox

DURING: list[Callable[[], object]] = []
THROUGH = f"""
def through(df):
    from {__name__} import DURING

    while DURING:
        DURING.pop()()
    return df
"""
NODE = """
- pipeline: p
  nodes:
  - name: copy
    read: {connection: lake, format: delta, path: source, incremental: INCREMENT}
    transform: {function: "gate_of_gone_files:through"}
    write: {connection: lake, path: copy, mode: append, keys: [id]}
"""
INCREMENTS = {"version": "version", "lag": "{mode: stateful, column: id, watermark_lag: 5}"}


def cleaned_up(table: Path) -> None:
    """Its files are put together, and those that were are removed."""
    found = DeltaTable(str(table))
    found.optimize.compact()
    found.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@pytest.mark.parametrize(
    ("increment", "place"), [("version", "source"), ("lag", "source"), ("lag", "copy")], ids=lambda text: str(text)
)
def test_a_run_whose_files_are_cleaned_up_says_so_and_the_next_one_is_right(
    tmp_path: Path, spark: SparkSession, increment: str, place: str
) -> None:
    DURING.clear()
    (tmp_path / "gate_of_gone_files.py").write_text(THROUGH, encoding="utf-8")
    box = Sandbox(tmp_path, spark, NODE.replace("INCREMENT", INCREMENTS[increment]))
    lake = tmp_path / "lake"
    for number in (1, 2):
        write_deltalake(str(lake / "source"), pa.table({"id": [number]}), mode="append")
        box.run("copy")
    for number in (3, 4):
        write_deltalake(str(lake / "source"), pa.table({"id": [number]}), mode="append")
    DURING.append(lambda: cleaned_up(lake / place))
    with pytest.raises(SourceError, match=rf"lake/{place}.*was removed while the run read it(.|\n)*run it again"):
        box.run("copy")
    box.run("copy")
    assert sorted(row[0] for row in box.rows("copy")) == [1, 2, 3, 4]


@pytest.mark.parametrize("increment", INCREMENTS)
def test_a_data_file_without_bytes_stops_the_run_and_its_rows_come_once_it_is_back(
    tmp_path: Path, spark: SparkSession, increment: str
) -> None:
    (tmp_path / "gate_of_gone_files.py").write_text(THROUGH, encoding="utf-8")
    box = Sandbox(tmp_path, spark, NODE.replace("INCREMENT", INCREMENTS[increment]))
    source = tmp_path / "lake" / "source"
    for number in (1, 2):
        write_deltalake(str(source), pa.table({"id": [number]}), mode="append")
    # The file of the first row was there before: Spark has no rows of the other one.
    newest = max(source.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    raw = newest.read_bytes()
    newest.write_bytes(b"")
    with pytest.raises(TableError, match=rf"{newest.name}.* has no bytes any more(.|\n)*odi doctor --deep"):
        box.run("copy")
    newest.write_bytes(raw)
    box.run("copy")
    assert sorted(row[0] for row in box.rows("copy")) == [1, 2]
