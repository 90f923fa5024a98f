"""The benchmark of streams, small: every part measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness import Options
from benchmarks.streaming import parts
from benchmarks.streaming.branches import walked
from benchmarks.streaming.damage import (
    Subject,
    damaged,
    disagreements,
    spark_conf,
    truth,
    verdict,
    whole_outcome,
)
from benchmarks.streaming.kills import POINTS, make_project, outcome, run_killed
from benchmarks.streaming.sizes import SMALL

PARTS = parts(SMALL)
_WALK = 6
"""Its walk takes the checkpoint of another branch where batches are known by number and files alone."""


@pytest.mark.parametrize("name", [name for name in PARTS if name not in ("kills", "branches", "damage")])
@pytest.mark.usefixtures("spark")
def test_every_part_measures(name: str) -> None:
    rows = PARTS[name](Options(say=print))
    assert rows
    assert all(row.ours >= 0 for row in rows)


def test_versions_of_a_stream_have_their_own_rows_whatever_branches_it_has(tmp_path: Path, spark: SparkSession) -> None:
    assert walked(spark, tmp_path / "walk", 15, seed=_WALK) == []


@pytest.mark.usefixtures("jvm")
def test_a_stream_killed_at_its_end_in_a_rewind_or_with_its_jvm_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    undisturbed, disturbed = (make_project(tmp_path / name, "rocksdb", 4) for name in ("undisturbed", "disturbed"))
    assert not run_killed(undisturbed, None)
    for point in ("JVM after 2 batch", "run before 1 end of the run", "run before 1 rewind: checkpoint"):
        assert run_killed(disturbed, point), point
    assert not run_killed(disturbed, None)
    found = outcome(undisturbed)
    assert outcome(disturbed) == found
    assert all(found.values())


def test_the_points_of_the_kills_are_functions_of_production_code() -> None:
    from pkgutil import resolve_name

    assert all(callable(resolve_name(name)) for name in POINTS.values())


@pytest.mark.parametrize(("kind", "provider"), [("aggregation", "hdfs"), ("join", "rocksdb")])
def test_the_verdict_on_damaged_checkpoints_is_what_spark_makes_of_them(
    spark: SparkSession, tmp_path: Path, kind: str, provider: str
) -> None:
    tried, wrong = disagreements(spark, tmp_path, kind, provider, 3, print)
    assert (tried, wrong) == (3, [])


def test_what_describes_variables_and_is_gone_is_judged_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    before = {name: spark.conf.get(name, None) for name in spark_conf("rocksdb")}
    subject = Subject(spark, tmp_path, "transformWithState", "rocksdb")
    try:
        for name, value in spark_conf("rocksdb").items():
            spark.conf.set(name, value)
        subject.make()
        whole = whole_outcome(subject)
        for name in ("state/0/_stateSchema", "state/0/_metadata/v2/0"):
            copy = damaged(subject, name, "removed")
            said, really = verdict(subject, copy), truth(subject, copy, whole)
            assert (said.restarts, said.readable, said.feeds) == (really.restarts, really.readable, really.feeds), name
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
