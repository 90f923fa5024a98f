"""One attempt of one node in a child process: what a Dagster step does, in the same order and by the same functions.

See ``orchestration/assets.py`` and ``orchestration/io_manager.py``. Dagster itself is left out, for it takes longer to
start a run than the run takes here; the sweep kills whole ``odi run`` processes besides, which leave nothing out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import dagster as dg

from benchmarks.kill_sweep.jvm import adopt
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.execution.commits import commit
from odi_assets.nodes.execution.materialize import Computed, NoRows, compute
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds, RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.orchestration.runs.history import TRIGGER_TAG, RunHistory
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
    run = dg.DagsterRun(job_name="p", run_id=spec.get("run_id") or str(uuid.uuid4()), tags={TRIGGER_TAG: "cli"})
    history = RunHistory(project, state, run)
    key = NodeKey.parse(spec["node"])
    info = history.start(key)
    tell("began")
    plan: NodePlan | None = None
    try:
        plan = plan_node(project, state, key, RunRequest(spec["full_refresh"], bounds=_bounds(spec)))
        result = commit(_computed(plan, spec), state, info)
    except BaseException as error:
        history.fail(plan or key, info, error, ())
        raise
    history.finish(result, info)
    return result


def _bounds(spec: dict[str, Any]) -> Bounds | None:
    return Bounds.of(*spec["bounds"]) if spec["bounds"] else None


def _computed(plan: NodePlan, spec: dict[str, Any]) -> Computed:
    if plan.nothing_new:
        return NoRows(plan)
    return compute(plan, adopt(spec["port"], spec["secret"]))
