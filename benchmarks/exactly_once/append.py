"""A large append: the whole protocol against Spark's own Parquet writer, which promises nothing."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import write
from benchmarks.exactly_once.lab import READ, SCHEMA, Lab, seconds_of
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, in_turn, timed_row

NODE = f"""
- name: raw
  read: {READ}
  write: {{connection: lake, path: raw, mode: append}}
"""


def append(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Both read the same new Parquet files, and add their rows to what they wrote before."""
    import pyspark

    spark, ours = lab.spark, lab.pipeline(NODE)
    source = lab.files(write.rows(spark, sizes.rows))
    target = lab.root / "plain"

    def node() -> float:
        ours.land(source)
        return ours.seconds(spark, "raw")

    def plain() -> float:
        rows = spark.read.schema(SCHEMA).parquet(str(source))
        return seconds_of(lambda: rows.write.mode("append").parquet(str(target)))

    lab.say(f"{sizes.rounds} rounds of {sizes.rows:,} rows, each writer in turn")
    took = in_turn({"ours": node, "parquet": plain}, sizes.rounds, sizes.warm)
    name = f"append of {sizes.rows:,} rows × 8, whole protocol, seconds"
    yield timed_row(name, took["ours"], took["parquet"], f"df.write.parquet, pyspark {pyspark.__version__}", 1.15)
