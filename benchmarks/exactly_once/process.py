"""What is measured in a process of its own: ``python -m benchmarks.exactly_once.process append|upsert|late|plan …``."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.exactly_once import append, planning, upsert
from benchmarks.exactly_once.lab import Pipeline, open_spark, seconds_of
from benchmarks.harness import peak_memory_mb

_SET_CHILD_SUBREAPER = 36
"""``PR_SET_CHILD_SUBREAPER`` of Linux's ``prctl``."""
_NODES = {"append": (append.NODE, "raw"), "upsert": (upsert.NODE, "orders")}


def memory(folder: Path, mode: str) -> dict[str, Any]:
    """The peak while the project in ``folder`` loads what landed."""
    nodes, node = _NODES[mode]
    pipeline = Pipeline(folder, nodes)
    session = open_spark()
    mb = peak_memory_mb(lambda: pipeline.run(session.spark, node))
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


def late(folder: Path) -> dict[str, Any]:
    """The CPU seconds of ``odi run`` in ``folder``, of its JVM too."""
    # Processes whose parent ended become children of this one, and count among what its children took.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    subprocess.run([sys.executable, "-m", "odi_assets.cli", "run", "p"], cwd=folder, stdout=sys.stderr, check=True)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    took = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu": took.ru_utime + took.ru_stime}


if __name__ == "__main__":
    _, command, path, *more = sys.argv
    if command == "late":
        print(json.dumps(late(Path(path))))
    else:
        print(json.dumps(memory(Path(path), command) if command in _NODES else plans(Path(path), int(more[0]))))
