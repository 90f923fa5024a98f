"""The state of real queries, read back, and why a joined row is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from odi_assets.errors import CheckpointError
from odi_assets.streaming import KeyStatus, inspect, read_state, state_metadata, why_missing
from odi_assets_tests.streaming.queries import REPORT_LAG, UPLOAD_ON_LAG, settings


def ids(frame: DataFrame, column: str) -> list[int]:
    return sorted(row[0] for row in frame.select(f"value.{column}").collect())


def test_metadata_has_a_row_for_each_store(spark: SparkSession, join_checkpoint: Path) -> None:
    rows = state_metadata(spark, join_checkpoint).collect()
    assert {(row.operatorName, row.minBatchId, row.maxBatchId) for row in rows} == {("symmetricHashJoin", 0, 3)}
    assert len(rows) == 4


def test_each_side_of_a_join_holds_what_still_waits(spark: SparkSession, join_checkpoint: Path) -> None:
    assert ids(read_state(spark, join_checkpoint, join_side="left"), "id") == [7, 8, 9]
    assert ids(read_state(spark, join_checkpoint, join_side="right"), "order_id") == [8, 9]


def test_the_state_of_an_earlier_batch_can_be_read(spark: SparkSession, join_checkpoint: Path) -> None:
    assert ids(read_state(spark, join_checkpoint, join_side="left", batch_id=1), "id") == [1, 2]


def test_a_store_says_which_rows_found_a_partner(spark: SparkSession, join_checkpoint: Path) -> None:
    state = read_state(spark, inspect(join_checkpoint), store_name="left-keyWithIndexToValue")
    matched = {row["value"]["id"]: row["value"]["matched"] for row in state.collect()}
    assert matched == {7: False, 8: False, 9: True}


def test_the_change_feed_shows_what_was_purged_and_when(spark: SparkSession, join_checkpoint: Path) -> None:
    feed = read_state(spark, join_checkpoint, store_name="left-keyWithIndexToValue", change_feed=True)
    deleted = feed.where("change_type = 'delete'").selectExpr("batch_id", "key.field0").collect()
    assert sorted(map(tuple, deleted)) == [(3, 1), (3, 2)]
    some = read_state(
        spark, join_checkpoint, store_name="left-keyWithIndexToValue", change_feed=True, change_start=2, change_end=2
    )
    assert {row.batch_id for row in some.collect()} == {2}


def test_an_aggregation_is_read_from_its_one_store(spark: SparkSession, count_checkpoint: Path) -> None:
    state = read_state(spark, count_checkpoint).selectExpr("hour(key.window.start)", "value.count").collect()
    assert [tuple(row) for row in state] == [(11, 1)]


@pytest.mark.parametrize("before", ["true", "false"])
def test_reading_leaves_the_session_as_it_was(spark: SparkSession, join_checkpoint: Path, before: str) -> None:
    with settings(spark, {REPORT_LAG: before, UPLOAD_ON_LAG: before}):
        read_state(spark, join_checkpoint, join_side="left")
        assert (spark.conf.get(REPORT_LAG), spark.conf.get(UPLOAD_ON_LAG)) == (before, before)


def test_state_is_read_in_a_session_that_ran_no_streaming_query(join_checkpoint: Path) -> None:
    script = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from odi_assets.streaming import read_state\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print(read_state(spark, sys.argv[1], join_side='left').count())\n"
    )
    command = [sys.executable, "-c", script, str(join_checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == "3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operator_id": 4, "join_side": "left"}, r"no stateful operator 4(.|\n)*0 \(symmetricHashJoin\)"),
        ({"join_side": "left", "batch_id": 9}, r"no committed batch 9(.|\n)*last one is 3"),
        ({"join_side": "left", "change_feed": True}, "left-keyWithIndexToValue"),
        ({}, "say which side"),
        ({"store_name": "none"}, "Spark cannot read the state"),
    ],
)
def test_what_a_join_does_not_have_is_an_error_of_ours(
    spark: SparkSession, join_checkpoint: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_state(spark, join_checkpoint, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"join_side": "left"}, "no join in operator 0"), ({"store_name": "left"}, "its stores are default")],
)
def test_what_an_aggregation_does_not_have_is_one_too(
    spark: SparkSession, count_checkpoint: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_state(spark, count_checkpoint, **options)


def test_a_checkpoint_that_does_not_exist_is_an_error_and_not_an_empty_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        state_metadata(spark, tmp_path / "none")
    with pytest.raises(CheckpointError, match="does not exist"):
        read_state(spark, tmp_path / "none")
    with pytest.raises(CheckpointError, match="Spark cannot read"):
        state_metadata(spark, f"hdfs-like:{tmp_path}/none")


def test_a_matched_key_that_is_still_there_was_given(spark: SparkSession, join_checkpoint: Path) -> None:
    found = why_missing(spark, join_checkpoint, {"id": 9, "shop": "x"})
    assert (found.left.status, found.right.status) == (KeyStatus.WAITING, KeyStatus.WAITING)
    assert (found.left.matched, found.right.matched) == (True, True)
    assert found.left.rows[0]["id"] == 9
    assert (found.first_batch, found.last_batch) == (0, 3)
    assert "its row was given" in found.reason


def test_two_rows_that_wait_for_each_other_fail_another_condition(spark: SparkSession, join_checkpoint: Path) -> None:
    found = why_missing(spark, join_checkpoint, {"id": 8, "shop": "x"})
    assert (found.left.status, found.right.status) == (KeyStatus.WAITING, KeyStatus.WAITING)
    assert "do not match" in found.reason


def test_a_row_without_a_partner_waits(spark: SparkSession, join_checkpoint: Path) -> None:
    found = why_missing(spark, inspect(join_checkpoint), {"field1": "x", "field0": 7})
    assert (found.left.status, found.right.status) == (KeyStatus.WAITING, KeyStatus.NEVER_ARRIVED)
    assert found.left.arrived_in == (2,)
    assert "left row waits" in found.reason


def test_a_purged_key_names_the_batch_and_the_watermark(spark: SparkSession, join_checkpoint: Path) -> None:
    found = why_missing(spark, join_checkpoint, {"id": 2, "shop": "x"})
    assert (found.left.status, found.right.status) == (KeyStatus.PURGED, KeyStatus.NEVER_ARRIVED)
    assert (found.left.arrived_in, found.left.purged_in) == ((0,), (3,))
    assert "purged in batch 3, at watermark 2024-01-01T19:50:00+00:00" in found.reason


def test_a_key_that_never_came_is_told_from_one_that_was_purged(spark: SparkSession, join_checkpoint: Path) -> None:
    found = why_missing(spark, join_checkpoint, {"id": 5, "shop": "x"})
    assert {found.left.status, found.right.status} == {KeyStatus.NEVER_ARRIVED}
    assert "numRowsDroppedByWatermark" in found.reason


def test_a_history_that_does_not_reach_the_first_batch_does_not_say_never(
    spark: SparkSession, join_checkpoint: Path
) -> None:
    found = why_missing(spark, join_checkpoint, {"id": 5, "shop": "x"}, since_batch=2)
    assert {found.left.status, found.right.status} == {KeyStatus.NOT_SEEN}


def test_a_key_of_other_fields_is_refused(spark: SparkSession, join_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="2 equality conditions, and the key has 1 values") as caught:
        why_missing(spark, join_checkpoint, {"id": 5})
    assert "int, string" in str(caught.value)


def test_only_a_join_is_asked_for_a_key(spark: SparkSession, count_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="stateStoreSave, not a join"):
        why_missing(spark, count_checkpoint, {"id": 5})


def test_history_without_changelogs_is_an_error(spark: SparkSession, join_checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(join_checkpoint, copy)
    for changelog in copy.glob("state/0/*/right-keyWithIndexToValue/2.changelog"):
        changelog.unlink()
    with pytest.raises(CheckpointError, match="changelogCheckpointing"):
        why_missing(spark, copy, {"id": 9, "shop": "x"})
