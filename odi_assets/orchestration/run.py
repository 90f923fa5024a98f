"""Runs a pipeline's job in this process, as ``odi run`` does."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.events import Listener, nobody
from odi_assets.nodes.planning.planner import NEW_DATA
from odi_assets.nodes.planning.range import require_ranges
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult, RunSummary
from odi_assets.orchestration.definitions import build_job
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.orchestration.runs.history import TRIGGER_TAG, DagsterRunHistory
from odi_assets.orchestration.runs.in_flight import unfinished_runs
from odi_assets.orchestration.runs.instance import open_instance
from odi_assets.orchestration.runs.reconcile import INTERRUPTS
from odi_assets.util.debugging import debugging

LOGGER = "odi"
_GIVEN_UP = "Dependencies for step "


def run_pipeline(
    project: Project,
    pipeline: str,
    request: RunRequest = NEW_DATA,
    *,
    nodes: Sequence[str] | None = None,
    instance: dg.DagsterInstance | None = None,
    on_event: Listener | None = None,
) -> RunSummary:
    """Run the job of ``pipeline`` in this process and wait for it.

    Args:
        nodes: names of the nodes to run; all of the pipeline if None.
        instance: where Dagster records the run. Else ``$DAGSTER_HOME``, or the project's folder if it holds a
            dagster.yaml; else nowhere.
        on_event: called for each node that starts or ends.

    Raises:
        ConfigError: there is no such pipeline or node, or a node takes no range.
        KeyboardInterrupt: the run was interrupted. What was committed stays, and the next run continues from there.
    """
    keys = project.pipeline_nodes(pipeline, nodes or ())
    return run_pipelines(project, {pipeline: keys}, request, instance=instance, on_event=on_event)[0]


def run_pipelines(
    project: Project,
    pipelines: Mapping[str, Sequence[NodeKey]],
    request: RunRequest,
    *,
    instance: dg.DagsterInstance | None = None,
    on_event: Listener | None = None,
    on_pipeline: Callable[[str, int], None] | None = None,
) -> list[RunSummary]:
    """Run the jobs of several pipelines one after the other; see :func:`run_pipeline`. A pipeline in which a node reads
    one that failed, or was not run, is left out.

    Args:
        pipelines: the nodes to run of each pipeline, in the order they are run.
        on_pipeline: called with the name of each pipeline that begins, and how many of its nodes are run.
    """
    if request.is_bounded:
        require_ranges(project, [key for keys in pipelines.values() for key in keys], request)
    with nullcontext(instance) if instance is not None else open_instance(project.root) as opened:
        summaries, without = list[RunSummary](), set[NodeKey]()
        for name, keys in pipelines.items():
            if any(above in without for key in keys for above in project.graph.upstream(key)):
                without.update(keys)
                continue
            if on_pipeline is not None:
                on_pipeline(name, len(keys))
            summaries.append(_run(project, name, keys, request, opened, on_event))
            without.update(result.key for result in summaries[-1].results if not result.status.succeeded)
        return summaries


def _run(
    project: Project,
    pipeline: str,
    keys: Sequence[NodeKey],
    request: RunRequest,
    instance: dg.DagsterInstance,
    on_event: Listener | None,
) -> RunSummary:
    results: dict[NodeKey, NodeResult] = {}
    listener = on_event or nobody
    # If state cannot be opened, no node can run: the caller gets the error, not the history of a node.
    state = project.open_state()
    # Ends killed runs, which the UI would show as still running.
    unfinished_runs(instance)
    run_id, started = str(uuid.uuid4()), time.monotonic()
    job = build_job(project, pipeline, listener=listener, loggers={LOGGER: quiet_logger}, results=results)
    failure: dg.DagsterEvent | None = None
    try:
        outcome = job.execute_in_process(
            instance=instance,
            asset_selection=[*map(DagsterNames.of(project).asset, keys)],
            run_config={"loggers": {LOGGER: {}}},
            tags={TRIGGER_TAG: "cli", **request.tags},
            run_id=run_id,
            raise_on_error=False,
        )
        failure = next((event for event in outcome.all_events if event.is_run_failure), None)
    finally:
        run = instance.get_run_by_id(run_id)
        if run is not None and len(results) < len(keys):
            DagsterRunHistory.of_run(project, state, run, listener, results).skip(keys, _reason(failure))
    if failure is not None and _is_interrupt(failure):
        # Dagster ends the run and returns; who pressed Ctrl-C wants the whole command to end.
        raise KeyboardInterrupt
    return RunSummary(run_id, outcome.success, [results[key] for key in keys], time.monotonic() - started)


def _reason(failure: dg.DagsterEvent | None) -> str:
    if failure is None or _is_interrupt(failure):
        return "the run was interrupted"
    error = failure.job_failure_data.error
    return (error.message if error else failure.message or "the run failed").strip()


def _is_interrupt(failure: dg.DagsterEvent) -> bool:
    error = failure.job_failure_data.error
    return error is not None and error.cls_name in INTERRUPTS


def _is_dagsters_own(record: logging.LogRecord) -> bool:
    # Dagster logs each of its events, a failed step with pages of stack, and the steps downstream that it gives up. The
    # caller prints the error and the skipped nodes instead.
    meta = getattr(record, "dagster_meta", {})
    return meta.get("dagster_event") is not None or _GIVEN_UP in record.getMessage()


@dg.logger(config_schema={}, description="Warnings and errors that nodes log themselves, on stderr.")
def quiet_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """A logger of the warnings of nodes, without Dagster's own messages about steps."""
    del context
    logger = logging.Logger("odi_assets.run", level=logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    if not debugging():
        handler.addFilter(lambda record: not _is_dagsters_own(record))
    logger.addHandler(handler)
    return logger
