"""Why a joined row is missing, from a checkpoint alone; and that nothing is claimed whose evidence is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.checkpoints import CheckpointReader
from odi_assets.errors import CheckpointError
from odi_assets.explain.checkpoint import explain_key
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict, StateOfKey


def explained(spark: SparkSession, checkpoint: Path, number: int, **options: int) -> tuple[KeyExplanation, StateOfKey]:
    found = explain_key(CheckpointReader(checkpoint, spark), (number, "x"), **options)
    assert found.state is not None
    return found, found.state


def test_a_matched_key_that_is_still_there_was_given(spark: SparkSession, join_checkpoint: Path) -> None:
    found, state = explained(spark, join_checkpoint, 9)
    assert (state.left.fate, state.right.fate) == (KeyVerdict.WAITING, KeyVerdict.WAITING)
    assert (state.left.matched, state.right.matched) == (True, True)
    assert state.left.rows[0]["id"] == 9
    assert (state.first_batch, state.last_batch) == (0, 3)
    assert found.verdict is KeyVerdict.MATCHED
    assert "its row was given" in found.sentence


def test_a_matched_key_that_was_purged_is_known_to_have_matched(spark: SparkSession, join_checkpoint: Path) -> None:
    found, state = explained(spark, join_checkpoint, 1)
    assert (state.left.fate, state.right.fate) == (KeyVerdict.EXPIRED, KeyVerdict.EXPIRED)
    assert found.verdict is KeyVerdict.MATCHED


def test_two_rows_that_wait_for_each_other_fail_another_condition(spark: SparkSession, join_checkpoint: Path) -> None:
    found, state = explained(spark, join_checkpoint, 8)
    assert (state.left.fate, state.right.fate) == (KeyVerdict.WAITING, KeyVerdict.WAITING)
    assert found.verdict is KeyVerdict.OUT_OF_WINDOW
    assert "do not match" in found.sentence


def test_a_row_without_a_partner_waits(spark: SparkSession, join_checkpoint: Path) -> None:
    found, state = explained(spark, join_checkpoint, 7)
    assert (state.left.fate, state.right.fate) == (KeyVerdict.WAITING, KeyVerdict.NEVER_STORED)
    assert state.left.arrived_in == (2,)
    assert found.verdict is KeyVerdict.WAITING
    assert "left row waits" in found.sentence


@pytest.mark.contract
def test_a_purged_key_names_the_batch_and_the_watermark(spark: SparkSession, join_checkpoint: Path) -> None:
    found, state = explained(spark, join_checkpoint, 2)
    assert (state.left.fate, state.right.fate) == (KeyVerdict.EXPIRED, KeyVerdict.NEVER_STORED)
    assert (state.left.arrived_in, state.left.purged_in) == ((0,), (3,))
    assert found.verdict is KeyVerdict.EXPIRED
    assert "purged in batch 3, at watermark 2024-01-01T19:50:00+00:00" in found.sentence


def test_a_key_that_was_never_stored_is_told_from_one_that_was_purged(
    spark: SparkSession, join_checkpoint: Path
) -> None:
    found, state = explained(spark, join_checkpoint, 5)
    assert {state.left.fate, state.right.fate} == {KeyVerdict.NEVER_STORED}
    assert found.verdict is KeyVerdict.NEVER_STORED
    assert "numRowsDroppedByWatermark" in found.sentence
    assert found.lost == ()


def test_a_history_that_does_not_reach_the_first_batch_does_not_say_never(
    spark: SparkSession, join_checkpoint: Path
) -> None:
    found, state = explained(spark, join_checkpoint, 5, since_batch=2)
    assert {state.left.fate, state.right.fate} == {KeyVerdict.UNDECIDABLE}
    assert found.verdict is KeyVerdict.UNDECIDABLE


@pytest.mark.parametrize(
    ("number", "left", "right", "verdict"),
    [
        (5, KeyVerdict.UNDECIDABLE, KeyVerdict.UNDECIDABLE, KeyVerdict.UNDECIDABLE),
        (2, KeyVerdict.EXPIRED, KeyVerdict.UNDECIDABLE, KeyVerdict.UNDECIDABLE),
        (7, KeyVerdict.WAITING, KeyVerdict.UNDECIDABLE, KeyVerdict.WAITING),
        (8, KeyVerdict.WAITING, KeyVerdict.WAITING, KeyVerdict.OUT_OF_WINDOW),
        (9, KeyVerdict.WAITING, KeyVerdict.WAITING, KeyVerdict.MATCHED),
    ],
)
def test_after_retention_nothing_is_claimed_that_is_not_known(
    spark: SparkSession,
    old_join_checkpoint: Path,
    number: int,
    left: KeyVerdict,
    right: KeyVerdict,
    verdict: KeyVerdict,
) -> None:
    found, state = explained(spark, old_join_checkpoint, number)
    assert (state.left.fate, state.right.fate, found.verdict) == (left, right, verdict)
    assert "never" not in found.sentence.replace("never came, or came and was purged before", "")
    if KeyVerdict.UNDECIDABLE in (left, right):
        assert "batches 0 to 1" in found.lost[0]
        assert "minBatchesToRetain" in found.lost[0]


def test_a_key_of_other_fields_is_refused(spark: SparkSession, join_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="2 equality conditions, and the key has 1 values") as caught:
        explain_key(CheckpointReader(join_checkpoint, spark), (5,))
    assert "int, string" in str(caught.value)


def test_only_a_join_is_asked_for_a_key(spark: SparkSession, count_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="stateStoreSave, not a join"):
        explain_key(CheckpointReader(count_checkpoint, spark), (5,))


def test_history_without_changelogs_is_an_error(spark: SparkSession, join_checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(join_checkpoint, copy)
    for changelog in copy.glob("state/0/*/right-keyWithIndexToValue/2.changelog"):
        changelog.unlink()
    with pytest.raises(CheckpointError, match="changelogCheckpointing"):
        explained(spark, copy, 9)
