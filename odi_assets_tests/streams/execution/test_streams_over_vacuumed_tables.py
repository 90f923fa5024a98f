"""Streams over a table whose files were compacted and vacuumed before a batch read them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.maintenance.maintain import Maintenance, MaintenanceOptions
from odi_assets.errors import OdiError, SourceError
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.recovery.maintenance import maintain_node
from odi_assets_tests.cli.shop import odi
from odi_assets_tests.nodes.support import Sandbox

PIPELINE = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: raw/*.csv, schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: raw, mode: append}
  - name: below
    inputs: {raw: {node: raw}}
    stream: {inputs: {raw: {max_files_per_batch: 1}}}
    write: {connection: lake, path: below, mode: append}
"""
READER = """
  - name: versions
    inputs: {raw: {node: raw, incremental: version}}
    write: {connection: lake, path: versions, mode: append}
"""
VACUUMED = "files that were not read yet were vacuumed"


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """A stream that has read one of the three commits of its table."""
    box = Sandbox(tmp_path, spark, PIPELINE)
    for number in range(3):
        box.land(f"raw/{number}.csv", [str(number)])
        box.run("raw")
        if not number:
            box.run("below")
    return box


def _raw(box: Sandbox) -> DeltaTable:
    return DeltaTable(str(box.root / "lake" / "raw"))


def _vacuum(box: Sandbox) -> None:
    _raw(box).optimize.compact()
    _raw(box).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)


def _findings(box: Sandbox) -> list[tuple[str, Kind]]:
    found = examine(box.project, box.state, box.project.graph.order())
    return [(str(one.key), one.kind) for one in found]


def test_plan_and_run_say_so_and_a_full_refresh_goes_on(box: Sandbox) -> None:
    _vacuum(box)
    for command in (("plan", "p", "--node", "below"), ("run", "p", "--node", "below")):
        result = odi(*command, cwd=box.root)
        said = " ".join((result.stdout + result.stderr).split())
        assert result.returncode != 0
        assert f"p.raw: {VACUUMED}: 2 of 2" in said
        assert "odi run p --node below --full-refresh" in said
        assert "FileNotFoundError" not in said
    box.run("below", full_refresh=True)
    assert box.rows("below") == [(0,), (1,), (2,)]
    assert _findings(box) == []


def test_a_doctor_names_the_stream_and_files_that_are_put_back_mend_it(box: Sandbox, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(box.root / "lake" / "raw", copy)
    _vacuum(box)
    (found,) = examine(box.project, box.state, box.project.graph.order())
    assert (str(found.key), found.kind) == ("p.below", Kind.INPUT_STUCK)
    assert VACUUMED in found.message
    assert "odi run p --node below --full-refresh" in found.remedy
    shutil.copytree(copy, box.root / "lake" / "raw", ignore=shutil.ignore_patterns("_delta_log"), dirs_exist_ok=True)
    assert _findings(box) == []
    box.run("below")
    assert box.rows("below") == [(0,), (1,), (2,)]


def test_files_that_vacuum_takes_after_the_plan_are_named_by_the_batch(box: Sandbox) -> None:
    plan = box.plan("below")
    _vacuum(box)
    with pytest.raises(SourceError, match=VACUUMED):
        box.finish(plan)


def test_only_files_that_are_read_next_are_looked_for(box: Sandbox) -> None:
    box.run("below")
    _vacuum(box)
    assert box.plan("below").nothing_new
    assert _findings(box) == []
    box.land("raw/3.csv", ["3"])
    box.run("raw")
    box.run("below")
    assert box.rows("below") == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("compacted", ["before", "by the maintenance"])
def test_a_maintenance_keeps_what_a_stream_has_not_read(box: Sandbox, compacted: str) -> None:
    if compacted == "before":
        _raw(box).optimize.compact()
    key = NodeKey("p", "raw")
    options = MaintenanceOptions(retain_hours=0)
    done = maintain_node(box.project, box.state, key, options)
    assert done is not None
    assert any("can go after odi run p --node below" in note for note in done.notes)
    box.run("below")
    assert box.rows("below") == [(0,), (1,), (2,)]
    done = maintain_node(box.project, box.state, key, options)
    assert done is not None
    left = [
        file
        for file in (box.root / "lake" / "raw").rglob("*.parquet")
        if not any(part.startswith("_") for part in file.parts)
    ]
    assert len(left) == 1
    assert not any("streams" in note for note in done.notes)


def test_a_stream_that_cannot_go_on_keeps_nothing(box: Sandbox) -> None:
    _raw(box).delete("id = 0")
    key = NodeKey("p", "raw")
    done = maintain_node(box.project, box.state, key, MaintenanceOptions(retain_hours=0))
    assert done is not None
    assert not any("streams" in note for note in done.notes)


def test_a_doctor_says_that_a_stream_cannot_pass_over_a_deletion(box: Sandbox) -> None:
    _raw(box).delete("id = 0")
    found = {one.kind: one for one in examine(box.project, box.state, box.project.graph.order())}
    assert "changed or removed rows" in found[Kind.INPUT_STUCK].message


def _age(box: Sandbox) -> None:
    """Let all commits of the table be older than its log's retention."""
    then = time.time() - 40 * 86_400
    for commit in (box.root / "lake" / "raw" / "_delta_log").glob("*.json"):
        os.utime(commit, (then, then))


@pytest.fixture
def readers(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """A stream, and a node that follows versions, that have read one of the three commits of their table."""
    box = Sandbox(tmp_path, spark, PIPELINE + READER)
    for number in range(3):
        box.land(f"raw/{number}.csv", [str(number)])
        box.run("raw")
        if not number:
            box.run("below")
            box.run("versions")
    return box


def _maintained(box: Sandbox, **options: int) -> Maintenance:
    done = maintain_node(box.project, box.state, NodeKey("p", "raw"), MaintenanceOptions(**options))
    assert done is not None
    return done


def test_a_maintenance_keeps_the_log_that_nodes_below_have_not_read(readers: Sandbox) -> None:
    _age(readers)
    done = _maintained(readers, retain_hours=0, small_bytes=0)
    assert done.log_files_removed == 0
    kept = (
        "its log was kept whole, because p.below has read it up to version 0 and p.versions has read it up to version"
    )
    assert f"{kept} 0" in done.notes
    for node in ("below", "versions"):
        readers.run(node)
        assert readers.rows(node) == [(0,), (1,), (2,)]
    assert _findings(readers) == []
    assert _maintained(readers, small_bytes=0).log_files_removed == 0, "they have read it up to an old version"


@pytest.mark.parametrize("compacted", ["before", "by the maintenance"])
def test_a_maintenance_of_a_quiet_table_leaves_nodes_that_have_read_it_able_to_read_on(
    readers: Sandbox, compacted: str
) -> None:
    for node in ("below", "versions"):
        readers.run(node)
    if compacted == "before":
        _raw(readers).optimize.compact()
    for _ in range(2):
        _age(readers)
        _maintained(readers, retain_hours=0)
    readers.land("raw/3.csv", ["3"])
    for node in ("raw", "below", "versions"):
        readers.run(node)
    assert readers.rows("below") == readers.rows("versions") == [(0,), (1,), (2,), (3,)]
    done = _maintained(readers, small_bytes=0)
    assert done.log_files_removed > 0
    assert done.notes == ()


@pytest.mark.parametrize("last", ["run", "rewind"])
def test_a_commit_that_cleans_the_log_leaves_what_nodes_below_have_not_read(readers: Sandbox, last: str) -> None:
    """As one that makes a checkpoint does: the ninth, and the fourteenth."""
    log = readers.root / "lake" / "raw" / "_delta_log"
    _raw(readers).alter.set_table_properties({"delta.checkpointInterval": "5"})

    def more(*numbers: int) -> None:
        for number in numbers:
            readers.land(f"raw/{number}.csv", [str(number)])
            readers.run("raw")

    more(3, 4, 5, 6, 7)
    _age(readers)
    if last == "rewind":
        done = odi("state", "rewind", "raw", "--to-version", "7", "--yes", cwd=readers.root)
        assert done.returncode == 0, done.stderr
        assert (log / f"{0:020d}.json").exists()
        return
    more(8)
    assert (log / f"{9:020d}.checkpoint.parquet").exists()
    assert (log / f"{0:020d}.json").exists()
    for node in ("below", "versions"):
        readers.run(node)
        assert readers.rows(node) == [(number,) for number in range(9)]
    more(*range(9, 14))
    assert not (log / f"{0:020d}.json").exists()


def test_a_log_that_somebody_else_cleaned_is_named_with_the_way_on(readers: Sandbox) -> None:
    _raw(readers).create_checkpoint()
    for version in range(2):
        (readers.root / "lake" / "raw" / "_delta_log" / f"{version:020d}.json").unlink()
    found = {str(one.key): one for one in examine(readers.project, readers.state, readers.project.graph.order())}
    assert "its log does not hold version" in found["p.below"].message
    assert "version 1, from which it would read on, is not in the table's log any more" in found["p.versions"].message
    for node in ("below", "versions"):
        assert f"odi run p --node {node} --full-refresh" in found[f"p.{node}"].remedy
        with pytest.raises(OdiError) as stopped:
            readers.run(node)
        assert f"odi run p --node {node} --full-refresh" in str(stopped.value.fix)
        readers.run(node, full_refresh=True)
        assert readers.rows(node) == [(0,), (1,), (2,)]
    assert _findings(readers) == []
