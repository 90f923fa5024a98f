"""A full refresh that would lose rows says which, and waits to be told that they may go."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import LossError
from odi_assets.nodes.planning.forecast import forecast
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

RAW = """
- pipeline: p
  nodes:
    - name: raw
      read: {connection: landing, format: csv, path: "*.csv", schema: "id INT, v INT", incremental: INCREMENT}
      write: {connection: lake, path: raw, mode: MODE}
"""
FILES = "{mode: files, on_change: ignore}"
UPSERT = "upsert, keys: [id]"
APPEND_ONCE = "append_once, keys: [id]"

Make = Callable[..., Sandbox]


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    """A project whose node has loaded the files a, b and c of one row each."""

    def made(mode: str = "append", increment: str = FILES) -> Sandbox:
        box = Sandbox(tmp_path, spark, RAW.replace("INCREMENT", increment).replace("MODE", mode))
        for number, name in enumerate("abc"):
            box.land(f"{name}.csv", [f"{number},1"])
        box.run("raw")
        return box

    return made


def losses(box: Sandbox, node: str = "raw") -> str:
    """What the plan of a full refresh, which needs no consent, says that it loses."""
    return "; ".join(map(str, box.plan(node, full_refresh=True).losses))


def told(box: Sandbox, node: str = "raw") -> str:
    """What the refused full refresh of a node says; nothing is written by it, and its plan tells the same."""
    before = box.table(node).version
    with pytest.raises(LossError) as refused:
        box.plan(node, full_refresh=True)
    assert box.table(node).version == before
    planned = box.plan(node, full_refresh=True, accept_loss=True)
    assert planned.losses == refused.value.losses
    assert [loss["what"] for loss in planned.to_json()["losses"]] == [loss.what for loss in planned.losses]
    assert f"odi run p --node {node} --full-refresh --yes" in str(refused.value)
    assert "odi/accept_loss: true" in str(refused.value)
    return refused.value.message


@pytest.mark.parametrize("mode", ["append", UPSERT, APPEND_ONCE])
def test_files_that_are_gone_are_named_and_their_rows_go_only_if_they_may(make: Make, mode: str) -> None:
    box = make(mode)
    (box.root / "landing/b.csv").unlink()
    (box.root / "landing/c.csv").unlink()
    assert "rows of 2 files of landing:*.csv gone since: b.csv, c.csv" in told(box)
    assert box.run("raw").status is RunStatus.NO_DATA
    assert len(box.rows("raw")) == 3
    box.run("raw", full_refresh=True, accept_loss=True)
    assert box.rows("raw") == [(0, 1)]
    box.run("raw", full_refresh=True)


def test_a_refresh_that_loses_nothing_asks_for_nothing(make: Make) -> None:
    box = make()
    (box.root / "landing/b.csv").rename(box.root / "landing/moved.csv")
    os.utime(box.root / "landing/a.csv")
    box.land("d.csv", ["3,1"])
    plan = box.plan("raw", full_refresh=True)
    assert plan.losses == ()
    box.finish(plan)
    assert len(box.rows("raw")) == 4


def test_files_that_were_rewritten_or_emptied_are_named(make: Make) -> None:
    box = make()
    box.land("a.csv", ["0,2"])
    rewritten = "rows of 1 file of landing:*.csv that were rewritten since, as they were: a.csv"
    assert losses(box) == rewritten
    (box.root / "landing/b.csv").write_text("")
    message = told(box)
    assert rewritten in message
    assert "rows of 1 file of landing:*.csv gone since: b.csv" in message


def test_many_files_are_counted_and_some_of_them_named(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, RAW.replace("INCREMENT", FILES).replace("MODE", "append"))
    for number in range(15):
        box.land(f"{number:02}.csv", [f"{number},1"])
    box.run("raw")
    for number in range(12):
        (box.root / f"landing/{number:02}.csv").unlink()
    message = told(box)
    assert "rows of 12 files" in message
    assert "00.csv, 01.csv" in message
    assert "09.csv and 2 more" in message
    assert len(box.plan("raw", full_refresh=True, accept_loss=True).losses[0].names) == 12


def test_a_node_that_is_made_of_all_its_files_each_time_loses_nothing_more(make: Make) -> None:
    box = make("overwrite", "files")
    (box.root / "landing/b.csv").unlink()
    assert box.plan("raw", full_refresh=True).losses == ()


def test_files_read_by_a_cursor_column_are_counted(make: Make) -> None:
    box = make(increment="{mode: stateful, column: id}")
    (box.root / "landing/b.csv").unlink()
    assert "rows of 1 file of landing:*.csv gone since: there were 3, and now 2" in told(box)


def test_a_run_that_starts_over_since_its_hwm_was_deleted_asks_too(make: Make) -> None:
    box = make()
    (box.root / "landing/b.csv").unlink()
    box.state.delete_hwm("p.raw")
    with pytest.raises(LossError, match=r"gone since: b\.csv") as refused:
        box.run("raw")
    # A plan says that the run stops, and names the way back.
    (planned,) = forecast(box.project, box.state, [NodeKey("p", "raw")])
    assert (planned.action, str(planned.error)) == ("error", str(refused.value))
    assert "odi state reset p.raw --to-revision 1" in str(refused.value)
    assert len(box.rows("raw")) == 3
    box.run("raw", accept_loss=True)
    assert len(box.rows("raw")) == 2


def test_a_ledger_that_cannot_be_read_does_not_bar_the_way(make: Make) -> None:
    box = make()
    for part in box.table("raw").location.local_path.glob("_odi_files/*"):
        part.write_bytes(b"damaged")
    assert "rows of files of landing:*.csv that are gone, if any" in losses(box)
    box.run("raw", full_refresh=True)
    assert len(box.rows("raw")) == 3


def test_what_others_wrote_into_the_table_is_named(make: Make) -> None:
    box = make()
    uri = box.table("raw").location.uri
    write_deltalake(
        uri, pa.table({"id": pa.array([7, 8], pa.int32()), "v": pa.array([1, 1], pa.int32())}), mode="append"
    )
    DeltaTable(uri).delete("id = 0")
    DeltaTable(uri).optimize.compact()
    assert losses(box) == "what others wrote there, in 1 version: 1 (WRITE, 2 rows)"
    box.run("raw", full_refresh=True)
    assert box.plan("raw", full_refresh=True).losses == ()


CHAIN = """
- pipeline: p
  nodes:
    - name: raw
      read: {connection: landing, format: csv, path: "*.csv", schema: "id INT, v INT", incremental: files}
      write: {connection: lake, path: raw, mode: upsert, keys: [id]}
    - name: history
      inputs: {raw: {node: raw, incremental: version}}
      write: {connection: lake, path: history, mode: append}
    - name: copy
      inputs: {raw: {node: raw, incremental: version}}
      write: {connection: lake, path: copy, mode: upsert, keys: [id]}
"""


def test_rows_of_an_input_that_were_replaced_since_they_were_appended_are_counted(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, CHAIN)
    # What is replaced before the first load, or not loaded yet, is no loss.
    for name, rows in (("a", ["1,1", "2,1"]), ("b", ["1,2"])):
        box.land(f"{name}.csv", rows)
        box.run("raw")
    box.run("history")
    box.run("copy")
    assert box.plan("history", full_refresh=True).losses == ()
    for name, rows in (("c", ["1,3", "2,3"]), ("d", ["1,4"])):
        box.land(f"{name}.csv", rows)
        box.run("raw")
        if name == "c":
            box.run("history")
            box.run("copy")
    assert "2 rows of p.raw as they were before they changed" in told(box, "history")
    assert box.plan("copy", full_refresh=True).losses == ()
    box.run("history", full_refresh=True, accept_loss=True)
    assert box.plan("history", full_refresh=True).losses == ()
