"""What is measured in a process of its own: ``python -m benchmarks.exactly_once.process memory|planning FOLDER …``."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.exactly_once import append, planning
from benchmarks.exactly_once.lab import Pipeline, open_spark, seconds_of
from benchmarks.harness import peak_memory_mb


def memory(folder: Path) -> dict[str, Any]:
    """The peak while the project in ``folder`` loads what landed."""
    pipeline = Pipeline(folder, append.NODE)
    session = open_spark()
    mb = peak_memory_mb(lambda: pipeline.run(session.spark, "raw"))
    session.stop()
    return {"mb": mb}


def plans(folder: Path, rounds: int) -> dict[str, Any]:
    """The median of the seconds that a plan of each node takes, and whether Spark was so much as imported for it."""
    pipeline = Pipeline(folder, planning.NODES)
    took = {
        node: statistics.median(seconds_of(lambda node=node: pipeline.plan(node)) for _ in range(rounds))
        for node in planning.FOLLOWERS
    }
    return {"seconds": took, "spark": "pyspark" in sys.modules}


if __name__ == "__main__":
    _, command, path, *more = sys.argv
    print(json.dumps(memory(Path(path)) if command == "memory" else plans(Path(path), int(more[0]))))
