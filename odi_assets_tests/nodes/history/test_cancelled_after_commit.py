"""Rows of attempts that ended between their commit and their own row of history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.history.repair import last_attempts, row_of
from odi_assets.nodes.recovery.doctor import examine
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: n
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: n, mode: append}
"""
KEY = NodeKey("p", "n")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, NODE)


def test_a_run_that_is_cancelled_after_its_commit_says_what_it_committed(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.land("a.csv", ["1", "2"])

    def cancelled(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as signal:
        signal.setattr(type(box.state), "compare_and_set", cancelled)
        with pytest.raises(KeyboardInterrupt):
            box.run("n")
    (row,) = box.state.list_runs()
    assert (row.status.value, row.rows_processed, row.table_version) == ("CANCELLED", 2, 0)
    assert row.error == "the run was cancelled after this node had committed"
    box.run("n")
    assert examine(box.project, box.state, [KEY]) == []


def test_a_run_that_is_cancelled_before_its_commit_says_that_it_committed_nothing(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.land("a.csv", ["1", "2"])

    def cancelled(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("odi_assets.nodes.execution.materialize.commit_once", cancelled)
    monkeypatch.setattr("odi_assets.nodes.run_node.commit_once", cancelled)
    with pytest.raises(KeyboardInterrupt):
        box.run("n")
    (row,) = box.state.list_runs()
    assert (row.status.value, row.rows_processed, row.table_version) == ("CANCELLED", None, None)


def test_a_row_that_is_written_afterwards_has_the_mark_of_before(box: Sandbox) -> None:
    for name in ("a.csv", "b.csv"):
        box.land(name, ["1"])
        box.run("n")
    (attempt, *_) = last_attempts(box.project, KEY, box.table("n"))
    own = box.state.list_runs(limit=1)[0]
    written = row_of(box.project, attempt)
    assert written.hwm_before is not None
    assert (written.hwm_before["path"], written.hwm_after["path"]) == ("a.csv", "b.csv")
    assert written.hwm_before == own.hwm_before


def test_a_row_that_is_written_afterwards_says_how_many_rows_went_to_the_quarantine(
    tmp_path: Path, spark: SparkSession
) -> None:
    checks = "    checks: [{range: {column: id, max: 5}}]\n    quarantine: n_bad\n"
    box = Sandbox(tmp_path, spark, NODE.replace("    write:", f"{checks}    write:"))
    box.land("a.csv", ["1", "7", "2", "8"])
    own = box.run("n").metrics
    (attempt,) = last_attempts(box.project, KEY, box.table("n"))
    assert own["rows_quarantined"] == 2
    assert row_of(box.project, attempt).metrics["rows_quarantined"] == 2
