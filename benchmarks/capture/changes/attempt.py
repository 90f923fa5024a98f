"""One capture in a process that dies at a named point."""

from __future__ import annotations

import traceback
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.kill_sweep.points import die_after, install
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node

_LONGEST = 0.4
"""Seconds from the beginning of a run to its end, about."""


def attempt(file: str, node: str, point: str, nth: int, fraction: float, says: Connection) -> None:
    """Run the node of a project file, and die; where the run fails, say why and exit with 1."""
    try:
        project = Project.load(file)
        history = RunHistory(project, project.open_state(), f"killed at {point}")
        if point == "random":
            die_after(fraction * _LONGEST, _quietly)
        else:
            install(point, nth, fraction, _quietly)
        run_node(NodeRun(history, NodeKey("p", node), _open_spark))
    except Exception as error:
        says.send(traceback.format_exc()[-2000:])
        raise SystemExit(1) from error


def _quietly(name: str) -> None:
    del name


def _open_spark() -> Any:
    raise AssertionError("a capture starts Spark")
