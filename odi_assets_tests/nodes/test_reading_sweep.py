"""Edits of how rows are read and known between runs, against a model in plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.reading.edits import keys_without_edits
from benchmarks.reading.sweep import sweep

EDITS = 24


def test_each_key_of_the_models_has_an_edit() -> None:
    assert keys_without_edits() == set()


@pytest.mark.usefixtures("spark")
def test_edits_lose_and_repeat_no_row_in_silence_and_every_stop_leads_on(tmp_path: Path, spark: SparkSession) -> None:
    tally = sweep(spark, EDITS, 2013, tmp_path, print)
    assert tally.silent == []
    assert tally.tracebacks == []
    assert tally.dead_ends == []
    assert tally.needless == []
    assert min(tally.went_on, tally.stopped, tally.remedies.total()) > 0
