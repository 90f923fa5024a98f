"""Runs whose process is gone: Dagster's record of them is ended, and run history gets the rows they did not write.

Dagster notices the death of processes that its code server started. A run from the shell, or one whose code server died
too, would stay "started" for ever, hold its pipeline's place in the pool and keep the sensor from requesting runs.

Missing rows are found in three places: the notes of attempts that began on this host, Dagster's record of runs that
failed, and the targets' logs. No Spark is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, OdiError
from odi_assets.nodes.history.attempts import NodeAttempt, end, only_one, open_attempts
from odi_assets.nodes.history.repair import GRACE, commits_without_row, is_recorded, row_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FROM_TAG, TO_TAG, partition_label, partitions_in
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.orchestration.runs.history import is_partial, run_trigger
from odi_assets.orchestration.runs.in_flight import (
    PROCESS_TAG,
    PROJECT_TAG,
    is_of_other_environment,
    nodes_of_run,
    unfinished_runs,
)
from odi_assets.orchestration.runs.unreported import report_committed
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord
from odi_assets.util.process import is_gone

RECONCILED_TAG = "odi/history"
"""Run tag of failed runs whose attempts all have their rows."""
LONGEST_RUN = timedelta(days=1)
"""Age at which an attempt on another host, of a run that Dagster does not know, counts as gone."""
_log = logging.getLogger(__name__)
_FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
INTERRUPTS = frozenset({"KeyboardInterrupt", "DagsterExecutionInterruptedError"})
"""The errors of steps that somebody ended, as Dagster records them."""
_ANY_FAILED = dg.RunsFilter(statuses=_FAILED)
_MOST_RUNS = 100
_STEP_EVENTS = {
    dg.DagsterEventType.STEP_START,
    dg.DagsterEventType.STEP_RESTARTED,
    dg.DagsterEventType.STEP_SUCCESS,
    dg.DagsterEventType.STEP_FAILURE,
    dg.DagsterEventType.STEP_UP_FOR_RETRY,
}


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
    with nullcontext() if dry_run else only_one(project):
        if not dry_run:
            unfinished_runs(instance)
        noted = {attempt.identity: attempt for attempt in open_attempts(project)}
        ended = [attempt for attempt in noted.values() if not _may_live(attempt, instance)]
        failed = _failed_runs(project, instance)
        known = [attempt for run in failed for attempt in _attempts(project, run, instance)]
        cancelled = {attempt.identity for attempt in known if attempt.cancelled}
        keys = project.graph.order(None) if nodes is None else tuple(nodes)
        unrecorded, unreadable = commits_without_row(project, state, keys, every=every_commit)
        committed = [attempt for attempt in unrecorded if not _may_live(noted.get(attempt.identity, attempt), instance)]
        # What this host noted of an attempt goes before what Dagster knows, and that before what its commit says.
        unique = {attempt.identity: attempt for attempt in [*committed[::-1], *known[::-1], *ended[::-1]]}
        missing = [
            replace(attempt, cancelled=attempt.identity in cancelled)
            for attempt in unique.values()
            if not is_recorded(state, attempt)
        ]
        rows = [row_of(project, attempt) for attempt in sorted(missing, key=lambda attempt: attempt.started_at)]
        if not dry_run:
            state.record_runs(rows)
            for attempt in ended:
                end(project, attempt.key, attempt)
            for run in failed:
                _finish(project, instance, run, {one.key for one in known if one.run_id == run.run_id})
    if unreadable:
        raise unreadable[0]
    return rows


def _failed_runs(project: Project, instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """The last runs with nodes of this project that failed or were cancelled, and whose rows may be missing."""
    names = DagsterNames.of(project)
    ours = {names.asset(key) for key in project.graph.nodes}
    runs_by_id = {
        run.run_id: run
        for filters in (dg.RunsFilter(statuses=_FAILED, tags={PROJECT_TAG: project.config.project}), _ANY_FAILED)
        for run in instance.get_runs(filters, limit=_MOST_RUNS)
        # A run that was cancelled before it began does not name its project, but the assets that were picked for it.
        if run.tags.get(PROJECT_TAG) == project.config.project
        or (PROJECT_TAG not in run.tags and not ours.isdisjoint(run.asset_selection or ()))
    }
    # Dagster lets a run be marked as ended while its process goes on.
    return [
        run
        for run in runs_by_id.values()
        if RECONCILED_TAG not in run.tags
        and not is_of_other_environment(project, run)
        and is_gone(run.tags.get(PROCESS_TAG, "//")) is not False
    ]


def _finish(project: Project, instance: dg.DagsterInstance, run: dg.DagsterRun, keys: Iterable[NodeKey]) -> None:
    """Tag a run whose attempts have their rows, once what nodes committed in it is reported."""
    for key in keys:
        report_committed(project, instance, run, key)
    instance.add_run_tags(run.run_id, {RECONCILED_TAG: "reconciled"})


def repair_history(
    project: Project,
    instance: dg.DagsterInstance,
    state: StateBackend | None = None,
    nodes: Iterable[NodeKey] | None = None,
) -> None:
    """:func:`reconcile` beside other work. If history cannot be repaired now, the log says why and the work goes on."""
    try:
        for row in reconcile(project, instance, state=state, nodes=nodes):
            _log.warning("%s.%s: run %s ended %s", row.pipeline_name, row.node_name, row.run_id, row.status.value)
    except (OdiError, OSError) as error:
        _log.warning("the run history could not be repaired; the next run tries again: %s", error)
        _log.debug("why it could not be repaired", exc_info=True)


def _may_live(attempt: NodeAttempt, instance: dg.DagsterInstance) -> bool:
    gone = None if attempt.process is None else is_gone(attempt.process)
    if gone is not None:
        return not gone
    run = instance.get_run_by_id(attempt.run_id)
    if run is not None:
        return not run.is_finished
    # We only know when an unnoted commit was made; a run writes its row within moments of its commit.
    patience = GRACE if attempt.process is None else LONGEST_RUN
    return datetime.now(UTC) - attempt.started_at < patience


def _attempts(project: Project, run: dg.DagsterRun, instance: dg.DagsterInstance) -> list[NodeAttempt]:
    """The attempts of a run that Dagster saw start, with the errors it recorded, and the nodes that never began."""
    made = partial(
        NodeAttempt,
        run.run_id,
        run_trigger(run),
        cancelled=run.status is dg.DagsterRunStatus.CANCELED,
        partition_key=_partition(run),
    )
    begun = _begun(project, run, instance, made)
    return begun + _never_begun(project, run, instance, made, {attempt.key: attempt for attempt in begun})


def _first_attempt(run: dg.DagsterRun) -> int:
    return 1 + int(run.tags.get("dagster/retry_number", 0))


def _begun(
    project: Project, run: dg.DagsterRun, instance: dg.DagsterInstance, made: Callable[..., NodeAttempt]
) -> list[NodeAttempt]:
    """The attempts that began, the last of a node after its others.

    Args:
        made: makes an attempt of the run.
    """
    step = DagsterNames.of(project).step
    names = {step(key, of_ranges=ranges): key for key in project.graph.nodes for ranges in (False, True)}
    attempts: dict[tuple[NodeKey, int], NodeAttempt] = {}
    latest: dict[NodeKey, int] = {}
    for record in instance.get_records_for_run(run.run_id, of_type=_STEP_EVENTS).records:
        event = record.event_log_entry.dagster_event
        key = names.get(event.step_key or "") if event else None
        if event is None or key is None:
            continue
        error = getattr(event.event_specific_data, "error", None)
        if error is not None and error.cls_name in INTERRUPTS:
            continue
        starts = event.event_type in (dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_RESTARTED)
        # The process of a step may die before it says that the step starts.
        if starts or key not in latest:
            latest[key] = number = latest.get(key, _first_attempt(run) - 1) + 1
            attempts[key, number] = made(
                key=key,
                attempt=number,
                started_at=_moment(record.event_log_entry.timestamp),
                partial=is_partial(run, project, key.pipeline),
            )
        attempt = attempts[key, latest[key]]
        if event.event_type is dg.DagsterEventType.STEP_SUCCESS:
            attempts[key, latest[key]] = replace(attempt, succeeded=True)
        elif not starts:
            text = (error.message.strip() if error else event.message) or "the step failed"
            attempts[key, latest[key]] = replace(attempt, error=text)
    return list(attempts.values())


def _never_begun(
    project: Project,
    run: dg.DagsterRun,
    instance: dg.DagsterInstance,
    made: Callable[..., NodeAttempt],
    last: Mapping[NodeKey, NodeAttempt],
) -> list[NodeAttempt]:
    """The nodes that the run did not come to, as of its end.

    Args:
        made: makes an attempt of the run.
        last: the last attempts of the nodes that it came to.
    """
    nodes = {key for key in nodes_of_run(project, instance, run) if key not in last}
    if not nodes:
        return []
    record = instance.get_run_record_by_id(run.run_id)
    ended = datetime.now(UTC) if record is None or record.end_time is None else _moment(record.end_time)
    cancelled = run.status is dg.DagsterRunStatus.CANCELED
    failed = {key: key for key, attempt in last.items() if attempt.error}
    never = []
    for key in project.graph.order():
        if key not in nodes:
            continue
        above = next((failed[up] for up in project.graph.upstream(key) if up in failed), None)
        text = f"the run {'was cancelled' if cancelled else 'ended'} before it began"
        if above is not None and not cancelled:
            failed[key], text = above, f"{above} failed"
        is_part = is_partial(run, project, key.pipeline)
        number = _first_attempt(run)
        never.append(made(key=key, attempt=number, started_at=ended, partial=is_part, skipped=text))
    return never


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _partition(run: dg.DagsterRun) -> str | None:
    start, stop = (run.tags.get(f"dagster/asset_partition_range_{end}") for end in ("start", "end"))
    if start and stop:
        return f"{start}...{stop}"
    bounds = (run.tags[FROM_TAG], run.tags[TO_TAG]) if {FROM_TAG, TO_TAG} <= run.tags.keys() else None
    return partition_label(bounds, _values(run)) or run.tags.get("dagster/partition")


def _values(run: dg.DagsterRun) -> tuple[str, ...]:
    try:
        return partitions_in(run.tags)
    except ConfigError:
        # The run has stopped for that.
        return ()
