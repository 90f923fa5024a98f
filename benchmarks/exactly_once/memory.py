"""The driver's memory while a node writes, each size in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks import write
from benchmarks.exactly_once import append, upsert
from benchmarks.exactly_once.lab import Lab
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, in_child

LIMIT_MB = 30.0


def memory(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """An append of some rows, and of more of them in more files; an upsert into a table, and into a larger one."""
    more = sizes.more * sizes.rows
    yield _row(f"append of {more:,} rows", _appends(lab, sizes), f"itself of {sizes.rows:,} rows")
    yield _row(f"upsert of {sizes.changed:,} rows into {more:,}", _upserts(lab, sizes), f"itself into {sizes.rows:,}")


def _appends(lab: Lab, sizes: Sizes) -> Iterator[float]:
    source = lab.files(write.rows(lab.spark, sizes.rows))
    for times in (1, sizes.more):
        lab.say(f"driver memory of an append of {times * sizes.rows:,} rows")
        pipeline = lab.pipeline(append.NODE)
        for _ in range(times):
            pipeline.land(source)
        yield in_child("benchmarks.exactly_once.process", "append", str(pipeline.root))["mb"]


def _upserts(lab: Lab, sizes: Sizes) -> Iterator[float]:
    for rows in (sizes.rows, sizes.more * sizes.rows):
        lab.say(f"driver memory of an upsert into {rows:,} rows")
        pipeline = lab.pipeline(upsert.NODE)
        pipeline.land(lab.files(write.rows(lab.spark, rows)))
        pipeline.run(lab.spark, "orders")
        pipeline.land(upsert.changed(lab, replace(sizes, rows=rows), 0))
        yield in_child("benchmarks.exactly_once.process", "upsert", str(pipeline.root))["mb"]


def _row(name: str, mb: Iterator[float], against: str) -> Row:
    small, large = mb
    grown = large - small
    bar = f"difference <= {LIMIT_MB:g} MB"
    return Row(f"driver Python MB, {name}", large, small, against, grown, bar, grown <= LIMIT_MB)
