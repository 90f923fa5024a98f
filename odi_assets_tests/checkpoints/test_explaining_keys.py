"""Why a joined row is missing, from a checkpoint alone; and that nothing is claimed whose evidence is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.checkpoints import CheckpointReader, KeyFate, KeyReport, KeyVerdict, explain_key
from odi_assets.errors import CheckpointError


def explained(spark: SparkSession, checkpoint: Path, number: int, **options: int) -> KeyReport:
    return explain_key(CheckpointReader(checkpoint, spark), {"id": number, "shop": "x"}, **options)


def test_a_matched_key_that_is_still_there_was_given(spark: SparkSession, join_checkpoint: Path) -> None:
    found = explained(spark, join_checkpoint, 9)
    assert (found.left.fate, found.right.fate) == (KeyFate.WAITING, KeyFate.WAITING)
    assert (found.left.matched, found.right.matched) == (True, True)
    assert found.left.rows[0]["id"] == 9
    assert (found.first_batch, found.last_batch) == (0, 3)
    assert found.verdict is KeyVerdict.MATCHED
    assert "its row was given" in found.reason


def test_a_matched_key_that_was_purged_is_known_to_have_matched(spark: SparkSession, join_checkpoint: Path) -> None:
    found = explained(spark, join_checkpoint, 1)
    assert (found.left.fate, found.right.fate) == (KeyFate.PURGED, KeyFate.PURGED)
    assert found.verdict is KeyVerdict.MATCHED


def test_two_rows_that_wait_for_each_other_fail_another_condition(spark: SparkSession, join_checkpoint: Path) -> None:
    found = explained(spark, join_checkpoint, 8)
    assert (found.left.fate, found.right.fate) == (KeyFate.WAITING, KeyFate.WAITING)
    assert found.verdict is KeyVerdict.NOT_MET
    assert "do not match" in found.reason


def test_a_row_without_a_partner_waits(spark: SparkSession, join_checkpoint: Path) -> None:
    found = explain_key(CheckpointReader(join_checkpoint, spark), {"field1": "x", "field0": 7})
    assert (found.left.fate, found.right.fate) == (KeyFate.WAITING, KeyFate.NEVER_STORED)
    assert found.left.arrived_in == (2,)
    assert found.verdict is KeyVerdict.WAITING
    assert "left row waits" in found.reason


@pytest.mark.contract
def test_a_purged_key_names_the_batch_and_the_watermark(spark: SparkSession, join_checkpoint: Path) -> None:
    found = explained(spark, join_checkpoint, 2)
    assert (found.left.fate, found.right.fate) == (KeyFate.PURGED, KeyFate.NEVER_STORED)
    assert (found.left.arrived_in, found.left.purged_in) == ((0,), (3,))
    assert found.verdict is KeyVerdict.EXPIRED
    assert "purged in batch 3, at watermark 2024-01-01T19:50:00+00:00" in found.reason


def test_a_key_that_was_never_stored_is_told_from_one_that_was_purged(
    spark: SparkSession, join_checkpoint: Path
) -> None:
    found = explained(spark, join_checkpoint, 5)
    assert {found.left.fate, found.right.fate} == {KeyFate.NEVER_STORED}
    assert found.verdict is KeyVerdict.NEVER_STORED
    assert "numRowsDroppedByWatermark" in found.reason
    assert found.missing_evidence is None


def test_a_history_that_does_not_reach_the_first_batch_does_not_say_never(
    spark: SparkSession, join_checkpoint: Path
) -> None:
    found = explained(spark, join_checkpoint, 5, since_batch=2)
    assert {found.left.fate, found.right.fate} == {KeyFate.UNDECIDABLE}
    assert found.verdict is KeyVerdict.UNDECIDABLE


@pytest.mark.parametrize(
    ("number", "left", "right", "verdict"),
    [
        (5, KeyFate.UNDECIDABLE, KeyFate.UNDECIDABLE, KeyVerdict.UNDECIDABLE),
        (2, KeyFate.PURGED, KeyFate.UNDECIDABLE, KeyVerdict.UNDECIDABLE),
        (7, KeyFate.WAITING, KeyFate.UNDECIDABLE, KeyVerdict.WAITING),
        (8, KeyFate.WAITING, KeyFate.WAITING, KeyVerdict.NOT_MET),
        (9, KeyFate.WAITING, KeyFate.WAITING, KeyVerdict.MATCHED),
    ],
)
def test_after_retention_nothing_is_claimed_that_is_not_known(
    spark: SparkSession,
    old_join_checkpoint: Path,
    number: int,
    left: KeyFate,
    right: KeyFate,
    verdict: KeyVerdict,
) -> None:
    found = explained(spark, old_join_checkpoint, number)
    assert (found.left.fate, found.right.fate, found.verdict) == (left, right, verdict)
    assert "never" not in found.reason.replace("never came, or came and was purged before", "")
    if KeyFate.UNDECIDABLE in (left, right):
        assert found.missing_evidence is not None
        assert "batches 0 to 1" in found.missing_evidence
        assert "minBatchesToRetain" in found.missing_evidence


def test_a_key_of_other_fields_is_refused(spark: SparkSession, join_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="2 equality conditions, and the key has 1 values") as caught:
        explain_key(CheckpointReader(join_checkpoint, spark), {"id": 5})
    assert "int, string" in str(caught.value)


def test_only_a_join_is_asked_for_a_key(spark: SparkSession, count_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="stateStoreSave, not a join"):
        explain_key(CheckpointReader(count_checkpoint, spark), {"id": 5})


def test_history_without_changelogs_is_an_error(spark: SparkSession, join_checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(join_checkpoint, copy)
    for changelog in copy.glob("state/0/*/right-keyWithIndexToValue/2.changelog"):
        changelog.unlink()
    with pytest.raises(CheckpointError, match="changelogCheckpointing"):
        explained(spark, copy, 9)
