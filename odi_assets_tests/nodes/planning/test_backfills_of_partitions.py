"""Backfills of single partitions beside increments, across changes of the clock: each row is there once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.partitions.cases import Case
from benchmarks.partitions.sweep import lived


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
