"""A file that is moved to a folder like `k=2` has other rows, whatever the write mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import IncrementError, NothingThereError
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[..., Sandbox]

NODE = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: in/, options: {header: "true"}, schema: SCHEMA, incremental: FILES}
    write: {connection: lake, path: raw, mode: MODE}
"""
PARTITIONS = "partition_overwrite, partition_by: [k]"
UPSERT = "upsert, keys: [id]"


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def made(mode: str, schema: str = "id BIGINT, k INT", files: str = "files") -> Sandbox:
        text = NODE.replace("SCHEMA", f"'{schema}'").replace("FILES", files).replace("MODE", mode)
        return Sandbox(tmp_path, spark, text)

    return made


def land(box: Sandbox, name: str, *ids: int) -> None:
    box.land(f"in/{name}", ["id", *map(str, ids)])


def move(box: Sandbox, old: str, new: str) -> None:
    target = box.root / "landing/in" / new
    target.parent.mkdir(parents=True, exist_ok=True)
    (box.root / "landing/in" / old).rename(target)


@pytest.mark.parametrize("mode", [PARTITIONS, UPSERT, "overwrite"])
@pytest.mark.parametrize("old", ["k=1", "k=1/a.csv"], ids=["folder", "file"])
def test_rows_of_a_file_that_was_moved_have_the_value_of_its_new_folder(make: Make, mode: str, old: str) -> None:
    box = make(mode)
    land(box, "k=1/a.csv", 1)
    land(box, "k=3/c.csv", 3)
    box.run("raw")
    move(box, old, old.replace("1", "2"))
    said = "1 moved to folders of other values, loaded again (in/k=2/a.csv)" if mode == UPSERT else "whole: 2 files"
    assert said in box.plan("raw").summary
    box.run("raw")
    assert box.rows("raw") == [(1, 2), (3, 3)]
    assert box.run("raw").status is RunStatus.NO_DATA


def test_a_row_that_left_its_partition_stays_as_another_file_lands_there(make: Make) -> None:
    box = make(PARTITIONS)
    land(box, "k=1/a.csv", 1)
    land(box, "k=3/c.csv", 3)
    box.run("raw")
    move(box, "k=1/a.csv", "k=2/a.csv")
    land(box, "k=1/b.csv", 9)
    box.run("raw")
    assert box.rows("raw") == [(1, 2), (3, 3), (9, 1)]


def test_files_that_change_places_change_their_rows(make: Make) -> None:
    box = make(PARTITIONS)
    land(box, "k=1/a.csv", 1)
    land(box, "k=2/a.csv", 2)
    box.run("raw")
    for old, new in (("k=1/a.csv", "t"), ("k=2/a.csv", "k=1/a.csv"), ("t", "k=2/a.csv")):
        move(box, old, new)
    land(box, "k=1/b.csv", 9)
    box.run("raw")
    assert box.rows("raw") == [(1, 2), (2, 1), (9, 1)]


def test_an_append_stops_and_names_both_places_and_goes_on_once_the_file_is_back(make: Make) -> None:
    box = make("append")
    land(box, "k=1/a.csv", 1)
    box.run("raw")
    move(box, "k=1/a.csv", "k=2/a.csv")
    with pytest.raises(IncrementError, match=r"which are columns: in/k=1/a\.csv to in/k=2/a\.csv") as error:
        box.run("raw")
    assert "move it back" in str(error.value.fix)
    assert "`reload`" not in str(error.value.fix)
    losses = box.plan("raw", full_refresh=True).losses
    assert [(loss.what, loss.for_good) for loss in losses] == [
        ("rows of 1 file of landing:in/ that were rewritten since, as they were", False)
    ]
    move(box, "k=2/a.csv", "k=1/a.csv")
    assert box.run("raw").status is RunStatus.NO_DATA


@pytest.mark.parametrize("mode", [PARTITIONS, "upsert, keys: [k]", "append_once, keys: [id, k]"])
def test_a_schema_without_a_column_that_the_write_needs_is_no_advice(make: Make, mode: str) -> None:
    box = make(mode, files="{mode: files, on_change: raise}")
    land(box, "k=1/a.csv", 1)
    box.run("raw")
    move(box, "k=1/a.csv", "k=2/a.csv")
    with pytest.raises(IncrementError, match="which are columns") as error:
        box.run("raw")
    assert "read.schema" not in str(error.value.fix)
    assert "move it back; or set `incremental.on_change` to `reload`" in str(error.value.fix)


@pytest.mark.parametrize("mode", ["append", PARTITIONS, UPSERT])
def test_a_move_that_changes_no_row_is_nothing_new(make: Make, mode: str) -> None:
    box = make(mode)
    land(box, "state=new/k=1/a.csv", 1)
    box.run("raw")
    # The rows have no column `state`.
    move(box, "state=new", "state=done")
    move(box, "state=done/k=1/a.csv", "more/k=1/b.csv")
    assert box.run("raw").status is RunStatus.NO_DATA
    land(box, "k=1/c.csv", 2)
    box.run("raw")
    assert box.rows("raw") == [(1, 1), (2, 1)]


def test_values_of_folders_without_a_schema_count_too(make: Make) -> None:
    box = make(UPSERT)
    text = (box.root / "odibi.yaml").read_text().replace(", schema: 'id BIGINT, k INT'", "")
    (box.root / "odibi.yaml").write_text(text)
    box = Sandbox(box.root, box.spark, text.split("pipelines:\n")[1])
    land(box, "k=1/a.csv", 1)
    box.run("raw")
    move(box, "k=1", "k=2")
    box.run("raw")
    assert box.rows("raw") == [("1", "2")]


def test_an_append_that_loads_rewritten_files_again_says_that_their_former_rows_stay(make: Make) -> None:
    box = make("append", files="{mode: files, on_change: reload}")
    land(box, "k=1/a.csv", 1)
    box.run("raw")
    land(box, "k=1/a.csv", 1, 2)
    assert "1 rewritten, loaded again beside former rows (in/k=1/a.csv)" in box.plan("raw").summary
    box.run("raw")
    assert box.rows("raw") == [(1, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("mode", ["append", UPSERT, "overwrite", PARTITIONS])
def test_a_landing_zone_whose_files_were_put_away_has_nothing_new_for_a_cursor(make: Make, mode: str) -> None:
    box = make(mode, files="{mode: stateful, column: id}")
    land(box, "k=1/a.csv", 1)
    box.run("raw")
    (box.root / "landing/in/k=1/a.csv").unlink()
    assert box.run("raw").status is RunStatus.NO_DATA
    land(box, "k=1/b.csv", 2)
    box.run("raw")
    assert (2, 1) in box.rows("raw")


def test_a_cursor_that_read_nothing_yet_stops_where_there_is_no_file(make: Make, tmp_path: Path) -> None:
    (tmp_path / "landing/in").mkdir(parents=True)
    with pytest.raises(NothingThereError, match=r"no file matches in/"):
        make("append", files="{mode: stateful, column: id}").run("raw")
