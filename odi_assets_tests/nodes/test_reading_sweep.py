"""Edits of how rows are read and known: none of the models' keys is forgotten, and a short form of the sweep."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.reading.edits import keys_without_edits
from benchmarks.reading.sweep import sweep

SEED = 2013


def test_each_key_of_the_models_has_an_edit() -> None:
    assert keys_without_edits() == set()


def test_edits_between_runs_lose_and_repeat_nothing_and_each_stop_has_a_way_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The long form is ``python -m benchmarks reading``."""
    tally = sweep(spark, 8, SEED, tmp_path, print)
    assert (tally.silent, tally.tracebacks, tally.dead_ends, tally.needless) == ([], [], [], [])
    assert tally.went_on
