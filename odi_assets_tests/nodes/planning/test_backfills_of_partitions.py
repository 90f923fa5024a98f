"""Backfills of single partitions beside increments, across changes of the clock, or of values: each row once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.partitions.cases import Case
from benchmarks.partitions.edited import EditedCase, lived_with_an_edit
from benchmarks.partitions.modes import ModeCase, lived_in_two_modes
from benchmarks.partitions.sweep import lived
from benchmarks.partitions.values import ValueCase, lived_by_values


@pytest.mark.parametrize(
    ("mode", "case"),
    [
        ("partition_overwrite", Case("hour", "TIMESTAMP_NTZ", "Europe/Berlin", "back")),
        ("append", Case("day", "TIMESTAMP", "Europe/Berlin", "back", 6)),
        ("upsert, keys: [id]", Case("week", "INT", "America/Havana", "forward", 22, 30)),
    ],
    ids=str,
)
def test_a_partition_gets_its_own_rows_once_and_leaves_those_of_its_neighbours(
    tmp_path: Path, spark: SparkSession, mode: str, case: Case
) -> None:
    assert lived(case, mode, spark, tmp_path / "home", random.Random(7)) == []


@pytest.mark.parametrize(
    "case",
    [
        EditedCase("files", "overwrite", ("increment",), "another source"),
        EditedCase("a table by version", "partition_overwrite", ("part",), "another source"),
        EditedCase("files by a cursor", "append", ("increment", "part"), "another day"),
        EditedCase("a node by version", "upsert, keys: [id]", ("part", "increment"), "another node"),
    ],
    ids=str,
)
def test_parts_that_are_run_under_an_edit_stop_or_leave_rows_that_are_right(
    tmp_path: Path, spark: SparkSession, case: EditedCase
) -> None:
    """The long form is ``python -m benchmarks partitions --only edits``."""
    assert lived_with_an_edit(case, spark, tmp_path / "home", random.Random(7)) == []


@pytest.mark.parametrize(
    "case",
    [
        ValueCase("INT", "days and listed", "partition_overwrite"),
        ValueCase("STRING", "listed", "append"),
        ValueCase("DATE", "dynamic", "upsert, keys: [id]"),
    ],
    ids=str,
)
def test_a_partition_of_a_value_gets_its_own_rows_once_and_a_row_of_none_stops_the_run(
    tmp_path: Path, spark: SparkSession, case: ValueCase
) -> None:
    assert lived_by_values(case, spark, tmp_path / "home", random.Random(7), most=3) == []


@pytest.mark.parametrize(
    "case",
    [
        ModeCase("a node by version", "overwrite", "append", ("increment", "rows", "part")),
        ModeCase("files by a cursor", "upsert, keys: [id]", "append", ("rows", "part")),
        ModeCase("a table by version", "append", "append_once, keys: [id]", ("increment", "rows", "part")),
    ],
    ids=str,
)
def test_a_part_in_one_write_mode_and_an_increment_in_another_leave_each_row_once(
    case: ModeCase, tmp_path: Path, spark: SparkSession
) -> None:
    assert lived_in_two_modes(case, spark, tmp_path / "life") is None
