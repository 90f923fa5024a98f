"""Runs whose process is gone: Dagster's record of them is ended, and run history gets the rows they did not write.

Dagster notices the death of processes that its code server started. A run from the shell, or one whose code server died
too, would stay "started" for ever, hold its pipeline's place in the pool and keep the sensor from requesting runs.

Missing rows are found in three places: the notes of attempts that began on this host, Dagster's record of runs that
failed, and the targets' logs. No Spark is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError
from odi_assets.nodes.history.attempts import Attempt, end, only_one, open_attempts
from odi_assets.nodes.history.repair import GRACE, commits_without_row, is_recorded, row_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FROM_TAG, TO_TAG
from odi_assets.orchestration.naming import op_name
from odi_assets.orchestration.runs.history import is_partial, run_trigger
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord
from odi_assets.util.process import is_gone

PROCESS_TAG = "odi/process"
"""Run tag that names the process of a run, as ``util.process`` does."""
PROJECT_TAG = "odi/project"
"""Run tag: the project whose nodes a run materializes."""
RECONCILED_TAG = "odi/history"
"""Run tag of failed runs whose attempts all have their rows."""
LONGEST_RUN = timedelta(days=1)
"""Age at which an attempt on another host, of a run that Dagster does not know, counts as gone."""
_log = logging.getLogger(__name__)
_IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_MOST_RUNS = 100
_STEP_EVENTS = {
    dg.DagsterEventType.STEP_START,
    dg.DagsterEventType.STEP_RESTARTED,
    dg.DagsterEventType.STEP_SUCCESS,
    dg.DagsterEventType.STEP_FAILURE,
    dg.DagsterEventType.STEP_UP_FOR_RETRY,
}


def end_lost_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Mark a started run as failed if its process was on this host and is gone; say whether that was so.

    A run on another host, or one that ended before it named its process, is left to Dagster's run monitoring.
    """
    process = run.tags.get(PROCESS_TAG)
    if process is None or run.status not in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING):
        return False
    if not is_gone(process):
        return False
    instance.report_run_failed(
        run, f"The process of this run ({process}) is gone; it was killed or the machine restarted."
    )
    return True


def run_in_flight(instance: dg.DagsterInstance, job_name: str, keys: Collection[dg.AssetKey]) -> dg.DagsterRun | None:
    """A run that has not ended, of a job or of any of these assets (those picked in the UI). Ends lost runs."""
    for run in instance.get_runs(dg.RunsFilter(statuses=_IN_FLIGHT)):
        concerned = run.job_name == job_name or not set(keys).isdisjoint(run.asset_selection or ())
        if concerned and not end_lost_run(instance, run):
            return run
    return None


def reconcile(
    project: Project,
    instance: dg.DagsterInstance,
    *,
    state: StateBackend | None = None,
    nodes: Iterable[NodeKey] | None = None,
    every_commit: bool = False,
    dry_run: bool = False,
) -> list[RunRecord]:
    """Write the missing rows of attempts that have ended, and return them. Attempts that may still run are left alone.

    Args:
        instance: Dagster's record of runs; one in memory knows of none.
        state: the project's state, if it is open already.
        nodes: whose targets to look at; all unless given.
        every_commit: look at every commit of the targets, not only at the last ones.
        dry_run: only return the missing rows.

    Raises:
        OdiError: state or the notes of attempts cannot be read; or a target, after the rows of the others are written.
    """
    state = state or project.open_state()
    of_project = {PROJECT_TAG: project.config.project}
    with nullcontext() if dry_run else only_one(project):
        if not dry_run:
            for run in instance.get_runs(dg.RunsFilter(statuses=_IN_FLIGHT, tags=of_project)):
                end_lost_run(instance, run)
        noted = {attempt.identity: attempt for attempt in open_attempts(project)}
        ended = [attempt for attempt in noted.values() if not _may_live(attempt, instance)]
        failed = [
            run
            for run in instance.get_runs(dg.RunsFilter(statuses=_FAILED, tags=of_project), limit=_MOST_RUNS)
            # Dagster lets a run be marked as ended while its process goes on.
            if RECONCILED_TAG not in run.tags and is_gone(run.tags.get(PROCESS_TAG, "//")) is not False
        ]
        known = [attempt for run in failed for attempt in _attempts(project, run, instance)]
        keys = project.graph.order(None) if nodes is None else tuple(nodes)
        unrecorded, unreadable = commits_without_row(project, state, keys, every=every_commit)
        committed = [attempt for attempt in unrecorded if not _may_live(noted.get(attempt.identity, attempt), instance)]
        # What this host noted of an attempt goes before what Dagster knows, and that before what its commit says.
        unique = {attempt.identity: attempt for attempt in [*committed[::-1], *known[::-1], *ended[::-1]]}
        missing = [attempt for attempt in unique.values() if not is_recorded(state, attempt)]
        rows = [row_of(project, attempt) for attempt in sorted(missing, key=lambda attempt: attempt.started_at)]
        if not dry_run:
            state.record_runs(rows)
            for attempt in ended:
                end(project, attempt.key, attempt)
            for run in failed:
                instance.add_run_tags(run.run_id, {RECONCILED_TAG: "reconciled"})
    if unreadable:
        raise unreadable[0]
    return rows


def repair_history(
    project: Project, instance: dg.DagsterInstance, state: StateBackend | None = None, pipeline: str | None = None
) -> None:
    """:func:`reconcile` beside other work. If history cannot be repaired now, the log says why and the work goes on."""
    nodes = None if pipeline is None else project.graph.order(pipeline)
    try:
        for row in reconcile(project, instance, state=state, nodes=nodes):
            _log.warning("%s.%s: run %s ended %s", row.pipeline_name, row.node_name, row.run_id, row.status.value)
    except (OdiError, OSError) as error:
        _log.warning("the run history could not be repaired; the next run tries again: %s", error)
        _log.debug("why it could not be repaired", exc_info=True)


def _may_live(attempt: Attempt, instance: dg.DagsterInstance) -> bool:
    gone = None if attempt.process is None else is_gone(attempt.process)
    if gone is not None:
        return not gone
    run = instance.get_run_by_id(attempt.run_id)
    if run is not None:
        return not run.is_finished
    # We only know when an unnoted commit was made; a run writes its row within moments of its commit.
    patience = GRACE if attempt.process is None else LONGEST_RUN
    return datetime.now(UTC) - attempt.started_at < patience


def _attempts(project: Project, run: dg.DagsterRun, instance: dg.DagsterInstance) -> list[Attempt]:
    """The attempts of a run that Dagster saw start, with the errors it recorded."""
    names = {op_name(key): key for key in project.graph.nodes}
    first = 1 + int(run.tags.get("dagster/retry_number", 0))
    found: dict[tuple[NodeKey, int], Attempt] = {}
    latest: dict[NodeKey, int] = {}
    records = instance.get_records_for_run(run.run_id, of_type=_STEP_EVENTS).records
    for record in records:
        event = record.event_log_entry.dagster_event
        key = names.get(event.step_key or "") if event else None
        if event is None or key is None:
            continue
        if event.event_type in (dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_RESTARTED):
            latest[key] = number = latest.get(key, first - 1) + 1
            found[key, number] = Attempt(
                run.run_id,
                run_trigger(run),
                number,
                started_at=datetime.fromtimestamp(record.event_log_entry.timestamp, UTC),
                partial=is_partial(run, project, key.pipeline),
                key=key,
                partition_key=_partition(run),
            )
        elif key in latest and event.event_type is dg.DagsterEventType.STEP_SUCCESS:
            found[key, latest[key]] = replace(found[key, latest[key]], succeeded=True)
        elif key in latest:
            error = getattr(event.event_specific_data, "error", None)
            text = (error.message.strip() if error else event.message) or "the step failed"
            found[key, latest[key]] = replace(found[key, latest[key]], error=text)
    return list(found.values())


def _partition(run: dg.DagsterRun) -> str | None:
    start, stop = (run.tags.get(f"dagster/asset_partition_range_{end}") for end in ("start", "end"))
    start, stop = start or run.tags.get(FROM_TAG), stop or run.tags.get(TO_TAG)
    return f"{start}...{stop}" if start and stop else run.tags.get("dagster/partition")
