"""Runs that have not ended, whatever job they are of, and the nodes whose increments they take in."""

from __future__ import annotations

import os
from collections.abc import Iterable

import dagster as dg
import psutil

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FROM_TAG, PARTITION_TAG
from odi_assets.orchestration.naming import DagsterNames, partition_of
from odi_assets.util.process import is_gone, process_name

PROJECT_TAG = "odi/project"
"""Run tag: the project whose nodes a run materializes."""
ENVIRONMENT_TAG = "odi/environment"
"""Run tag: the environment of the run's state and history; empty for the one without a name."""
PROCESS_TAG = "odi/process"
"""Run tag that names the process of a run, as ``util.process`` does."""
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_NOT_BEGUN = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
_PART_TAGS = frozenset({FROM_TAG, PARTITION_TAG})
_PARTITION_TAGS = frozenset(
    {"dagster/partition", "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"}
)


def project_tags(project: Project) -> dict[str, str]:
    """The tags that say whose a run is. One that has not begun may have none."""
    return {PROJECT_TAG: project.config.project, ENVIRONMENT_TAG: project.environment or ""}


def is_of_other_environment(project: Project, run: dg.DagsterRun) -> bool:
    """Whether a run says that it is of another environment."""
    own = project.environment or ""
    return run.tags.get(ENVIRONMENT_TAG, own) != own


def process_of_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """The name of the process that lives as long as ``run``, of which this process executes a step.

    Executors may give each step a process of its own. Dagster notes the process that starts them. None if the steps run
    elsewhere than that process, as in containers: nothing is known of it here.
    """
    records = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
    events = (record.event_log_entry.dagster_event for record in records)
    noted = [getattr(event.event_specific_data, "metadata", {}).get("pid") for event in events if event is not None]
    pids = [int(str(pid.value)) for pid in noted if pid is not None]
    if not pids:
        return process_name()
    above = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    return process_name(pids[-1]) if pids[-1] in above else None


def end_lost_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Mark a started run as failed if its process was on this host and is gone; say whether that was so.

    A run on another host, or one that ended before it named its process, is left to Dagster's run monitoring.
    """
    process = run.tags.get(PROCESS_TAG)
    if process is None or run.status not in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING):
        return False
    if not is_gone(process):
        return False
    if run.status is dg.DagsterRunStatus.CANCELING:
        # It was to be ended, and it is.
        instance.report_run_canceled(run, f"The process of this run ({process}) is gone.")
        return True
    instance.report_run_failed(
        run, f"The process of this run ({process}) is gone; it was killed or the machine restarted."
    )
    return True


def unfinished_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """All runs that have not ended. Ends lost runs."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
    return [run for run in runs if not end_lost_run(instance, run)]


def nodes_of_job(project: Project, job: str) -> tuple[NodeKey, ...] | None:
    """The nodes of a job of the project file, by its name in Dagster; None if the job is somebody else's."""
    names = DagsterNames.of(project)
    for pipeline in project.pipelines:
        if job == names.pipeline(pipeline):
            return project.graph.order(pipeline)
    return next(
        (
            project.nodes_with(job_config.tags)
            for job_config in project.config.jobs
            if job == names.pipeline(job_config.job)
        ),
        None,
    )


def nodes_of_run(project: Project, instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[NodeKey]:
    """The nodes that a run was made to materialize."""
    nodes, steps, names = _nodes_of_job_run(project, instance, run), run.step_keys_to_execute, DagsterNames.of(project)
    # A run that goes on from the failure of another one has its steps alone.
    return nodes if not steps else [key for key in nodes if not _steps(names, key).isdisjoint(steps)]


def _steps(names: DagsterNames, key: NodeKey) -> set[str]:
    return {names.step(key, of_ranges=ranges) for ranges in (False, True)}


def _nodes_of_job_run(project: Project, instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[NodeKey]:
    nodes = nodes_of_job(project, run.job_name)
    if nodes is not None and not run.asset_selection and not run.asset_check_selection:
        return list(nodes)
    names, assets = DagsterNames.of(project), run.asset_selection
    if assets is None:
        # A job of somebody else. Dagster notes what a run will materialize before it begins.
        planned = instance.get_records_for_run(
            run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
        ).records
        assets = frozenset(record.asset_key for record in planned if record.asset_key is not None)
    return [key for key in project.graph.nodes if names.asset(key) in assets] if assets else []


def increments_in_flight(project: Project, instance: dg.DagsterInstance) -> dict[NodeKey, dg.DagsterRun]:
    """The nodes whose increment a run is about to take in or is taking in, with that run. Backfills take in none."""
    runs_by_node: dict[NodeKey, dg.DagsterRun] = {}
    for run in unfinished_runs(instance):
        if not _PART_TAGS.isdisjoint(run.tags) or is_of_other_environment(project, run):
            continue
        of_partitions = not _PARTITION_TAGS.isdisjoint(run.tags)
        for key in nodes_of_run(project, instance, run):
            # A node without partitions takes in what is new even in a run that names partitions for others.
            if not of_partitions or partition_of(project, key) is None:
                runs_by_node.setdefault(key, run)
    return runs_by_node


def whole_run_to_begin(
    project: Project, instance: dg.DagsterInstance, nodes: Iterable[NodeKey]
) -> dg.DagsterRun | None:
    """A run of all of these nodes that is requested and has not begun; it will take in all that is new."""
    wanted = set(nodes)
    for run in unfinished_runs(instance):
        bounded = not (_PART_TAGS | _PARTITION_TAGS).isdisjoint(run.tags)
        if bounded or is_of_other_environment(project, run):
            continue
        if run.status in _NOT_BEGUN and wanted <= set(nodes_of_run(project, instance, run)):
            return run
    return None
