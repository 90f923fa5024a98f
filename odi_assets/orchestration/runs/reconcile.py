"""Run history against what is known elsewhere: runs that vanished get the rows that they could not write.

Three witnesses: the notes of attempts that began on this host, Dagster's own record of runs that ended badly, and the
targets' logs. Costs no Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
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
from odi_assets.orchestration.runs.liveness import IN_FLIGHT, PROCESS_TAG, end_lost_run
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord
from odi_assets.util.process import is_gone

PROJECT_TAG = "odi/project"
"""Run tag: the project whose nodes a run materializes."""
RECONCILED_TAG = "odi/history"
"""Run tag of runs that ended badly and whose attempts all have their rows."""
LONGEST_RUN = timedelta(days=1)
"""Age at which an attempt on another host, of a run that Dagster does not know, counts as gone."""
_log = logging.getLogger(__name__)
_ENDED_BADLY = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_MOST_RUNS = 100
_STEP_EVENTS = {
    dg.DagsterEventType.STEP_START,
    dg.DagsterEventType.STEP_RESTARTED,
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
    """Write the missing rows of attempts that have ended, and return them. An attempt that may be alive is left alone.

    Args:
        instance: Dagster's record of runs; one in memory knows of none.
        state: the project's state, if it is open already.
        nodes: whose targets to look at; all unless given.
        every_commit: look at every commit of the targets, not at the last ones alone.
        dry_run: only tell which rows are missing.

    Raises:
        OdiError: state or a target cannot be read.
    """
    state = state or project.open_state()
    with only_one(project):
        for run in instance.get_runs(dg.RunsFilter(statuses=IN_FLIGHT, tags={PROJECT_TAG: project.config.project})):
            if not dry_run:
                end_lost_run(instance, run)
        noted = open_attempts(project)
        ended = [attempt for attempt in noted if not _may_live(attempt, instance)]
        bad_runs = _bad_runs(project, instance)
        known = [attempt for run in bad_runs for attempt in _attempts(project, run, instance)]
        keys = project.graph.order(None) if nodes is None else tuple(nodes)
        unrecorded = commits_without_row(project, state, keys, every=every_commit)
        committed = [attempt for attempt in unrecorded if not _may_live(_noted(attempt, noted), instance)]
        rows = [row_of(project, attempt) for attempt in _unrecorded(state, [*ended, *known, *committed])]
        if dry_run:
            return rows
        state.record_runs(rows)
        for attempt in ended:
            end(project, attempt.key, attempt.run_id, attempt.number)
        for run in bad_runs:
            instance.add_run_tags(run.run_id, {RECONCILED_TAG: "reconciled"})
    return rows


def mend_history(
    project: Project, instance: dg.DagsterInstance, state: StateBackend | None = None, pipeline: str | None = None
) -> None:
    """:func:`reconcile` beside other work, which goes on if history cannot be mended now; the log then says why."""
    nodes = None if pipeline is None else project.graph.order(pipeline)
    try:
        for row in reconcile(project, instance, state=state, nodes=nodes):
            _log.warning("%s.%s: run %s ended %s", row.pipeline_name, row.node_name, row.run_id, row.status.value)
    except (OdiError, OSError) as error:
        _log.warning("the run history could not be mended; the next run tries again: %s", error)
        _log.debug("why it could not be mended", exc_info=True)


def _unrecorded(state: StateBackend, attempts: Iterable[Attempt]) -> list[Attempt]:
    unique = {(a.key, a.run_id, a.number): a for a in reversed(list(attempts))}
    missing = [a for a in unique.values() if not is_recorded(state, a.key, a.run_id, a.number)]
    return sorted(missing, key=lambda attempt: attempt.began)


def _noted(attempt: Attempt, noted: Iterable[Attempt]) -> Attempt:
    same = (a for a in noted if (a.key, a.run_id, a.number) == (attempt.key, attempt.run_id, attempt.number))
    return next(same, attempt)


def _may_live(attempt: Attempt, instance: dg.DagsterInstance) -> bool:
    gone = None if attempt.process is None else is_gone(attempt.process)
    if gone is not None:
        return not gone
    run = instance.get_run_by_id(attempt.run_id)
    if run is not None:
        return not run.is_finished
    # Of a commit that nobody noted it is known when it was made, and the row follows it within moments.
    patience = GRACE if attempt.process is None else LONGEST_RUN
    return datetime.now(UTC) - attempt.began < patience


def _bad_runs(project: Project, instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    runs = instance.get_runs(
        dg.RunsFilter(statuses=_ENDED_BADLY, tags={PROJECT_TAG: project.config.project}), limit=_MOST_RUNS
    )
    # Dagster lets a run be marked as ended while its process goes on.
    return [r for r in runs if RECONCILED_TAG not in r.tags and is_gone(r.tags.get(PROCESS_TAG, "//")) is not False]


def _attempts(project: Project, run: dg.DagsterRun, instance: dg.DagsterInstance) -> list[Attempt]:
    """The attempts of a run that Dagster saw begin; with their errors, where it saw them fail."""
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
            began = datetime.fromtimestamp(record.event_log_entry.timestamp, UTC)
            found[key, number] = Attempt(
                key,
                run.run_id,
                number,
                began,
                run_trigger(run),
                _partition(run),
                partial=is_partial(run, project, key.pipeline),
            )
        elif key in latest:
            attempt = found[key, latest[key]]
            found[key, latest[key]] = _with_error(attempt, event)
    return list(found.values())


def _with_error(attempt: Attempt, event: dg.DagsterEvent) -> Attempt:
    data = event.event_specific_data
    error = getattr(data, "error", None)
    return replace(attempt, error=(error.message.strip() if error else event.message) or "the step failed")


def _partition(run: dg.DagsterRun) -> str | None:
    start, stop = (run.tags.get(f"dagster/asset_partition_range_{end}") for end in ("start", "end"))
    start, stop = start or run.tags.get(FROM_TAG), stop or run.tags.get(TO_TAG)
    return f"{start}...{stop}" if start and stop else run.tags.get("dagster/partition")
