"""One capture in a process that dies at a named point: ``python -m benchmarks.capture.changes.attempt FILE NODE POINT
NTH FRACTION``."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.kill_sweep.points import die_after, install
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node

_LONGEST = 0.4
"""Seconds from the beginning of a run to its end, about."""


def main(file: str, node: str, point: str, nth: int, fraction: float) -> None:
    """Run the node, and die."""
    project = Project.load(file)
    history = RunHistory(project, project.open_state(), f"killed at {point}")
    if point == "random":
        die_after(fraction * _LONGEST, _quietly)
    else:
        install(point, nth, fraction, _quietly)
    run_node(NodeRun(history, NodeKey("p", node), _open_spark))


def _quietly(name: str) -> None:
    del name


def _open_spark() -> Any:
    raise AssertionError("a capture starts Spark")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
