"""Checkpoints that several tests look at; none of them changes one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets_tests.checkpoints.queries import (
    FORMAT,
    HDFS_BACKED,
    PROVIDER,
    STREAMING,
    land,
    make_join,
    order,
    run_to_the_end,
    sales_by_hour,
    settings,
    visits_of_shops,
)


@pytest.fixture(scope="package")
def join_checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of the join."""
    with settings(spark, STREAMING):
        return make_join(spark, tmp_path_factory.mktemp("join"))


@pytest.fixture(scope="package")
def count_checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of an aggregation with the other state store provider."""
    root = tmp_path_factory.mktemp("count")
    with settings(spark, {**STREAMING, PROVIDER: HDFS_BACKED}):
        land(root / "orders", "morning", order(1, "10:00"), order(2, "10:01"), order(3, "11:30"))
        run_to_the_end(sales_by_hour(spark, root), root / "checkpoint")
    return root / "checkpoint"


@pytest.fixture(scope="package")
def old_join_checkpoint(join_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The join's checkpoint as it is when Spark retains two batches: 0 and 1 are gone."""
    copy = Path(shutil.copytree(join_checkpoint, tmp_path_factory.mktemp("old") / "checkpoint"))
    for batch in (0, 1):
        for folder in ("offsets", "commits"):
            (copy / folder / str(batch)).unlink()
    return copy


@pytest.fixture(scope="package")
def visits_checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """State variables and timers, in checkpoint format 2; batch 0 reads the morning."""
    root = tmp_path_factory.mktemp("visits")
    with settings(spark, {**STREAMING, FORMAT: "2"}):
        land(root / "orders", "morning", order(1, "10:00"), order(2, "10:01"), order(3, "11:30"))
        run_to_the_end(visits_of_shops(spark, root), root / "checkpoint")
    return root / "checkpoint"
