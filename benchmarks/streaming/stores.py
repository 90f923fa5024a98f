"""The two state stores at many keys: a batch that meets some of the keys, in a state that holds all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.exactly_once.lab import Lab
from benchmarks.harness import Row
from benchmarks.streaming.sizes import Sizes

if TYPE_CHECKING:
    from odi_assets.streams.query.run import BatchProgress

_SEEN = """
from pyspark.sql import DataFrame


def first_seen(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id"])
"""


def stores(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Seconds of a batch of ``changed`` rows, half of whose keys are in the state, which holds ``keys``."""
    from odi_assets.nodes.result import RunInfo
    from odi_assets.streams.execution.run import StreamRun
    from odi_assets.streams.planning.plan import StreamPlan

    spark = lab.spark
    first = lab.files(spark.range(sizes.keys).selectExpr("id"), 4)
    half = sizes.changed // 2
    second = lab.files(spark.range(sizes.keys - half, sizes.keys + half).selectExpr("id"), 1)
    found: dict[str, tuple[float, int]] = {}
    for store in ("rocksdb", "hdfs"):
        node = f"""
        - name: seen
          read: {{connection: landing, format: parquet, path: orders/*/*.parquet, schema: "id BIGINT"}}
          stream: {{state_store: {store}, state_partitions: 4}}
          transform: {{function: "seen:first_seen"}}
          write: {{connection: lake, path: seen, mode: append}}
        """
        ours = lab.pipeline(node, {"seen": _SEEN})
        lab.say(f"{store}: {sizes.keys:,} keys, then a batch of {sizes.changed:,}")
        for source in (first, second):
            ours.land(source)
            plan = ours.plan("seen")
            assert isinstance(plan, StreamPlan)
            run = StreamRun(plan, spark, RunInfo(f"{store}-{source.name}"))

            def note(batch: BatchProgress, store: str = store) -> None:
                found[store] = batch.durations_ms["addBatch"] / 1000, batch.operators[0].state_bytes

            run.on_batch = note
            run.execute()
    (rocksdb, rocksdb_bytes), (hdfs, hdfs_bytes) = found["rocksdb"], found["hdfs"]
    batch = f"batch of {sizes.changed:,} rows at {sizes.keys:,} keys"
    yield Row(f"{batch}, RocksDB, seconds", rocksdb, hdfs, "HDFS-backed store", rocksdb / hdfs, "printed", None)
    memory = f"state of {sizes.keys:,} keys, RocksDB, bytes in memory"
    yield Row(
        memory, rocksdb_bytes, hdfs_bytes, "HDFS-backed store", rocksdb_bytes / max(hdfs_bytes, 1), "printed", None
    )
