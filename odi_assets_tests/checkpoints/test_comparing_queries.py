"""What is said of a query that is to go on from a checkpoint is what Spark does with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from odi_assets.checkpoints import DifferenceEffect, check_against, inspect, local_copy
from odi_assets_tests.checkpoints.queries import (
    HDFS_BACKED,
    PROVIDER,
    STREAMING,
    land,
    order,
    run_to_the_end,
    sales_by_hour,
    settings,
)


def orders(spark: SparkSession, root: Path, schema: str, delay: str = "10 minutes") -> DataFrame:
    stream = spark.readStream.schema(schema).json(str(root / "orders"))
    return stream.withWatermark("ordered", delay)


SCHEMA = "id INT, shop STRING, ordered TIMESTAMP"


def by_hour(frame: DataFrame, *keys: str) -> DataFrame:
    return frame.groupBy(F.window("ordered", "1 hour"), *keys).count()


@pytest.mark.parametrize(
    ("changed", "effect", "what", "told"),
    [
        (lambda spark, root: sales_by_hour(spark, root), None, "", ""),
        (
            lambda spark, root: by_hour(orders(spark, root, SCHEMA, "5 minutes")),
            DifferenceEffect.FROM_NOW_ON,
            "operator 0, default: watermark delay",
            "600000 ms in the checkpoint, 300000 ms in the query",
        ),
        (
            lambda spark, root: by_hour(orders(spark, root, SCHEMA), "shop"),
            DifferenceEffect.FAILS,
            "operator 0, default: key",
            "shop string in the query",
        ),
        (
            lambda spark, root: orders(spark, root, SCHEMA).groupBy(F.window("ordered", "1 hour")).agg(F.sum("id")),
            DifferenceEffect.FAILS,
            "operator 0, default: value",
            "count bigint in the checkpoint, sum bigint in the query",
        ),
        (
            lambda spark, root: orders(spark, root, SCHEMA).dropDuplicates(["id", "ordered"]),
            DifferenceEffect.FAILS,
            "operator 0",
            "stateStoreSave in the checkpoint, dedupe in the query",
        ),
        (
            lambda spark, root: orders(spark, root, SCHEMA).where("id > 1"),
            DifferenceEffect.FAILS,
            "operator 0",
            "stateStoreSave in the checkpoint, none in the query",
        ),
        (
            lambda spark, root: orders(spark, root, SCHEMA).groupBy("shop").count(),
            DifferenceEffect.FAILS,
            "the query",
            "UNSUPPORTED_OPERATION",
        ),
    ],
    ids=["the same", "delay", "key", "another sum", "operator", "no operator", "refused"],
)
def test_what_is_told_is_what_spark_does(
    spark: SparkSession,
    count_checkpoint: Path,
    tmp_path: Path,
    changed: Callable[[SparkSession, Path], DataFrame],
    effect: DifferenceEffect | None,
    what: str,
    told: str,
) -> None:
    root = Path(shutil.copytree(count_checkpoint.parent, tmp_path / "copy"))
    before = sorted(root.rglob("*"))
    with settings(spark, {**STREAMING, PROVIDER: HDFS_BACKED}):
        found = check_against(root / "checkpoint", changed(spark, root))
        assert sorted(root.rglob("*")) == before
        assert [(one.effect, one.what) for one in found][:1] == ([(effect, what)] if effect else [])
        assert told in "".join(map(str, found))
        land(root / "orders", "noon", order(4, "12:30"))
        if effect is DifferenceEffect.FAILS:
            with pytest.raises(Exception, match=r"(?i)state|output mode"):
                run_to_the_end(changed(spark, root), root / "checkpoint")
        else:
            run_to_the_end(changed(spark, root), root / "checkpoint")


def test_what_a_killed_comparison_left_behind_is_removed(
    spark: SparkSession, count_checkpoint: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(count_checkpoint.parent, tmp_path / "copy"))
    abandoned, running, other = (root / f".checkpoint-{name}" for name in ("0" * 32, "1" * 32, "mine"))
    for folder in (abandoned, running, other):
        (folder / "offsets").mkdir(parents=True)
    for folder in (abandoned, other):
        os.utime(folder, (1_700_000_000, 1_700_000_000))
    with settings(spark, {**STREAMING, PROVIDER: HDFS_BACKED}):
        check_against(root / "checkpoint", sales_by_hour(spark, root))
    assert [folder.exists() for folder in (abandoned, running, other)] == [False, True, True]


def test_a_checkpoint_in_a_store_is_compared_there(spark: SparkSession, count_checkpoint: Path, tmp_path: Path) -> None:
    """As with Spark Connect, whose server does not see the copy of the logs. Spark and fsspec both know ``file:``."""
    root = Path(shutil.copytree(count_checkpoint.parent, tmp_path / "store"))
    store = (f"file://{root}/checkpoint", dict[str, object]())
    abandoned, running = (root / f".checkpoint-{digit * 32}" for digit in "01")
    for folder in (abandoned, running):
        folder.mkdir()
        (folder / "metadata").touch()
    os.utime(abandoned / "metadata", (1_700_000_000, 1_700_000_000))
    before = sorted(root.rglob("*"))
    with settings(spark, {**STREAMING, PROVIDER: HDFS_BACKED}), local_copy(*store, logs_only=True) as copy:
        alone = sorted(copy.parent.rglob("*"))
        assert check_against(copy, sales_by_hour(spark, root), store=store) == ()
        (found,) = check_against(copy, by_hour(orders(spark, root, SCHEMA), "shop"), store=store)
        (refused,) = check_against(copy, orders(spark, root, SCHEMA).groupBy("shop").count(), store=store)
        assert sorted(copy.parent.rglob("*")) == alone
    assert (found.effect, found.what) == (DifferenceEffect.FAILS, "operator 0, default: key")
    assert (refused.effect, refused.what) == (DifferenceEffect.FAILS, "the query")
    assert sorted(root.rglob("*")) == [path for path in before if abandoned not in (path, *path.parents)]


def test_settings_that_the_checkpoint_overrides_are_told(spark: SparkSession, count_checkpoint: Path) -> None:
    wanted = {"spark.sql.shuffle.partitions": "64", "spark.sql.streaming.minBatchesToRetain": "5"}
    with settings(spark, {**STREAMING, PROVIDER: HDFS_BACKED}):
        (found,) = check_against(count_checkpoint, sales_by_hour(spark, count_checkpoint.parent), wanted)
    assert (found.effect, found.what, found.stored, found.wanted) == (
        DifferenceEffect.IGNORED,
        "spark.sql.shuffle.partitions",
        "2",
        "64",
    )


@pytest.mark.contract
def test_a_join_that_lost_a_source_is_told_from_a_relative_path(
    spark: SparkSession, join_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The JVM stays in the folder that it was started in.
    monkeypatch.chdir(join_checkpoint.parent)
    with settings(spark, STREAMING):
        found = check_against("checkpoint", sales_by_hour(spark, join_checkpoint.parent))
    assert [(one.effect, one.what) for one in found] == [
        (DifferenceEffect.FAILS, "sources"),
        (DifferenceEffect.FAILS, "operator 0"),
    ]


def test_sources_that_go_by_name_may_change_and_a_renamed_one_is_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    conf = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    }
    land(tmp_path / "orders", "morning", order(1, "10:00"))

    def named(name: str) -> DataFrame:
        return spark.readStream.schema(SCHEMA).name(name).json(str(tmp_path / "orders"))

    with settings(spark, STREAMING | conf):
        run_to_the_end(named("before"), tmp_path / "checkpoint")
        assert check_against(tmp_path / "checkpoint", named("before")) == ()
        found = check_against(tmp_path / "checkpoint", named("after"))
        assert [(one.effect, one.what, one.wanted) for one in found] == [
            (DifferenceEffect.FROM_NOW_ON, "source after", "a source"),
            (DifferenceEffect.FROM_NOW_ON, "source before", "none"),
        ]
        assert "gives its rows again" in found[0].remedy
        # And so it is: nothing has arrived, and the file is read once more.
        run_to_the_end(named("after"), tmp_path / "checkpoint")
    assert inspect(tmp_path / "checkpoint").batches[-1].offsets == {"after": '{"logOffset":0}'}
