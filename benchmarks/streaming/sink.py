"""Runs of a stream node without state, against Spark's own Parquet sink."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import write
from benchmarks.exactly_once.lab import SCHEMA, Lab, seconds_of
from benchmarks.harness import Row, in_turn, timed_row
from benchmarks.streaming.sizes import Sizes

NODE = f"""
- name: raw
  read: {{connection: landing, format: parquet, path: orders/*/*.parquet, schema: "{SCHEMA}"}}
  stream: {{}}
  write: {{connection: lake, path: raw, mode: append}}
"""


def sink(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Each follows a landing folder; in each round files land, and they take them in turn: the whole run of a node,
    with plan, commit and records, against a query from its start to its end."""
    import pyspark

    spark, ours, theirs = lab.spark, lab.pipeline(NODE), lab.pipeline(NODE)
    source, target, checkpoint = lab.files(write.rows(spark, sizes.rows)), lab.root / "plain", lab.root / "checkpoint"

    def node() -> float:
        ours.land(source)
        return ours.seconds(spark, "raw")

    def plain() -> float:
        theirs.land(source)
        rows = spark.readStream.schema(SCHEMA).parquet(f"{theirs.landing}/*/*.parquet")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        return seconds_of(lambda: writer.trigger(availableNow=True).start(str(target)).awaitTermination())

    lab.say(f"{sizes.rounds} runs over {sizes.rows:,} rows, each sink in turn")
    took = in_turn({"ours": node, "parquet": plain}, sizes.rounds, sizes.warm)
    against = f"Structured Streaming's Parquet sink, availableNow, pyspark {pyspark.__version__}"
    yield timed_row(f"stream run over {sizes.rows:,} rows × 8, seconds", took["ours"], took["parquet"], against, 1.15)
