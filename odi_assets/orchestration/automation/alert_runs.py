"""Runs that ended since the last look, as alerts: of any job, schedule, sensor, backfill, or of the shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from odi_assets.monitoring.alerts.alert import Alert
from odi_assets.monitoring.alerts.outbox import wanted
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import QUARANTINED
from odi_assets.orchestration.runs.in_flight import is_of_other_environment, nodes_of_run
from odi_assets.orchestration.runs.reconcile import repair_history
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from dagster._core.event_api import RunStatusChangeEventType

_AT_ONCE = 50
"""Runs of a kind that are looked at in one tick."""
_MOST_NAMED = 5
_EVENTS: Mapping[RunStatusChangeEventType, tuple[str, ...]] = {
    dg.DagsterEventType.RUN_FAILURE: ("on_failure", "on_quarantine"),
    dg.DagsterEventType.RUN_SUCCESS: ("on_success", "on_quarantine"),
}


def ended_runs(
    project: Project, instance: dg.DagsterInstance, seen: Mapping[str, int]
) -> tuple[list[Alert], dict[str, int]]:
    """Alerts about the project's runs that ended since ``seen``, and what has been seen now.

    Args:
        seen: by kind of event, the number of the last one in Dagster's log; what ended before the first look is no
            news.
    """
    alerts: list[Alert] = []
    now = dict(seen)
    for kind, events in _EVENTS.items():
        if not wanted(project.config.alerts, *events):
            now.pop(kind.value, None)
            continue
        if kind.value not in seen:
            newest = instance.fetch_run_status_changes(kind, limit=1).records
            now[kind.value] = newest[0].storage_id if newest else 0
            continue
        after = dg.RunStatusChangeRecordsFilter(event_type=kind, after_storage_id=seen[kind.value])
        records = instance.fetch_run_status_changes(after, limit=_AT_ONCE, ascending=True).records
        if records and kind is dg.DagsterEventType.RUN_FAILURE:
            # A run that was killed has written no rows.
            repair_history(project, instance)
        for record in records:
            now[kind.value] = record.storage_id
            alerts += _alerts(project, instance, record.event_log_entry)
    return alerts, now


def _alerts(project: Project, instance: dg.DagsterInstance, entry: dg.EventLogEntry) -> Iterator[Alert]:
    run = instance.get_run_by_id(entry.run_id)
    if run is None or is_of_other_environment(project, run):
        return
    nodes = nodes_of_run(project, instance, run)
    if not nodes:
        # Somebody else's run.
        return
    pipelines = sorted({key.pipeline for key in nodes})
    subject = pipelines[0] if len(pipelines) == 1 else run.job_name
    rows = project.open_state().list_runs(run_id=run.run_id)[::-1]
    facts = {"run": run.run_id, "job": run.job_name}
    if run.status is dg.DagsterRunStatus.FAILURE:
        yield _alert(project, "on_failure", subject, "FAILURE", _why(rows, entry, pipelines), facts)
    else:
        written = sum(row.rows_processed or 0 for row in rows)
        nodes_ran = {(row.pipeline_name, row.node_name) for row in rows}
        text = f"{counted(len(nodes_ran), 'node')} ran; {counted(written, 'row')} written."
        yield _alert(project, "on_success", subject, "SUCCESS", text, facts)
    for row in rows:
        if row.metrics.get(QUARANTINED):
            text = f"{counted(int(row.metrics[QUARANTINED]), 'row')} went to its quarantine."
            yield _alert(project, "on_quarantine", f"{row.pipeline_name}.{row.node_name}", "QUARANTINE", text, facts)


def _why(rows: Sequence[RunRecord], entry: dg.EventLogEntry, pipelines: Sequence[str]) -> str:
    """What went wrong, by node; what Dagster says of the run of ``pipelines``, if no node of it failed."""
    failed = [row for row in rows if row.status in (RunStatus.FAILURE, RunStatus.LOST)]
    if not failed:
        event = entry.dagster_event
        text = (event.message if event is not None else None) or "the run failed"
        commands = " and ".join(f"odi run {pipeline}" for pipeline in pipelines)
        return f"{text.strip().splitlines()[0]}\n→ the next run takes in what this one left: {commands}"
    texts = [f"{row.node_name}: {row.error or row.status.value}" for row in failed[:_MOST_NAMED]]
    more = len(failed) - len(texts)
    return "\n".join([*texts, *([f"and {counted(more, 'node')} more"] if more else [])])


def _alert(project: Project, event: str, subject: str, status: str, message: str, facts: Mapping[str, str]) -> Alert:
    return Alert(event, project.config.project, project.environment or "", subject, status, message, facts)
