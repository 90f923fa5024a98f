"""A stream node whose definition changed: whether it can go on is told before its query starts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import CheckpointError
from odi_assets.nodes.execution.materialize import commit, compute
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.execution.test_streams import event
from odi_assets_tests.nodes.support import Sandbox

DISTINCT = """
- pipeline: p
  nodes:
  - name: events
    read: {{connection: landing, format: json, path: events/*.json, schema: "id STRING, at TIMESTAMP, n INT"}}
    stream: {{inputs: {{df: {{watermark: {{column: at, delay: {delay}}}}}}}, state_partitions: {partitions}}}
    transform: {{sql: "SELECT {columns} FROM df"}}
    write: {{connection: lake, path: events, mode: append}}
"""


def run(box: Sandbox, definition: str) -> NodeResult:
    return commit(compute(box.plan("events"), box.spark), box.state, RunInfo("run", code_version=definition))


def changed(root: Path, spark: SparkSession, columns: str, delay: str = "1h", partitions: int = 1) -> Sandbox:
    return Sandbox(root, spark, DISTINCT.format(columns=columns, delay=delay, partitions=partitions))


def test_what_fails_is_an_error_and_what_changes_less_is_logged(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    box = changed(tmp_path, spark, "DISTINCT id, at, n")
    box.land("events/1.json", [event("a", 0), event("a", 0), event("b", 1)])
    assert run(box, "first").status is RunStatus.SUCCESS
    version = box.table("events").version
    box.land("events/2.json", [event("b", 1), event("c", 2)])
    other = changed(tmp_path, spark, "DISTINCT id, at")
    with pytest.raises(CheckpointError, match=r"operator 0, default: key: (.|\n)*--full-refresh"):
        run(other, "second")
    assert box.table("events").version == version
    with caplog.at_level(logging.WARNING):
        again = run(changed(tmp_path, spark, "DISTINCT id, at, n", "2h", partitions=3), "third")
    assert again.status is RunStatus.SUCCESS
    told = [record.getMessage() for record in caplog.records if "its definition changed" in record.getMessage()]
    assert any("watermark delay: 3600000 ms in the checkpoint, 7200000 ms in the query" in one for one in told)
    assert any("spark.sql.shuffle.partitions: 1 in the checkpoint, 3 in the query (ignored)" in one for one in told)
