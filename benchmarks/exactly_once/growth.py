"""The same increments into a small table and into one a hundred times as large."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from benchmarks import write
from benchmarks.exactly_once.lab import READ, Lab, Pipeline
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, timed_row

_NODES = f"""
- name: raw
  read: {READ}
  write: {{connection: lake, path: raw, mode: append}}
- name: by_day
  inputs: {{raw: {{node: raw, incremental: {{mode: version}}}}}}
  partition: {{column: day, every: day, start: 2013-01-01}}
  write: {{connection: lake, path: by_day, mode: partition_overwrite}}
"""
_FIRST = date(2013, 1, 1)
_DAYS_PER_FILE = 10
_WARM = 2


def growth(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Late rows of one day land in each round: ``raw`` appends them, ``by_day`` computes their day anew.

    A day has as many rows in both tables, and so has a file; the large table has more of them.
    """
    spark = lab.spark
    tables = {"small": _filled(lab, sizes, sizes.small_days), "large": _filled(lab, sizes, sizes.large_days)}
    rounds = sizes.quick_rounds
    lab.say(f"{rounds} rounds of {sizes.increment:,} late rows into each")
    took: dict[tuple[str, str], list[float]] = {(node, name): [] for node in ("raw", "by_day") for name in tables}
    for number in range(_WARM + rounds):
        late = _late_rows(lab, sizes, number)
        for name, pipeline in tables.items():
            pipeline.land(late)
            for node in ("raw", "by_day"):
                seconds = pipeline.seconds(spark, node)
                if number >= _WARM:
                    took[node, name].append(seconds)
    large, small = (f"{days * sizes.increment:,}" for days in (sizes.large_days, sizes.small_days))
    for node, mode in (("raw", "append"), ("by_day", "partition_overwrite")):
        name = f"{mode} of {sizes.increment:,} rows into {large}, seconds"
        yield timed_row(name, took[node, "large"], took[node, "small"], f"itself into {small}", 1.3)


def _filled(lab: Lab, sizes: Sizes, days: int) -> Pipeline:
    """A pipeline whose ``raw`` was loaded by other means, and whose ``by_day`` was computed from it."""
    from pyspark.sql import functions as F

    from odi_assets.config.models import WriteMode
    from odi_assets.delta.commit import Stamp
    from odi_assets.tables.embedded.engine import EmbeddedEngine
    from odi_assets.tables.engine import WriteSpec

    lab.say(f"a table of {days * sizes.increment:,} rows")
    pipeline = lab.pipeline(_NODES)
    day = f"date_add(DATE'{_FIRST}', cast(id div {sizes.increment} AS INT))"
    rows = write.rows(lab.spark, days * sizes.increment, max(days // _DAYS_PER_FILE, 1)).withColumn("day", F.expr(day))
    engine = EmbeddedEngine()
    engine.write(rows, engine.open(pipeline.target("raw")), WriteSpec(WriteMode.APPEND), Stamp("before", 1))
    pipeline.run(lab.spark, "by_day")
    return pipeline


def _late_rows(lab: Lab, sizes: Sizes, number: int) -> Path:
    """A file of rows of one day, each round another."""
    from pyspark.sql import functions as F

    day = _FIRST + timedelta(days=number % sizes.small_days)
    return lab.files(write.rows(lab.spark, sizes.increment).withColumn("day", F.lit(day)), 1)
