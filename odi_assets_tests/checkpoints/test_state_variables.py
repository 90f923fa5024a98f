"""The variables and timers of ``transformWithState``, and checkpoint format 2, whose state files have ids."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.checkpoints import CheckpointReader, check_files, inspect, read_schemas
from odi_assets.checkpoints.schemas import type_names
from odi_assets.errors import CheckpointError
from odi_assets_tests.checkpoints.queries import FORMAT, settings


@pytest.fixture
def visits(spark: SparkSession, visits_checkpoint: Path) -> CheckpointReader:
    return CheckpointReader(visits_checkpoint, spark)


def test_variables_are_named_with_their_kinds_and_types(visits: CheckpointReader, visits_checkpoint: Path) -> None:
    assert {one.name: one.kind for one in visits.variables()} == {
        "total": "ValueState",
        "seen": "ListState",
        "times": "MapState",
    }
    assert visits.variables() == visits.variables(0)
    (operator,) = inspect(visits_checkpoint).operators
    assert type_names(read_schemas(operator)["total"].value) == [("n", "bigint")]
    assert operator.time_mode == "EventTime"


@pytest.mark.contract
def test_each_kind_of_variable_is_read_flat_and_whole(visits: CheckpointReader) -> None:
    assert [row.value.n for row in visits.read(variable="total").collect()] == [3]
    assert sorted(row.list_element.id for row in visits.read(variable="seen").collect()) == [1, 2, 3]
    assert sorted(row.user_map_key.id for row in visits.read(variable="times").collect()) == [1, 2, 3]
    (whole,) = visits.read(variable="seen", flatten=False).collect()
    assert len(whole.list_value) == 3


@pytest.mark.contract
def test_timers_and_changes_are_read(visits: CheckpointReader) -> None:
    (timer,) = visits.timers().collect()
    assert (timer.key.shop, timer.expiration_timestamp_ms) == ("x", 10**15)
    assert {(row.batch_id, row.change_type) for row in visits.changes(variable="total").collect()} == {(0, "update")}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda of: of.read(), "say which of its variables: (total|seen|times), "),
        (lambda of: of.read(variable="nope"), r"no variable nope(.|\n)*total"),
        (lambda of: of.read("nope"), r"one store, default(.|\n)*total"),
        (lambda of: of.read(side="left"), "no join in operator 0"),
    ],
)
def test_what_it_does_not_have_is_an_error_of_ours(
    visits: CheckpointReader, ask: Callable[[CheckpointReader], Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        ask(visits)


def test_the_format_of_the_checkpoint_counts_and_the_sessions_stays(
    spark: SparkSession, visits: CheckpointReader
) -> None:
    with settings(spark, {FORMAT: "1"}):
        assert visits.read(variable="total").count() == 1
        assert spark.conf.get(FORMAT) == "1"


def test_a_snapshot_can_be_named_to_rebuild_from(visits: CheckpointReader) -> None:
    found = {
        row.value.n
        for partition in (0, 1)
        for row in visits.read(variable="total", snapshot_batch=0, snapshot_partition=partition).collect()
    }
    assert found == {3}


def test_files_with_ids_are_found_by_them(visits_checkpoint: Path, tmp_path: Path) -> None:
    found = check_files(visits_checkpoint)
    assert not found.faults
    assert found.readable == tuple(batch.batch_id for batch in inspect(visits_checkpoint).batches)
    copy = Path(shutil.copytree(visits_checkpoint, tmp_path / "copy"))
    for archive in copy.glob("state/0/0/*.zip"):
        archive.unlink()
    (changes,) = copy.glob("state/0/0/1_*.changelog")
    # Files of the same version that a failed attempt of the batch left do not stand in for it.
    changes.rename(changes.with_name("1_00000000-0000-0000-0000-000000000000.changelog"))
    found = check_files(copy)
    assert not found.readable
    assert found.lost[0].path == f"state/0/0/{changes.name}"


def test_a_moved_checkpoint_whose_schema_spark_looks_for_where_it_was_is_told(
    spark: SparkSession, visits_checkpoint: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(visits_checkpoint, tmp_path / "copy"))
    moved = visits_checkpoint.with_name("elsewhere")
    visits_checkpoint.rename(moved)
    try:
        with pytest.raises(CheckpointError, match="was moved or copied"):
            CheckpointReader(copy, spark).read(variable="total")
        (fault,) = check_files(copy).faults
        assert str(visits_checkpoint) in fault.fault
    finally:
        moved.rename(visits_checkpoint)
