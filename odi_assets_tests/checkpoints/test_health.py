"""How a query is doing: what its files, its state and meta_batches tell, and which limits it passes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from odi_assets.checkpoints import CheckpointReader, Health, excesses, inspect, measure
from odi_assets.checkpoints.health import health_rows
from odi_assets.config.graph import NodeKey
from odi_assets.config.models.stream import HealthLimits
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.state.delta.batches import BatchRecord, OperatorFigures
from odi_assets.streams.asset_checks.health import health_check, health_metadata

LEFT, RIGHT = "0 left-keyWithIndexToValue", "0 right-keyWithIndexToValue"
MORNING, EVENING = (datetime(2024, 1, 1, *time, tzinfo=UTC) for time in ((9, 51), (19, 50)))


@pytest.fixture(scope="module")
def of_join(spark: SparkSession, join_checkpoint: Path) -> Health:
    return measure(CheckpointReader(join_checkpoint, spark), settings={"spark.sql.shuffle.partitions": "9"})


@pytest.fixture
def of_files(join_checkpoint: Path) -> Health:
    return measure(join_checkpoint, read_state=False)


def records_of(checkpoint: Path, node: str = "") -> list[BatchRecord]:
    """What meta_batches would tell of the batches of a checkpoint, and of one that it has forgotten."""
    known = inspect(checkpoint)
    figures = OperatorFigures(
        operator=0,
        name="symmetricHashJoin",
        rows_total=50,
        rows_dropped=7,
        state_bytes=4_000,
        commit_ms=30,
        custom={"rocksdbLoadLatencyMs": 20},
    )
    one = BatchRecord(
        node=node,
        query=known.query_id,
        batch=0,
        checkpoint=str(checkpoint),
        rows_in={"orders": 3, "payments": 2},
        rows_out=2,
        rows_dropped=7,
        rows_removed=1,
        operators=(figures,),
        durations_ms={"triggerExecution": 1_500},
    )
    return [replace(one, batch=batch) for batch in range(4)]


def test_rows_and_event_times_are_those_of_the_state(of_join: Health) -> None:
    assert [dict(batch.rows) for batch in of_join.batches] == [
        {LEFT: 2, RIGHT: 1},
        {LEFT: 2, RIGHT: 1},
        {LEFT: 5, RIGHT: 3},
        {LEFT: 3, RIGHT: 2},
    ]
    ten, half_past_seven = (datetime(2024, 1, 1, *time, tzinfo=UTC) for time in ((10, 0), (19, 30)))
    assert [batch.oldest for batch in of_join.batches] == [ten, ten, ten, half_past_seven]
    assert of_join.oldest == half_past_seven
    left, right = of_join.stores
    assert (left.total, right.total) == (3, 2)
    assert left.rows is not None
    assert set(left.rows) == {0, 1}
    assert left.skew == max(left.rows.values()) * 2 / 3
    assert left.heaviest == ()
    assert of_join.overridden == {"spark.sql.shuffle.partitions": ("9", "2")}


def test_the_heaviest_keys_are_those_with_most_rows(spark: SparkSession, visits_checkpoint: Path) -> None:
    health = measure(CheckpointReader(visits_checkpoint, spark), most_batches=1)
    heaviest = {store.name: store.heaviest for store in health.stores}
    assert heaviest == {"total": (), "seen": (('{"shop":"x"}', 3),), "times": (('{"shop":"x"}', 3),)}


def test_without_spark_the_files_are_told(of_files: Health, join_checkpoint: Path) -> None:
    assert [batch.watermark for batch in of_files.batches] == [None, MORNING, MORNING, EVENING]
    assert of_files.watermark == EVENING
    assert all(batch.seconds is not None and batch.written[LEFT] > 0 for batch in of_files.batches)
    assert [batch.changed[LEFT][1] for batch in of_files.batches] == [0, 0, 0, 2]
    assert (of_files.snapshot_lag, of_files.lost_batches) == (4, ())
    assert of_files.files == sum(1 for entry in join_checkpoint.rglob("*") if entry.is_file())
    assert [store.total for store in of_files.stores] == [None, None]


def test_meta_batches_tell_what_no_checkpoint_keeps(old_join_checkpoint: Path) -> None:
    health = measure(old_join_checkpoint, read_state=False, records=records_of(old_join_checkpoint))
    assert [batch.batch_id for batch in health.batches] == [0, 1, 2, 3]
    assert {batch.state_rows for batch in health.batches} == {50}
    last = health.last
    assert last is not None
    assert (last.rows_in, last.rows_out, last.rows_dropped, last.rows_removed) == (5, 2, 7, 1)
    assert (last.commit_ms, last.load_ms, last.seconds) == (30, 20, 1.5)
    assert sum(last.bytes.values()) == 4_000
    assert health.rows_dropped == 28
    assert measure(old_join_checkpoint, read_state=False, records=[]).rows_dropped is None


def test_a_watermark_that_stands_still_names_the_source_that_holds_it(join_checkpoint: Path, tmp_path: Path) -> None:
    assert measure(join_checkpoint, read_state=False).stuck_batches == 0
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    head = (copy / "offsets" / "3").read_text().split("\n")[1]
    for batch in (4, 5):
        (copy / "offsets" / str(batch)).write_text(f'v1\n{head}\n{{"logOffset":{batch}}}\n{{"logOffset":1}}')
        shutil.copy(copy / "commits" / "3", copy / "commits" / str(batch))
    health = measure(copy, read_state=False)
    assert (health.stuck_batches, health.stalled_sources) == (2, ("1",))
    (beyond,) = excesses(health, HealthLimits(max_stuck_batches=1))
    assert "2 batches left the watermark where it was: source 1 gave nothing" in beyond.message


def test_limits_that_are_passed_are_told_and_unknown_figures_are_within_them(old_join_checkpoint: Path) -> None:
    health = measure(old_join_checkpoint, read_state=False, records=records_of(old_join_checkpoint))
    strict = HealthLimits(
        max_state_rows=49,
        max_rows_dropped=6,
        max_watermark_lag=timedelta(minutes=9),
        max_skew=1.0,
        max_snapshot_lag=2,
        max_files=10,
        max_bytes=10,
        max_commit_ms=10,
    )
    now = EVENING + timedelta(minutes=10)
    found = {one.limit: one.found for one in excesses(health, strict, now)}
    assert set(found) == {*HealthLimits.model_fields} - {"max_skew", "max_stuck_batches"}
    assert (found["max_state_rows"], found["max_watermark_lag"], found["max_snapshot_lag"]) == (50, 600, 4)
    assert excesses(health, HealthLimits(max_state_rows=50, max_watermark_lag=timedelta(minutes=10)), now) == []


def test_each_batch_has_a_row(of_join: Health) -> None:
    assert [row["state_rows"] for row in health_rows(of_join)] == [3, 3, 8, 5]


def test_dagster_gets_figures_and_a_table(of_join: Health) -> None:
    found = health_metadata(of_join)
    assert (found["state_rows"], found["stuck_batches"]) == (5, 0)
    assert "| 3 |" in found["batches"].value


PROJECT = """
project: shop
connections:
  lake: {{type: local, base_path: lake}}
system: {{connection: lake, path: system}}
pipelines:
- pipeline: shop
  nodes:
  - name: paid
    inputs:
      orders: {{read: {{connection: lake, format: json, path: orders/*.json, schema: "id INT"}}}}
    stream: {{health: {{max_state_rows: {limit}}}}}
    write: {{connection: lake, path: paid, mode: append}}
"""


@pytest.mark.parametrize(("limit", "passed"), [(50, True), (49, False)])
def test_the_asset_check_of_a_stream_node_has_the_limits_of_the_project_file(
    old_join_checkpoint: Path, tmp_path: Path, limit: int, passed: bool
) -> None:
    (tmp_path / "odibi.yaml").write_text(PROJECT.format(limit=limit))
    project, key = Project.load(tmp_path / "odibi.yaml"), NodeKey("shop", "paid")
    check = health_check(project, key)
    result = check()
    assert isinstance(result, dg.AssetCheckResult)
    assert result.passed
    assert result.description == "The stream has run no batch yet."
    place = tmp_path / "lake" / "paid" / "_odi_stream"
    shutil.copytree(old_join_checkpoint, place)
    project.open_batches().record(records_of(place, "shop.paid"))
    result = check()
    assert isinstance(result, dg.AssetCheckResult)
    assert result.passed is passed
    assert ("`max_state_rows` allows 49" in str(result.description)) is not passed
    definitions = build_definitions(project)
    job = definitions.resolve_job_def("shop")
    checks = {one.name for one in job.asset_layer.asset_graph.asset_check_keys}
    assert checks == {"stream_health", "up_to_date"}
