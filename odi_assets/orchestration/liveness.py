"""Runs in flight, and runs that only seem to be because their process was killed.

Dagster notices when a process dies that its code server started. A run from the shell, or one whose code server died
with it, stays "started" for ever: it would hold its pipeline's place in the pool and keep the sensor from requesting.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path

import dagster as dg

IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
PROCESS_TAG = "odi/process"
"""Run tag that names the process of a run: ``host/pid/start``. A pid alone may belong to another process by now."""


def stamp_process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Note in the run which process it runs in."""
    instance.add_run_tags(run.run_id, {PROCESS_TAG: process_name(os.getpid())})


def end_lost_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Mark a started run as failed if it ran in a process of this host that is gone. Whether it was.

    A run on another host, or one that did not come so far as to name its process, is left to Dagster's run monitoring.
    """
    process = run.tags.get(PROCESS_TAG)
    if process is None or run.status not in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING):
        return False
    host, pid, _ = process.rsplit("/", 2)
    if host != socket.gethostname() or process_name(int(pid)) == process:
        return False
    instance.report_run_failed(
        run, f"The process of this run (pid {pid}) is gone; it was killed or the machine restarted."
    )
    return True


def run_in_flight(instance: dg.DagsterInstance, job_name: str, keys: Collection[dg.AssetKey]) -> dg.DagsterRun | None:
    """A run that has not ended, of a job or of any of these assets, as picked in the UI. Ends lost ones on the way."""
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_FLIGHT)):
        concerned = run.job_name == job_name or not set(keys).isdisjoint(run.asset_selection or ())
        if concerned and not end_lost_run(instance, run):
            return run
    return None


def process_name(pid: int) -> str:
    """A process of this host, by a name that no later process has."""
    return f"{socket.gethostname()}/{pid}/{_start(pid)}"


def _start(pid: int) -> str:
    """When a process started, in the system's ticks; ``running`` where it does not tell, empty if it is gone."""
    if not Path("/proc/self/stat").exists():
        return "running" if _answers(pid) else ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program, in parentheses, may hold spaces and parentheses (man proc, /proc/pid/stat, field 22).
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
