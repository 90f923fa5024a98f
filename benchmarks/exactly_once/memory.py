"""The driver's memory while a node appends, each size in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import write
from benchmarks.exactly_once.append import NODE
from benchmarks.exactly_once.lab import Lab
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, in_child

LIMIT_MB = 30.0


def memory(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """An append of some rows, and of more of them in more files."""
    source = lab.files(write.rows(lab.spark, sizes.rows))
    mb = {}
    for times in (1, sizes.more):
        lab.say(f"driver memory of an append of {times * sizes.rows:,} rows")
        pipeline = lab.pipeline(NODE)
        for _ in range(times):
            pipeline.land(source)
        mb[times] = in_child("benchmarks.exactly_once.process", "memory", str(pipeline.root))["mb"]
    grown = mb[sizes.more] - mb[1]
    yield Row(
        f"driver Python MB, append of {sizes.more * sizes.rows:,} rows",
        mb[sizes.more],
        mb[1],
        f"itself at {sizes.rows:,} rows",
        grown,
        f"difference <= {LIMIT_MB:g} MB",
        grown <= LIMIT_MB,
    )
