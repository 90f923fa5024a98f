"""Each key of a stream node, edited between two runs: the run stops, or no row is lost or there twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import StreamSettings
from odi_assets.config.models.stream import HealthLimits, StreamInput, Watermark
from odi_assets.config.models.writes import WriteConfig
from odi_assets.errors import CheckpointError, OdiError, TableError
from odi_assets.nodes.recovery.doctor import examine
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.streams.execution.test_streams import event

WINDOWS = "SELECT window.start AS start, {} AS total FROM df GROUP BY window(at, '5 minutes')"
SUM, MAX = WINDOWS.format("sum(n)"), WINDOWS.format("max(n)")
TWO = "SELECT window.start AS start, {} FROM df GROUP BY window(at, '5 minutes')"
NODE: Mapping[str, Any] = {
    "name": "sums",
    "read": {
        "connection": "landing",
        "format": "json",
        "path": "events/*.json",
        "schema": "id STRING, at TIMESTAMP, n BIGINT, seen TIMESTAMP",
    },
    "stream": {"inputs": {"df": {"watermark": {"column": "at", "delay": "1m"}}}, "state_partitions": 1},
    "transform": {"sql": SUM},
    "write": {"connection": "lake", "path": "sums", "mode": "upsert", "keys": ["start"]},
}
ALL = [(0, 1), (5, 5)]
"""Sums by the first minute of their window, of the rows of both runs."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of an edit of a key.

    Attributes:
        value: of the key after the edit; None where no edit can harm, for the reason that ``why`` gives.
        rows: of the table after a run with the edit and more data; None: the run stops with ``error``.
    """

    value: Any
    rows: list[tuple[int, int]] | None = None
    error: type[OdiError] = CheckpointError
    why: str = ""


def same(value: Any) -> Verdict:
    """The rows are those of a run without the edit."""
    return Verdict(value, ALL)


VERDICTS: Mapping[str, Verdict] = {
    "stream.inputs.df.where": Verdict("n < 3", [(0, 1), (5, 2)], why="it holds for new rows"),
    "stream.inputs.df.watermark.column": Verdict("seen"),
    "stream.inputs.df.watermark.delay": same("2m"),
    "stream.inputs.df.max_files_per_batch": same(1),
    "stream.inputs.df.on_change": same("ignore"),
    "stream.output_mode": Verdict("update"),
    "stream.state_store": same("hdfs"),
    "stream.state_partitions": same(3),
    "stream.retain_batches": same(5),
    "stream.checkpoint": Verdict("elsewhere"),
    "stream.conf": same({"spark.sql.streaming.metricsEnabled": "true"}),
    "stream.late_rows": same("late"),
    "stream.unmatched_rows": same("unmatched"),
    **{
        f"stream.health.{name}": Verdict(None, why="an asset check reads it after the run")
        for name in HealthLimits.model_fields
    },
    "write.connection": Verdict("other", ALL, why="another table has a checkpoint of its own: all is read for it"),
    "write.path": Verdict("other", ALL, why="another table has a checkpoint of its own: all is read for it"),
    "write.format": Verdict(None, why="there is one"),
    "write.mode": same("append"),
    "write.keys": Verdict(["start", "total"]),
    "write.partition_by": Verdict(["total"], error=TableError),
    "write.schema": same("evolve"),
    "write.delete_when": Verdict(None, why="it holds for new rows, and their query must have the column"),
    "write.only_if_newer": same("total"),
}
"""By key of a stream node. A key that is new needs a row here: think what its edit does to state and table."""


def keys_of(model: type[BaseModel], at: str) -> Iterator[str]:
    for name, item in model.model_fields.items():
        nested = {"inputs": StreamInput, "watermark": Watermark, "health": HealthLimits}.get(name)
        place = f"{at}.{item.alias or name}" + (".df" if name == "inputs" else "")
        if nested is None:
            yield place
        else:
            yield from keys_of(nested, place)


def edited(key: str, value: Any, node: Mapping[str, Any] = NODE) -> dict[str, Any]:
    """The node with another value of a key."""
    copy: dict[str, Any] = json.loads(json.dumps(node))
    *parents, last = key.split(".")
    place = copy
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return copy


def opened(root: Path, spark: SparkSession, node: Mapping[str, Any]) -> Sandbox:
    other = "  other: {type: local, base_path: other}\n"
    return Sandbox(root, spark, f"- pipeline: p\n  nodes: [{json.dumps(node)}]\n", other)


def rows(box: Sandbox) -> list[tuple[int, ...]]:
    return sorted((row[0].minute, *row[1:]) for row in box.rows("sums"))


def begun(root: Path, spark: SparkSession, node: Mapping[str, Any] = NODE) -> None:
    """A run with a window that is written and one that is open."""
    box = opened(root, spark, node)
    box.land("events/1.json", [event("a", 0, 1), event("b", 6, 2)])
    box.run("sums")


def gone_on(root: Path, spark: SparkSession, node: Mapping[str, Any]) -> Sandbox:
    """A run of the node as it is now, with rows of the open window and of one that closes it."""
    box = opened(root, spark, node)
    box.land("events/2.json", [event("c", 7, 3), event("d", 20, 1)])
    box.run("sums")
    return box


def named_without_a_run(box: Sandbox) -> None:
    """Plan and doctor name what a run stops at, and its remedy."""
    with pytest.raises(CheckpointError) as raised:
        box.plan("sums")
    found = {one.message: one.remedy for one in examine(box.project, box.state, [NodeKey("p", "sums")])}
    assert found[raised.value.message] == raised.value.fix


def test_each_key_has_a_verdict() -> None:
    assert set(VERDICTS) == {*keys_of(StreamSettings, "stream"), *keys_of(WriteConfig, "write")}


@pytest.mark.parametrize("key", [key for key, verdict in VERDICTS.items() if verdict.value is not None])
def test_an_edited_key_loses_and_repeats_nothing_or_stops(tmp_path: Path, spark: SparkSession, key: str) -> None:
    verdict = VERDICTS[key]
    begun(tmp_path, spark)
    if verdict.rows is not None:
        assert rows(gone_on(tmp_path, spark, edited(key, verdict.value))) == verdict.rows
        return
    with pytest.raises(verdict.error):
        gone_on(tmp_path, spark, edited(key, verdict.value))
    if verdict.error is CheckpointError:
        named_without_a_run(opened(tmp_path, spark, edited(key, verdict.value)))
    assert rows(gone_on(tmp_path, spark, NODE)) == ALL


@pytest.mark.parametrize(
    ("before", "now", "mode", "goes_on"),
    [
        ("append", "update", "upsert", False),
        ("append", "complete", "overwrite", False),
        ("update", "append", "upsert", True),
        ("update", "append", "append", False),
        ("update", "complete", "overwrite", False),
        ("complete", "update", "upsert", True),
        ("complete", "append", "upsert", True),
        ("complete", "append", "append", False),
    ],
)
def test_another_output_mode_goes_on_where_state_and_table_have_all_groups(
    tmp_path: Path, spark: SparkSession, before: str, now: str, mode: str, goes_on: bool
) -> None:
    former = {"append": "upsert", "update": "upsert", "complete": "overwrite"}[before]
    node = edited("write.mode", former, edited("stream.output_mode", before))
    begun(tmp_path, spark, node)
    other = edited("write.mode", mode, edited("stream.output_mode", now))
    if goes_on:
        found = rows(gone_on(tmp_path, spark, other))
        assert [row for row in found if row[0] < 20] == ALL
        return
    with pytest.raises(CheckpointError, match=rf"`stream.output_mode` was `{before}`(.|\n)*--full-refresh"):
        gone_on(tmp_path, spark, other)


def test_a_batch_that_notes_no_settings_tells_its_output_mode_by_its_write_mode(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions before wrote them."""
    with monkeypatch.context() as patched:
        patched.setattr("odi_assets.streams.execution.run.compared_settings", lambda _: {})
        begun(tmp_path, spark, edited("write.mode", "append"))
    with pytest.raises(CheckpointError, match=r"`stream.output_mode` was `append` in its last batch"):
        gone_on(tmp_path, spark, edited("stream.output_mode", "update"))


def test_groups_without_a_watermark_stay_in_the_state_for_a_complete_table(tmp_path: Path, spark: SparkSession) -> None:
    node = edited("stream.output_mode", "update", edited("stream.inputs", {}))
    begun(tmp_path, spark, node)
    complete = edited("write.mode", "overwrite", edited("stream.output_mode", "complete", node))
    assert rows(gone_on(tmp_path, spark, complete)) == [*ALL, (20, 1)]


def test_rows_without_groups_are_the_same_in_each_output_mode(tmp_path: Path, spark: SparkSession) -> None:
    node = edited("transform.sql", "SELECT at AS start, n AS total FROM df")
    begun(tmp_path, spark, node)
    box = gone_on(tmp_path, spark, edited("stream.output_mode", "update", node))
    assert rows(box) == [(0, 1), (6, 2), (7, 3), (20, 1)]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (SUM, MAX),
        (SUM, WINDOWS.format("min(n)")),
        (TWO.format("sum(n) AS s, max(n) AS total"), TWO.format("max(n) AS total, sum(n) AS s")),
        (TWO.format("k, j, count(*) AS total") + ", k, j", TWO.format("k, j, count(*) AS total") + ", j, k"),
    ],
    ids=["a maximum for a sum", "a minimum for a sum", "two functions in another order", "groups in another order"],
)
def test_state_that_would_be_taken_for_something_else_stops_the_run(
    tmp_path: Path, spark: SparkSession, before: str, now: str
) -> None:
    with_keys = {"read.schema": f"{NODE['read']['schema']}, k STRING, j STRING", "write.mode": "append"}
    node: Mapping[str, Any] = NODE
    for key, value in with_keys.items():
        node = edited(key, value, node)
    begun(tmp_path, spark, edited("transform.sql", before, node))
    with pytest.raises(CheckpointError, match=r"would take the one for the other(.|\n)*put the definition back"):
        gone_on(tmp_path, spark, edited("transform.sql", now, node))
    assert len(gone_on(tmp_path, spark, edited("transform.sql", before, node)).rows("sums")) == 2
