"""Data files that cannot be read: those of earlier versions keep nobody from an answer; those in use are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import SourceError
from odi_assets.explain.batch import trace
from odi_assets.explain.verdicts import KeyVerdict
from odi_assets_tests.nodes.support import Sandbox

PIPELINE = """\
- pipeline: p
  nodes:
  - name: newest
    read: {connection: landing, format: csv, path: "*.csv", schema: "id INT, v STRING", options: {header: "true"},
           incremental: files}
    write: {connection: lake, path: newest, mode: upsert, keys: [id]}
"""


def data_files(table: Path) -> tuple[set[Path], set[Path]]:
    """Those of the newest version, and those of earlier ones alone."""
    live = {table / file for file in DeltaTable(table).file_uris()}
    return live, {file for file in table.rglob("*.parquet") if "_delta_log" not in file.parts} - live


def test_a_damaged_file_of_an_earlier_version_hides_nothing_and_one_in_use_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    box = Sandbox(tmp_path, spark, PIPELINE)
    for value in ("a", "b"):
        box.land(f"{value}.csv", ["id,v", f"1,{value}", f"{ord(value)},x"])
        box.run("newest")
    live, former = data_files(tmp_path / "lake" / "newest")
    assert former
    for file in former:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    asked = NodeKey("p", "newest"), ["id"]
    (found,) = trace(box.project, spark, box.state, *asked, ["1"])
    assert found.verdict is KeyVerdict.PRESENT
    (damaged, *_) = live
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    named = rf"{damaged.name}, a data file of the table.*cannot be read(.|\n)*odi doctor --deep"
    with pytest.raises(SourceError, match=named):
        trace(box.project, spark, box.state, *asked, ["1"])
