"""The order that all runs of nodes keep, and what is recorded where it ends early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import SourceError
from odi_assets.nodes.execution.materialize import NodeRows, NoRows
from odi_assets.nodes.history.attempts import open_attempts
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, finish, prepare, run_node
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets_tests.nodes.support import Sandbox

PIPELINE = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: json, path: orders, schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: raw, mode: append}
  - name: sums
    inputs: {raw: raw}
    transform: {sql: "SELECT count(*) AS n FROM raw"}
    write: {connection: lake, path: sums, mode: overwrite}
"""
RAW, SUMS = NodeKey("p", "raw"), NodeKey("p", "sums")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    box = Sandbox(tmp_path, spark, PIPELINE)
    box.land("orders/1.json", ['{"id": 1}', '{"id": 2}'])
    return box


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def history(box: Sandbox, run_id: str = "run") -> RunHistory:
    return RunHistory(box.project, box.state, run_id)


def rows(box: Sandbox) -> dict[str, RunRecord]:
    """The last row of history of each node."""
    newest_last = reversed(list(box.state.list_runs(pipeline="p", limit=10)))
    return {row.node_name: row for row in newest_last}


def test_the_halves_of_a_run_are_the_whole_run(box: Sandbox) -> None:
    run = NodeRun(history(box), RAW, lambda: box.spark)
    assert [attempt.key for attempt in open_attempts(box.project)] == [RAW]
    work = prepare(run, RunRequest())
    assert isinstance(work, NodeRows)
    assert not box.table("raw").exists, "rows are written in the second half"
    result = finish(run, work)
    assert (result.status, result.rows_written, box.hwm("raw")) == (RunStatus.SUCCESS, 2, rows(box)["raw"].hwm_after)
    assert run.history.results == {RAW: result}
    assert not open_attempts(box.project)


def test_a_node_with_nothing_new_asks_for_no_spark_and_is_recorded(box: Sandbox) -> None:
    box.run("raw")
    run = NodeRun(history(box), RAW, no_spark)
    work = prepare(run, RunRequest())
    assert isinstance(work, NoRows)
    assert finish(run, work).status is RunStatus.NO_DATA
    assert rows(box)["raw"].status is RunStatus.NO_DATA


@pytest.mark.parametrize("half", ["prepare", "finish"])
def test_a_failure_is_recorded_with_the_nodes_that_do_not_run_because_of_it(box: Sandbox, half: str) -> None:
    run = NodeRun(history(box), RAW, lambda: box.spark, gives_up=lambda _: [SUMS])
    work = prepare(run, RunRequest()) if half == "finish" else None
    (box.root / "landing" / "orders" / "1.json").write_text("{")
    with pytest.raises(SourceError):
        finish(run, prepare(run, RunRequest()) if work is None else work)  # type: ignore[arg-type]
    recorded = rows(box)
    assert {name: row.status for name, row in recorded.items()} == {
        "raw": RunStatus.FAILURE,
        "sums": RunStatus.SKIPPED,
    }
    assert "1.json" in str(recorded["raw"].error)
    assert recorded["sums"].error == "p.raw failed"
    assert not open_attempts(box.project)


def test_a_resumed_run_records_the_node_that_it_leaves_out(box: Sandbox) -> None:
    run_node(NodeRun(history(box, "first"), RAW, lambda: box.spark))
    left_out = prepare(NodeRun(history(box, "second"), RAW, no_spark), RunRequest(resume=True))
    assert isinstance(left_out, NodeResult)
    assert left_out.status is RunStatus.SKIPPED
    assert rows(box)["raw"].run_id == "second"


def test_an_input_that_has_nothing_to_be_made_of_is_waited_for(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, PIPELINE)
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    run = history(box)
    results = [run_node(NodeRun(run, key, no_spark)) for key in (RAW, SUMS)]
    assert [result.status for result in results] == [RunStatus.NO_DATA] * 2
