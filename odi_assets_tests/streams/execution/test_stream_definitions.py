"""A stream node whose definition changed: whether it can go on is told before its query starts."""

from __future__ import annotations

import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError, OdiError, SourceError, TransformError
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.nodes.run_node import commit
from odi_assets.spark.connect_worker import Redacted
from odi_assets.state.records import RunStatus
from odi_assets.streams.execution.definition import late_times
from odi_assets.streams.planning.plan import StreamPlan
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.streams.execution.test_streams import event

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


def in_store(checkpoint: Path) -> Location:
    """A copy of a checkpoint in a store of fsspec."""
    fsspec.filesystem("memory").put(str(checkpoint), "/checkpoints/events", recursive=True)
    return Location("memory:///checkpoints/events")


def test_a_server_that_logs_its_token_is_told(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = changed(tmp_path, spark, "id, at")
    box.land("events/1.json", [event("a", 0)])
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost:1/;token=secret")
    with caplog.at_level(logging.WARNING):
        run(box, "first")
    assert "PYSPARK_PYTHON=odi-connect-python" in caplog.text
    assert "secret" not in caplog.text
    (found,) = [
        one for one in examine(box.project, box.state, [NodeKey("p", "events")]) if one.kind is Kind.TOKEN_LOGGED
    ]
    assert "odi-connect-python" in found.remedy
    # Behind the server's Python that takes tokens out, nothing is said.
    monkeypatch.setattr("sys.stdout", Redacted(sys.stdout))
    box.land("events/2.json", [event("b", 0)])
    caplog.clear()
    run(box, "first")
    assert caplog.text == ""


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
    plan = other.plan("events")
    assert isinstance(plan, StreamPlan)
    stored = replace(plan, checkpoint=in_store(tmp_path / "lake/events/_odi_stream"))
    with pytest.raises(CheckpointError, match="operator 0, default: key: "):
        commit(compute(stored, spark), other.state, RunInfo("run", code_version="second"))
    assert box.table("events").version == version
    with caplog.at_level(logging.WARNING):
        again = run(changed(tmp_path, spark, "DISTINCT id, at, n", "2h", partitions=3), "third")
    assert again.status is RunStatus.SUCCESS
    told = [record.getMessage() for record in caplog.records if "its definition changed" in record.getMessage()]
    assert any("watermark delay: 3600000 ms in the checkpoint, 7200000 ms in the query" in one for one in told)
    assert any("spark.sql.shuffle.partitions: 1 in the checkpoint, 3 in the query (ignored)" in one for one in told)


def test_a_definition_is_compared_with_that_of_the_last_batch(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    def told(delay: str, definition: str) -> list[str]:
        caplog.clear()
        box = changed(tmp_path, spark, "DISTINCT id, at, n", delay)
        box.land(f"events/{definition}.json", [event(definition, int(definition))])
        with caplog.at_level(logging.WARNING):
            run(box, definition)
        return [one.getMessage() for one in caplog.records if "watermark delay" in one.getMessage()]

    assert told("1h", "1") == []
    assert "3600000 ms in the checkpoint, 7200000 ms in the query" in told("2h", "2")[0]
    assert told("2h", "3") == []
    assert "7200000 ms in the last batch, 10800000 ms in the query" in told("3h", "4")[0]
    assert "10800000 ms in the last batch, 3600000 ms in the query" in told("1h", "5")[0]
    assert told("1h", "6") == []


def test_what_a_module_beside_the_project_defines_reaches_executors(tmp_path: Path, spark: SparkSession) -> None:
    """These are other processes, in another folder: they could not import it."""
    (tmp_path / "shouting.py").write_text(
        "from pyspark.sql.functions import udf\n\n\ndef shout(text):\n    return text.upper()\n\n\n"
        'def loud(df):\n    return df.select(udf(shout)("id").alias("id"))\n',
        encoding="utf-8",
    )
    definition = DISTINCT.format(columns="id", delay="1h", partitions=1)
    box = Sandbox(tmp_path, spark, definition.replace('sql: "SELECT id FROM df"', 'function: "shouting:loud"'))
    box.land("events/1.json", [event("a", 0)])
    run(box, "first")
    assert box.rows("events") == [("A",)]


def test_a_stream_that_is_joined_with_itself_is_told_what_to_do(tmp_path: Path, spark: SparkSession) -> None:
    both = "a.id FROM df a JOIN df b ON a.id = b.id AND a.at = b.at"
    definition = DISTINCT.format(columns="id", delay="1h", partitions=1).replace("id FROM df", both)
    box = Sandbox(tmp_path, spark, definition)
    box.land("events/1.json", [event("a", 0)])
    with pytest.raises(TransformError, match="a second input that reads the same"):
        run(box, "first")


@pytest.mark.parametrize(
    ("stream", "write"),
    [("output_mode: update, ", "mode: upsert, keys: [id]"), ("output_mode: complete, ", "mode: overwrite")],
)
def test_groups_that_never_end_are_named_with_the_ways_to_write_them(
    stream: str, write: str, tmp_path: Path, spark: SparkSession
) -> None:
    counted = """
- pipeline: p
  nodes:
  - name: counts
    read: {connection: landing, format: json, path: "events/*.json", schema: "id STRING, at TIMESTAMP, n INT"}
    stream: {STREAMstate_partitions: 1}
    transform: {sql: "SELECT id, count(*) AS n FROM df GROUP BY id"}
    write: {connection: lake, path: counts, WRITE}
"""
    box = Sandbox(tmp_path, spark, counted.replace("STREAM", "").replace("WRITE", "mode: append"))
    box.land("events/1.json", [event("a", 0)])
    with pytest.raises(TransformError, match="UNSUPPORTED_OPERATION") as failed:
        box.run("counts")
    assert stream.removesuffix(", ") in str(failed.value.fix)
    box.project = Sandbox(tmp_path, spark, counted.replace("STREAM", stream).replace("WRITE", write)).project
    box.run("counts")
    assert box.rows("counts") == [("a", 1)]


def test_a_source_without_its_log_names_no_way_back_to_the_batch_that_the_table_has(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = changed(tmp_path, spark, "id")
    box.land("events/1.json", [event("a", 0)])
    run(box, "first")
    (checkpoint,) = box.root.rglob("_odi_stream")
    shutil.rmtree(checkpoint / "sources")
    box.land("events/2.json", [event("b", 1)])
    with pytest.raises(CheckpointError) as raised:
        run(box, "first")
    assert "rewind" not in str(raised.value)
    assert "--full-refresh" in str(raised.value)


def test_files_that_come_after_the_plan_and_make_spark_read_rows_twice_stop_the_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = changed(tmp_path, spark, "id")
    box.land("events/a.json", [event("a", 0)])
    plan = box.plan("events")
    box.land("events/b[1].json", [event("b", 0)])
    with pytest.raises(SourceError, match=r"b\[1\].json has a character of globs(.|\n)*--full-refresh"):
        commit(compute(plan, spark), box.state, RunInfo("run", code_version="first"))
    assert not box.table("events").exists


@pytest.mark.usefixtures("without_java")
def test_without_java_a_client_of_spark_connect_is_told_that_late_rows_are_judged_by_their_own_time(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = changed(tmp_path, spark, "id")
    box.land("events/a.json", [event("a", 0)])
    node = box.plan("events").node
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    a_client: Any = object()
    with caplog.at_level(logging.WARNING):
        assert late_times(node, a_client) == {}
    assert "judged by the row's own time" in caplog.text
    assert "there is no bin/java in it" in caplog.text


SUMS = """
- pipeline: p
  nodes:
  - name: events
    read: {{connection: landing, format: json, path: events/*.json, schema: "id STRING, at TIMESTAMP, n INT"}}
    stream: {{inputs: {{df: {{}}}}, output_mode: update, state_partitions: 1}}
    transform: {{sql: "SELECT id, {function}(n) AS n FROM df GROUP BY id"}}
    write: {{connection: lake, path: events, mode: upsert, keys: [id]}}
"""


@pytest.mark.parametrize(
    "gone",
    [
        ["state/0/0/_metadata/schema"],
        ["state/0/0/_metadata"],
        ["state/0/_metadata"],
        ["state/0/_metadata", "state/0/0/_metadata"],
        ["state/0/_metadata/metadata", "state/0/0/_metadata/schema"],
    ],
)
def test_an_edit_stops_though_the_checkpoint_has_lost_what_it_would_be_compared_with(
    tmp_path: Path, spark: SparkSession, gone: list[str]
) -> None:
    def node(function: str) -> Sandbox:
        return Sandbox(tmp_path, spark, SUMS.format(function=function))

    box, key = node("sum"), NodeKey("p", "events")
    box.land("events/1.json", [event("a", 0, n=2), event("a", 1, n=3)])
    assert run(box, "first").status is RunStatus.SUCCESS
    for path in gone:
        place = tmp_path / "lake/events/_odi_stream" / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    (damage,) = [one for one in examine(box.project, box.state, [key]) if one.kind is Kind.DAMAGED]
    assert "odi run p --node events, before its query is edited" in damage.remedy
    box.land("events/2.json", [event("a", 2, n=4)])
    version = box.table("events").version
    with pytest.raises(OdiError):
        run(node("max"), "second")
    assert box.table("events").version == version
    box = node("sum")
    assert run(box, "first").status is RunStatus.SUCCESS
    assert [tuple(row) for row in box.rows("events")] == [("a", 9)]
    assert not [one for one in examine(box.project, box.state, [key]) if one.kind is Kind.DAMAGED]
