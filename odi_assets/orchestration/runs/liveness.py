"""Runs in flight, and runs that only seem to be because their process was killed.

Dagster notices when a process dies that its code server started. A run from the shell, or one whose code server died
with it, stays "started" for ever: it would hold its pipeline's place in the pool and keep the sensor from requesting.
"""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg

from odi_assets.util.process import is_gone, process_name

IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
PROCESS_TAG = "odi/process"
"""Run tag that names the process of a run, as ``nodes.process`` does."""


def stamp_process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Note in the run which process it runs in."""
    instance.add_run_tags(run.run_id, {PROCESS_TAG: process_name()})


def end_lost_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Mark a started run as failed if it ran in a process of this host that is gone. Whether it was.

    A run on another host, or one that did not come so far as to name its process, is left to Dagster's run monitoring.
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
    """A run that has not ended, of a job or of any of these assets, as picked in the UI. Ends lost ones on the way."""
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_FLIGHT)):
        concerned = run.job_name == job_name or not set(keys).isdisjoint(run.asset_selection or ())
        if concerned and not end_lost_run(instance, run):
            return run
    return None
