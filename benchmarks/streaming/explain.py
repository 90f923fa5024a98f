"""Explaining keys of a join, against one read of both inputs that filters these keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.exactly_once.lab import Lab, seconds_of
from benchmarks.harness import Row, alternate, timed_row
from benchmarks.streaming.sizes import Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 1_000
ORDERS = "order_id STRING, customer STRING, amount DOUBLE, status STRING, ordered_at TIMESTAMP"
PAYMENTS = "payment_id STRING, order_id STRING, amount DOUBLE, paid_at TIMESTAMP"
NODE = f"""
- name: paid
  inputs:
    orders: {{read: {{connection: landing, format: json, path: two/orders/*.json, schema: "{ORDERS}"}}}}
    payments: {{read: {{connection: landing, format: json, path: two/payments/*.json, schema: "{PAYMENTS}"}}}}
  stream:
    inputs:
      orders: {{where: status <> 'test', watermark: {{column: ordered_at, delay: 2m}}}}
      payments: {{watermark: {{column: paid_at, delay: 2m}}}}
    state_partitions: 4
  transform:
    sql: |
      SELECT o.order_id, customer, payment_id, paid_at FROM orders o JOIN payments p ON o.order_id = p.order_id
      AND paid_at BETWEEN ordered_at - INTERVAL 5 MINUTES AND ordered_at + INTERVAL 5 MINUTES
  write: {{connection: lake, path: paid, mode: append}}
"""


def explain(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Half of the rows are orders, half payments: one of ten is too far from its order, one of ten has none."""
    from odi_assets.config.graph import NodeKey
    from odi_assets.explain.stream import StreamExplainer

    spark, ours = lab.spark, lab.pipeline(NODE)
    landing, each = ours.root / "landing" / "two", sizes.rows // 2
    _land(spark, landing, each)
    lab.say(f"{each:,} orders are joined to {each:,} payments")
    ours.seconds(spark, "paid")
    keys = [f"ord-{number * max(1, each // KEYS)}" for number in range(min(KEYS, each))]

    def ask() -> float:
        return seconds_of(lambda: list(StreamExplainer.of(ours.project, NodeKey("p", "paid"), spark).explain(keys)))

    lab.say(f"{len(keys):,} keys are explained")
    took = alternate({"ours": ask, "read": lambda: _filtered(spark, landing, keys)}, sizes.rounds, max(1, sizes.warm))
    name = f"explain of {len(keys):,} keys over {sizes.rows:,} rows, seconds"
    yield timed_row(name, took["ours"], took["read"], "one filtered read of both inputs", 2.0)


def _land(spark: SparkSession, landing: Path, each: int) -> None:
    numbers = spark.range(0, each, 1, 8)
    at = "timestamp_micros(1704103200000000 + id * 1000)"
    numbers.selectExpr(
        "concat('ord-', id) AS order_id",
        "concat('customer-', id % 1000) AS customer",
        "cast(id % 90 AS DOUBLE) AS amount",
        "if(id % 100 = 85, 'test', 'placed') AS status",
        f"{at} AS ordered_at",
    ).write.json(str(landing / "orders"))
    numbers.selectExpr(
        "concat('pay-', id) AS payment_id",
        "if(id % 10 = 0, concat('missing-', id), concat('ord-', id)) AS order_id",
        "cast(id % 90 AS DOUBLE) AS amount",
        f"{at} + if(id % 10 = 4, INTERVAL 8 MINUTES, INTERVAL 30 SECONDS) AS paid_at",
    ).write.json(str(landing / "payments"))


def _filtered(spark: SparkSession, landing: Path, keys: Sequence[str]) -> None:
    from pyspark.sql import functions as F

    for name, schema in (("orders", ORDERS), ("payments", PAYMENTS)):
        spark.read.schema(schema).json(f"{landing}/{name}/*.json").where(F.col("order_id").isin(list(keys))).toArrow()
