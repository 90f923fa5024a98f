"""Tables with many commits: what a checkpoint took over, and what is known once the log was cleaned."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.maintenance.maintain import MEGABYTE, MaintenanceOptions
from odi_assets.errors import ConfigError, TableError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import app_id
from odi_assets.nodes.recovery import table_versions as points
from odi_assets.nodes.recovery.maintenance import maintain_node
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.sources.files.loaded import ledger
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT", options: {header: "true"},
       incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
  - name: copy
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    write: {connection: lake, path: copy, mode: append}
  - name: tied
    inputs: {raw: {node: raw, incremental: {mode: stateful, column: id, boundary: closed}}}
    write: {connection: lake, path: tied, mode: append}
"""
ALL = ("raw", "copy", "tied")
RAW = NodeKey("p", "raw")
MANY = 110


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """Two increments of each node, and then more commits without rows than Delta leaves without a checkpoint."""
    box = Sandbox(tmp_path, spark, NODES)
    for number in (1, 2):
        load(box, number)
    for node in ALL:
        table = box.table(node).table
        for number in range(MANY):
            table.alter.set_table_properties({"odi.test": str(number)}, raise_if_not_exists=False)
        table.create_checkpoint()
    return box


def load(box: Sandbox, number: int) -> None:
    box.land(f"orders/{number}.csv", ["id", str(number)])
    for node in ALL:
        box.run(node)


def clean(box: Sandbox, node: str) -> None:
    """Take away the log up to the checkpoint, as Delta does with what is older than its retention."""
    table = box.table(node).table
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not (Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{0:020d}.json").exists()


def ids(box: Sandbox, node: str) -> list[int]:
    return [row[0] for row in box.rows(node)]


def test_many_commits_and_compaction_change_nothing_for_plans_and_rewinds(box: Sandbox) -> None:
    assert {box.run(node).status for node in ALL} == {RunStatus.NO_DATA}
    upstream = box.table("raw").version
    assert box.hwm("copy")["raw"]["version"] == upstream
    assert "nothing after version" in box.plan("copy").summary
    for node in ALL:
        options = MaintenanceOptions(small_bytes=MEGABYTE, target_bytes=MEGABYTE)
        done = maintain_node(box.project, box.state, NodeKey("p", node), options)
        assert done is not None
        assert (done.compaction.files_removed, done.rewindable_from) == (2, 0)
    assert {box.run(node).status for node in ALL} == {RunStatus.NO_DATA}
    load(box, 3)
    assert [ids(box, node) for node in ALL] == [[1, 2, 3]] * 3
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(0), cascade=True))
    assert ids(box, "raw") == [1]
    for node in ALL:
        box.run(node)
    assert [ids(box, node) for node in ALL] == [[1, 2, 3]] * 3


def test_once_the_log_is_cleaned_nothing_is_repeated_or_lost_and_what_it_no_longer_tells_is_an_error(
    box: Sandbox,
) -> None:
    clean(box, "raw")
    assert box.plan("raw").nothing_new
    box.land("orders/3.csv", ["id", "3"])
    box.run("raw")
    assert ids(box, "raw") == [1, 2, 3]
    with pytest.raises(TableError, match=r"no longer in its log[\s\S]*--full-refresh"):
        box.run("copy")
    box.run("copy", full_refresh=True)
    assert ids(box, "copy") == [1, 2, 3]
    with pytest.raises(ConfigError, match="version 1 is not known any more: the table's log was cleaned and begins"):
        plan_rewind(box.project, box.state, RAW, points.at_version(1))
    kept = int(box.table("raw").version or 0) - 1
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(kept)))
    assert ids(box, "raw") == [1, 2]
    box.run("raw")
    assert ids(box, "raw") == [1, 2, 3]


@pytest.mark.parametrize("node", ["copy", "tied"])
def test_maintenance_of_an_idle_node_keeps_the_commit_that_says_how_its_rows_are_read(box: Sandbox, node: str) -> None:
    load(box, 3)
    log = Path(box.table(node).location.uri, "_delta_log")
    outdate(log, before=MANY)
    done = maintain_node(box.project, box.state, NodeKey("p", node), MaintenanceOptions(small_bytes=0))
    assert done is not None
    assert (done.log_files_removed > 0, done.notes) == (True, ())
    outdate(log, before=2 * MANY)
    done = maintain_node(box.project, box.state, NodeKey("p", node), MaintenanceOptions())
    assert done is not None
    assert (done.compaction.files_removed, done.log_files_removed, len(done.notes)) == (3, 0, 1)
    assert "once the node takes in what is new, the log can be cleaned" in done.notes[0]
    assert box.table(node).last_stamp(app_id(NodeKey("p", node))) is not None
    box.land("orders/again.csv", ["id", "3"])
    box.run("raw")
    box.run(node)
    assert ids(box, node) == [1, 2, 3, 3]
    done = maintain_node(box.project, box.state, NodeKey("p", node), MaintenanceOptions(small_bytes=0))
    assert done is not None
    assert (done.log_files_removed > 0, "its log was kept" in str(done.notes)) == (True, False)


def outdate(log: Path, before: int) -> None:
    """Make the log's files of versions below ``before`` older than Delta keeps a log that a checkpoint covers."""
    for file in log.glob("0*"):
        if int(file.name[:20]) < before:
            os.utime(file, (1_700_000_000, 1_700_000_000))


def test_parts_of_the_ledger_that_no_version_names_go_with_maintenance(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, NODES)
    for number in range(5):
        box.land(f"orders/{number}.csv", ["id", str(number)])
        box.run("raw")
    folder = Path(box.table("raw").location.uri, ledger.LEDGER_FOLDER)
    parts = {file.stem for file in folder.iterdir()}
    options = MaintenanceOptions(small_bytes=0, retain_hours=0)
    assert maintain_node(box.project, box.state, RAW, options) is not None
    assert {file.stem for file in folder.iterdir()} == parts
    for file in folder.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    # Each version can still be gone back to, and needs its own.
    assert maintain_node(box.project, box.state, RAW, options) is not None
    assert {file.stem for file in folder.iterdir()} == parts
    clean(box, "raw")
    named = set(NodeMark(box.hwm("raw")).ledger_parts())
    assert named < parts
    planned = maintain_node(box.project, box.state, RAW, replace(options, dry_run=True))
    assert {file.stem for file in folder.iterdir()} == parts
    done = maintain_node(box.project, box.state, RAW, options)
    assert done is not None
    assert planned is not None
    gone = {f"{ledger.LEDGER_FOLDER}/{name}.parquet" for name in parts - {file.stem for file in folder.iterdir()}}
    assert gone
    assert gone == set(done.vacuumed) == set(planned.vacuumed)
    assert named <= {file.stem for file in folder.iterdir()}
    box.land("orders/9.csv", ["id", "9"])
    box.run("raw")
    assert ids(box, "raw") == [0, 1, 2, 3, 4, 9]
