"""Real stateful queries on small files, and the settings they run under."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
REPORT_LAG = "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag"
UPLOAD_ON_LAG = "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"

STREAMING: Mapping[str, str] = {PROVIDER: ROCKSDB, CHANGELOG: "true", REPORT_LAG: "true", UPLOAD_ON_LAG: "true"}
"""RocksDB with changelog checkpointing, and Spark's own defaults for what the state reader turns off."""


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, and afterwards as it was."""
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def land(folder: Path, name: str, *rows: Mapping[str, Any]) -> None:
    """One new file of JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))


def run_to_the_end(frame: DataFrame, checkpoint: Path) -> None:
    """Run a query until it has read all there is, with the batch after that purges its state."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def orders_with_payments(spark: SparkSession, root: Path) -> DataFrame:
    """Orders and, within an hour of each, their payments; both streams wait ten minutes for late rows."""
    orders = spark.readStream.schema("id INT, shop STRING, ordered TIMESTAMP").json(str(root / "orders"))
    payments = spark.readStream.schema("order_id INT, at STRING, paid TIMESTAMP").json(str(root / "payments"))
    return orders.withWatermark("ordered", "10 minutes").join(
        payments.withWatermark("paid", "10 minutes"),
        F.expr("id = order_id AND shop = at AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR"),
        "leftOuter",
    )


def order(number: int, time: str) -> dict[str, Any]:
    return {"id": number, "shop": "x", "ordered": f"2024-01-01T{time}:00Z"}


def payment(number: int, time: str) -> dict[str, Any]:
    return {"order_id": number, "at": "x", "paid": f"2024-01-01T{time}:00Z"}


def make_join(spark: SparkSession, root: Path) -> Path:
    """The checkpoint of four batches of the join: 0 reads the morning, 1 sets the watermark; 2 reads the evening, 3
    purges the morning."""
    land(root / "orders", "morning", order(1, "10:00"), order(2, "10:01"))
    land(root / "payments", "morning", payment(1, "10:02"))
    run_to_the_end(orders_with_payments(spark, root), root / "checkpoint")
    land(root / "orders", "evening", order(7, "19:30"), order(8, "20:00"), order(9, "20:00"))
    land(root / "payments", "evening", payment(8, "19:59"), payment(9, "20:01"))
    run_to_the_end(orders_with_payments(spark, root), root / "checkpoint")
    return root / "checkpoint"


def sales_by_hour(spark: SparkSession, root: Path) -> DataFrame:
    """Orders counted by hour."""
    orders = spark.readStream.schema("id INT, shop STRING, ordered TIMESTAMP").json(str(root / "orders"))
    return orders.withWatermark("ordered", "10 minutes").groupBy(F.window("ordered", "1 hour")).count()


def visits_of_shops(spark: SparkSession, root: Path) -> DataFrame:
    """Orders by shop with ``transformWithState``: a variable of each kind, and a timer an hour after the watermark."""

    # Made in here, so that Spark's Python workers get it whole, not by the name of a module that they may not find.
    class Visits(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.total = handle.getValueState("total", "n BIGINT")
            self.seen = handle.getListState("seen", "id INT")
            self.times = handle.getMapState("times", "id INT", "at TIMESTAMP")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            del key
            count = self.total.get()[0] if self.total.exists() else 0
            for row in rows:
                count += 1
                self.seen.appendValue((row["id"],))
                self.times.updateValue((row["id"],), (row["ordered"],))
            self.total.update((count,))
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 10**15)
            yield from ()

        def close(self) -> None:
            pass

    orders = spark.readStream.schema("id INT, shop STRING, ordered TIMESTAMP").json(str(root / "orders"))
    return (
        orders.withWatermark("ordered", "10 minutes")
        .groupBy("shop")
        .transformWithState(Visits(), "nothing INT", "Append", "EventTime")
    )
