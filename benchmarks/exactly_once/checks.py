"""Checks before the commit: the same increments with six checks and without."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import write
from benchmarks.exactly_once.lab import READ, Lab, Pipeline
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, in_turn, timed_row

_NODE = f"""
- name: raw
  read: {READ}
  write: {{connection: lake, path: raw, mode: append}}
"""
_CHECKS = """\
  checks:
  - not_null: [id, price]
  - unique: id
  - accepted_values: {column: gift, values: [true, false]}
  - range: {column: customer, min: 0}
  - row_count: {min: 1}
  - expression: "score >= 0 OR price >= 0"
"""


def checks(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Both nodes read the same new Parquet files, the cheapest increment there is; one looks at its rows before it
    commits them."""
    spark, plain, checked = lab.spark, lab.pipeline(_NODE), lab.pipeline(_NODE + _CHECKS)
    source = lab.files(write.rows(spark, sizes.rows))

    def run(pipeline: Pipeline) -> float:
        pipeline.land(source)
        return pipeline.seconds(spark, "raw")

    lab.say(f"{2 * sizes.rounds} rounds of {sizes.rows:,} rows, with six checks and without in turn")
    rounds, warm = 2 * sizes.rounds, 3 * sizes.warm  # What is compared is a tenth of what is measured.
    took = in_turn({"with": lambda: run(checked), "without": lambda: run(plain)}, rounds, warm)
    name = f"six checks of {sizes.rows:,} rows × 8 before their commit, seconds"
    yield timed_row(name, took["with"], took["without"], "the same node without checks", 1.15)
