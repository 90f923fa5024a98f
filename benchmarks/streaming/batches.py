"""Small batches of one query, against ``foreachBatch`` into delta-rs by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import write
from benchmarks.exactly_once.lab import SCHEMA, Lab, Pipeline
from benchmarks.exactly_once.streaming import Stream
from benchmarks.harness import Row, timed_row
from benchmarks.streaming.sink import NODE
from benchmarks.streaming.sizes import Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batches(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Both take one file a batch; what Spark says each batch took, planning and its own logs included."""
    import deltalake
    import pyspark

    spark = lab.spark
    ours = lab.pipeline(NODE.replace("stream: {}", "stream: {inputs: {df: {max_files_per_batch: 1}}}"))
    source = lab.files(write.rows(spark, sizes.increment), 1)
    for _ in range(sizes.batches):
        ours.land(source)
    lab.say(f"{sizes.batches} batches of {sizes.increment:,} rows, one query after the other")
    took_by_hand = _by_hand(spark, ours.landing, lab.root / "by-hand")
    took = _ours(spark, ours)
    against = f"foreachBatch, toArrow, write_deltalake {deltalake.__version__}, pyspark {pyspark.__version__}"
    kept = slice(sizes.warm_batches, None)
    name = f"batch of {sizes.increment:,} rows, seconds"
    yield timed_row(name, sorted(took[kept]), sorted(took_by_hand[kept]), against, 1.1)


def _ours(spark: SparkSession, pipeline: Pipeline) -> list[float]:
    from odi_assets.nodes.result import RunInfo
    from odi_assets.streams.execution.run import StreamRun
    from odi_assets.streams.planning.plan import StreamPlan

    plan, found = pipeline.plan("raw"), list[float]()
    assert isinstance(plan, StreamPlan)
    run = StreamRun(plan, spark, RunInfo("batches"))
    run.on_batch = lambda batch: found.append(batch.durations_ms["triggerExecution"] / 1000)
    run.execute()
    return found


def _by_hand(spark: SparkSession, landing: Path, folder: Path) -> list[float]:
    stream = Stream(spark, landing, folder)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(f"{landing}/*/*.parquet")
    writer = rows.writeStream.foreachBatch(stream._commit).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    told = [one if isinstance(one, dict) else json.loads(one.json) for one in query.recentProgress]
    return [one["durationMs"]["triggerExecution"] / 1000 for one in told if "addBatch" in one["durationMs"]]
