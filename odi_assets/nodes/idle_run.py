"""Asking first whether anything is new: a run in which nothing is needs no Spark, no Dagster and no JVM."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError
from odi_assets.nodes.events import Listener, NodeEvent
from odi_assets.nodes.execution.advance import no_data
from odi_assets.nodes.execution.checks.bad_rows import out_of_step
from odi_assets.nodes.history.attempts import begin, end, open_attempts, row_of_result
from odi_assets.nodes.history.repair import last_attempts, unrecorded
from odi_assets.nodes.kinds import kind_of
from odi_assets.nodes.node import code_version
from odi_assets.nodes.planning.forecast import forecasts
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import PARTIAL, NodeResult, RunInfo, RunSummary
from odi_assets.state.backend import StateBackend

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IdleNode:
    """A node whose sources gained nothing, and when and for how many seconds it was looked at."""

    plan: NodePlan
    looked_at: datetime
    seconds: float


@dataclass(frozen=True)
class Outlook:
    """What a run will find.

    Attributes:
        idle: the nodes, if none of them has anything to do, and nothing else needs the full way; else None.
        bytes: size of the files that the run will read; an upper bound if it has to read to know. None if not known.
    """

    idle: Mapping[NodeKey, IdleNode] | None = None
    bytes: int | None = None


def outlook(project: Project, state: StateBackend, keys: Sequence[NodeKey], request: RunRequest) -> Outlook:
    """Look at marks and sources of ``keys``, given in the order they run. Changes nothing.

    The full way is for whatever may change more than state: other requests than for what is new, nodes that are held
    against limits, attempts and commits that have no row of history, and whatever cannot be looked at.
    """
    if request != RunRequest(accept_loss=request.accept_loss) or any(_is_checked(project, key) for key in keys):
        return Outlook()
    try:
        return Outlook() if open_attempts(project) else _looked_at(project, state, keys, request)
    except Exception as error:  # noqa: BLE001  a look must not end a run
        # The run meets the same error, and says of which node it is.
        _log.debug("the look at what is new ended early: %s", error, exc_info=True)
        return Outlook()


def _is_checked(project: Project, key: NodeKey) -> bool:
    config = project.graph.node(key)
    return kind_of(config).has_limits(config)


def _looked_at(project: Project, state: StateBackend, keys: Sequence[NodeKey], request: RunRequest) -> Outlook:
    idle: dict[NodeKey, IdleNode] = {}
    size, began = 0, time.monotonic()
    for forecast in forecasts(project, state, keys, request):
        if forecast.bytes is None:
            # There is something to do, and how much cannot become known any more.
            return Outlook()
        if forecast.plan is not None and out_of_step(forecast.plan.node, forecast.plan.target):
            # The node's last run has left something undone in its quarantine.
            return Outlook()
        size += forecast.bytes
        if forecast.plan is not None and forecast.action == "nothing":
            seconds = time.monotonic() - began
            idle[forecast.key] = IdleNode(forecast.plan, datetime.now(UTC), seconds)
        began = time.monotonic()
    attempts = [attempt for key, node in idle.items() for attempt in last_attempts(project, key, node.plan.target)]
    return Outlook(idle if len(idle) == len(keys) and not unrecorded(state, attempts) else None, size)


def record_idle_run(
    project: Project,
    state: StateBackend,
    pipelines: Mapping[str, Sequence[NodeKey]],
    idle: Mapping[NodeKey, IdleNode],
    on_event: Listener,
    on_pipeline: Callable[[str, int], None],
) -> list[RunSummary] | None:
    """Record that nothing was new when the shell asked: a row of history for each node, all in one commit, and a run
    for each pipeline.

    HWMs that move without a row, and those that the target's log is ahead of, are written as by any run.

    Args:
        pipelines: the nodes of each pipeline, in the order they are run.
        idle: all of these nodes, as :func:`outlook` found them.
        on_event, on_pipeline: called once the rows are written.

    Returns:
        The runs; None if state cannot be written: whoever runs the nodes meets that again, and says so.
    """
    began = time.monotonic()
    runs = {name: _run_infos(project, name, keys, idle) for name, keys in pipelines.items()}
    infos = {key: info for run in runs.values() for key, info in run.items()}
    for key, info in infos.items():
        begin(project, key, info)
    try:
        results = {key: _result(idle[key], state, info) for key, info in infos.items()}
        state.record_runs([row_of_result(project, results[key], info) for key, info in infos.items()])
    except OdiError as error:
        _log.debug("that nothing is new cannot be recorded: %s", error, exc_info=True)
        return None
    finally:
        for key, info in infos.items():
            end(project, key, info)
    summaries = []
    for name, run in runs.items():
        on_pipeline(name, len(run))
        for key in run:
            on_event(NodeEvent("started", key))
            on_event(NodeEvent("finished", key, results[key]))
        run_id = next(iter(run.values())).run_id
        seconds = time.monotonic() - began + sum(idle[key].seconds for key in run)
        summaries.append(RunSummary(run_id, True, [results[key] for key in run], seconds))
    return summaries


def _run_infos(
    project: Project, pipeline: str, keys: Sequence[NodeKey], idle: Mapping[NodeKey, IdleNode]
) -> dict[NodeKey, RunInfo]:
    run_id, partial = str(uuid.uuid4()), set(keys) != set(project.graph.order(pipeline))
    return {
        key: RunInfo(
            run_id,
            "cli",
            code_version=code_version(project, key),
            started_at=idle[key].looked_at,
            partial=partial,
        )
        for key in keys
    }


def _result(node: IdleNode, state: StateBackend, info: RunInfo) -> NodeResult:
    began = time.monotonic()
    result = no_data(node.plan, state, info)
    metrics = {**result.metrics, PARTIAL: True} if info.partial else result.metrics
    return replace(result, seconds=node.seconds + time.monotonic() - began, metrics=metrics)
