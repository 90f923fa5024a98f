"""One attempt of one node in a child process.

Dagster is left out: it takes longer to start a run than the run takes here. The sweep kills whole ``odi run`` processes
besides, which leave nothing out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import dagster as dg

from benchmarks.kill_sweep.jvm import adopt
from odi_assets.config.graph import NodeKey
from odi_assets.nodes import run_node as protocol
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds, RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.orchestration.runs.reconcile import repair_history

PROTOCOL = "node"
"""The kind of runs that this module makes."""
Tell = Callable[[str], None]


def run_node(spec: dict[str, Any], tell: Tell) -> NodeResult:
    """Run a node as ``spec`` says, and tell when the attempt has begun.

    Raises:
        OdiError: as the node's step would.
    """
    project = Project.load(spec["project"])
    state = project.open_state()
    with dg.DagsterInstance.ephemeral() as instance:
        repair_history(project, instance, state)
    history = RunHistory(project, state, spec.get("run_id") or str(uuid.uuid4()), "cli")
    run = protocol.NodeRun(history, NodeKey.parse(spec["node"]), lambda: adopt(spec["port"], spec["secret"]))
    tell("began")
    bounds = Bounds.of(*spec["bounds"]) if spec["bounds"] else None
    return protocol.run_node(run, RunRequest(spec["full_refresh"], bounds=bounds))
