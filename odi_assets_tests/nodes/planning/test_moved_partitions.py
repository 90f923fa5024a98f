"""Rows of files that move between folders, below a cursor, where partitions are made again: none is lost or doubled."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError
from odi_assets.nodes.node import app_id
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.files.loaded import late
from odi_assets.sources.files.snapshot import FilesSnapshot
from odi_assets.sources.marks import CursorMark, Identity
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[..., Sandbox]
NODE = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: FORMAT, path: in/, OPTIONS incremental: {mode: stateful, column: v MORE}}
    write: {connection: lake, path: raw, mode: partition_overwrite, partition_by: [k]}
"""
FORMATS = ["csv", "json", "parquet"]


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def made(kind: str = "csv", k: str = "STRING", more: str = "") -> Sandbox:
        options = 'options: {header: "true"}, ' if kind == "csv" else ""
        schema = f"schema: 'v BIGINT, k {k}'," if k else ""
        text = NODE.replace("FORMAT", kind).replace("OPTIONS", options + schema).replace("MORE", more)
        return Sandbox(tmp_path, spark, text)

    return made


def land(box: Sandbox, path: str, *values: int) -> None:
    lines = ["v", *map(str, values)]
    file = box.land(f"in/{path}", [f'{{"v": {value}}}' for value in values] if path.endswith("json") else lines)
    if path.endswith("parquet"):
        times = file.stat().st_mtime_ns
        pq.write_table(pa.table({"v": values}), file)
        os.utime(file, ns=(times, times))


def move(box: Sandbox, old: str, new: str) -> None:
    target = box.root / "landing/in" / new
    target.parent.mkdir(parents=True, exist_ok=True)
    (box.root / "landing/in" / old).rename(target)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_whose_file_moved_is_in_its_new_partition_once_its_former_one_is_made_again(
    make: Make, kind: str
) -> None:
    box = make(kind)
    land(box, f"k=1/a.{kind}", 1)
    land(box, f"k=3/c.{kind}", 2)
    box.run("raw")
    move(box, f"k=1/a.{kind}", f"k=2/a.{kind}")
    land(box, f"k=1/b.{kind}", 3)
    result = box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "3"), (3, "1")]
    assert "files moved between 2 of its partitions" in result.increment
    assert "rows_below_hwm" not in result.metrics


@pytest.mark.parametrize("kind", FORMATS)
def test_a_move_alone_makes_both_partitions_again_and_then_has_nothing_new(make: Make, kind: str) -> None:
    box = make(kind)
    land(box, f"k=1/a.{kind}", 1)
    land(box, f"k=1/b.{kind}", 2)
    land(box, f"k=3/c.{kind}", 3)
    box.run("raw")
    before = {file.path for file in box.table("raw").live_files if file.partition["k"] == "3"}
    move(box, f"k=1/a.{kind}", f"k=2/other.{kind}")
    assert box.run("raw").status is RunStatus.SUCCESS
    assert box.rows("raw") == [(1, "2"), (2, "1"), (3, "3")]
    assert before <= {file.path for file in box.table("raw").live_files}
    assert (box.run("raw").status, box.hwm("raw")) == (RunStatus.NO_DATA, 3)


def test_a_whole_folder_that_gets_another_value_leaves_nothing_behind(make: Make) -> None:
    box = make(k="INT")
    land(box, "k=01/a.csv", 1)
    land(box, "k=01/b.csv", 2)
    land(box, "k=3/c.csv", 3)
    box.run("raw")
    move(box, "k=01", "k=7")
    box.run("raw")
    assert box.rows("raw") == [(1, 7), (2, 7), (3, 3)]


def test_files_that_exchange_their_folders_exchange_their_rows(make: Make) -> None:
    box = make()
    land(box, "k=1/a.csv", 1)
    land(box, "k=2/a.csv", 2)
    box.run("raw")
    for old, new in (("k=1/a.csv", "t"), ("k=2/a.csv", "k=1/a.csv"), ("t", "k=2/a.csv")):
        move(box, old, new)
    box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "1")]


def test_a_file_that_goes_into_a_folder_of_null_or_comes_out_of_it_is_followed(make: Make) -> None:
    box = make("json")
    land(box, "a.json", 1)
    land(box, "k=__HIVE_DEFAULT_PARTITION__/b.json", 2)
    box.run("raw")
    assert box.rows("raw") == [(1, None), (2, None)]
    move(box, "a.json", "k=5/a.json")
    box.run("raw")
    move(box, "k=5/a.json", "more/a.json")
    move(box, "k=__HIVE_DEFAULT_PARTITION__/b.json", "k=6/b.json")
    box.run("raw")
    assert box.rows("raw") == [(1, None), (2, "6")]


def test_a_file_that_was_away_for_a_run_is_known_where_it_comes_back(make: Make) -> None:
    box = make()
    land(box, "k=1/a.csv", 1)
    land(box, "k=1/b.csv", 2)
    box.run("raw")
    move(box, "k=1/a.csv", "_hidden.csv")
    land(box, "k=3/c.csv", 3)
    box.run("raw")
    assert box.rows("raw") == [(1, "1"), (2, "1"), (3, "3")]
    move(box, "_hidden.csv", "k=2/a.csv")
    box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "1"), (3, "3")]


def test_files_that_are_put_away_or_copied_make_no_partition_again(make: Make) -> None:
    box = make()
    land(box, "k=1/a.csv", 1)
    land(box, "k=2/b.csv", 2)
    box.run("raw")
    move(box, "k=1/a.csv", "../away.csv")
    land(box, "k=2/copy.csv", 2)
    assert box.run("raw").status is RunStatus.NO_DATA
    land(box, "k=3/c.csv", 3)
    result = box.run("raw")
    assert box.rows("raw") == [(1, "1"), (2, "2"), (3, "3")]
    assert result.metrics["rows_below_hwm"] == 1


def test_without_a_schema_the_folders_of_parquet_files_are_followed_by_statistics(make: Make) -> None:
    box = make("parquet", k="")
    land(box, "k=1/a.parquet", 1)
    land(box, "k=3/c.parquet", 2)
    box.run("raw")
    move(box, "k=1/a.parquet", "k=2/a.parquet")
    assert "files moved between 2 of its partitions" in box.plan("raw").summary
    box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "3")]


@pytest.mark.parametrize("more", [", watermark_lag: 100", ", boundary: closed", ", on_null: include"])
def test_rows_that_are_read_again_leave_their_former_partition_too(make: Make, more: str) -> None:
    box = make(more=more)
    land(box, "k=1/a.csv", 1)
    land(box, "k=3/c.csv", 2)
    box.run("raw")
    move(box, "k=1/a.csv", "k=2/a.csv")
    box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "3")]


def test_of_many_files_a_mark_knows_the_folders(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_MOST", 1)
    box = make()
    land(box, "k=1/a.csv", 1)
    land(box, "k=1/b.csv", 2)
    box.run("raw")
    move(box, "k=1/a.csv", "k=2/a.csv")
    land(box, "k=1/c.csv", 3)
    box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "1"), (3, "1")]


def test_more_files_than_a_mark_knows_are_refused_before_anything_is_written(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "MOST_IN_FOLDERS", 1)
    box = make()
    land(box, "k=1/a.csv", 1)
    land(box, "k=1/b.csv", 2)
    with pytest.raises(IncrementError, match="a row that moves to another folder would be lost") as error:
        box.run("raw")
    assert "`incremental: files`" in str(error.value.fix)
    assert not box.table("raw").exists


def test_a_mark_that_knows_no_folders_goes_on_and_knows_them_after_its_next_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make()
    land(box, "k=1/a.csv", 1)
    with monkeypatch.context() as patch:
        patch.setattr("odi_assets.sources.files.snapshot.known_files", _as_before)
        box.run("raw")
    assert "|" not in _remembered(box.table("raw"))
    land(box, "k=3/c.csv", 2)
    box.run("raw")
    assert "|" in _remembered(box.table("raw"))
    move(box, "k=1/a.csv", "k=2/a.csv")
    box.run("raw")
    assert box.rows("raw") == [(1, "2"), (2, "3")]


def test_in_an_object_store_a_move_is_a_copy_with_the_same_etag(tmp_path: Path) -> None:
    def files(path: str, time: int, etag: str) -> FilesSnapshot:
        file = SourceFile(time, path, 5, etag)
        identity = Identity("files", "in/", "v")
        place = Location(str(tmp_path))
        return FilesSnapshot(
            name="df",
            label="in/",
            format="csv",
            identity=identity,
            base=place,
            listed=(file,),
            chosen=(file,),
            schema_ddl=None,
            options={},
            rescued=None,
            strict=True,
            one_shape=False,
            parted_by="k",
        )

    mark = CursorMark(1, held_then=files("in/k=1/a.csv", 10, "x").noted(None))
    window = Window("v", lower=1)
    assert files("in/k=2/a.csv", 20, "x").late(mark, window, None).moved == {"1", "2"}
    assert files("in/k=2/a.csv", 20, "y").late(mark, window, None).moved == set()


def _as_before(files: Any, before: str | None) -> str | None:
    return late.known_files(replace(files, parted_by=""), before)


def _remembered(table: TableHandle) -> str:
    stamp = table.last_stamp(app_id(NodeKey("p", "raw")))
    assert stamp is not None
    return str(stamp.facts["hwm"])
