"""A job per pipeline and per entry of ``jobs``, and their schedules."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import JobConfig, PipelineConfig
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FULL_REFRESH_TAG, RESUME_TAG
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.orchestration.automation.pipeline_job import PipelineJob
from odi_assets.orchestration.naming import DagsterNames, partition_of
from odi_assets.orchestration.runs.at_once import run_executor
from odi_assets.orchestration.runs.in_flight import project_tags, whole_run_to_begin


def pipeline_job(project: Project, pipeline: PipelineConfig, sources: Sources | None = None) -> PipelineJob:
    """The job of a pipeline: all its nodes, with one JVM. It has no partitions: backfills run the
    assets, outside of it.

    Args:
        sources: the project's sources; None for a job that Dagster does not show.
    """
    text = pipeline.description or f"Pipeline `{pipeline.pipeline}` of {project.config.project}."
    nodes = project.graph.order(pipeline.pipeline)
    return _job(project, pipeline.pipeline, nodes, text, pipeline, sources)


def tag_job(project: Project, job: JobConfig, sources: Sources) -> PipelineJob:
    """The job of the nodes that have one of some tags, with one JVM."""
    text = job.description or f"Nodes of {project.config.project} with the tag `{'` or `'.join(job.tags)}`."
    return _job(project, job.job, project.nodes_with(job.tags), text, job, sources)


def _job(
    project: Project,
    name: str,
    nodes: Sequence[NodeKey],
    text: str,
    config: PipelineConfig | JobConfig,
    sources: Sources | None,
) -> PipelineJob:
    return PipelineJob.of(
        project,
        name,
        nodes,
        sources,
        description=_description(project, nodes, text, scheduled=config.schedule is not None),
        executor_def=run_executor(project),
        tags={**project_tags(project), **dict.fromkeys(config.tags, "")},
    )


_BY_SCHEDULE = "*Preview tick result*, *Continue*, *Launch all & commit tick result*"
"""What Dagster calls the buttons that run a schedule now, and ask for no partitions."""


def _description(project: Project, nodes: Sequence[NodeKey], text: str, *, scheduled: bool) -> str:
    if any(partition_of(project, key) for key in nodes):
        by_schedule = f"on the page of its schedule, {_BY_SCHEDULE}; or " if scheduled else ""
        text += (
            f"\n\nTo take in what is new by hand: {by_schedule}*Open launchpad*, *Materialize*, without a partition, "
            "*Confirm*. With partitions, those are computed again and the high-water marks stay as they are."
        )
    return (
        f"{text}\n\nThe run tag `{FULL_REFRESH_TAG}: true` reads all sources from the beginning; "
        f"`{RESUME_TAG}: true` leaves out the nodes that succeeded in the last run and for which nothing changed."
    )


def pipeline_schedule(project: Project, pipeline: PipelineConfig, job: PipelineJob) -> dg.ScheduleDefinition:
    """The schedule of a pipeline that has one."""
    zone, nodes = project.timezone_of(pipeline.pipeline), project.graph.order(pipeline.pipeline)
    return _schedule(project, pipeline.pipeline, nodes, str(pipeline.schedule), zone, job)


def tag_schedule(project: Project, config: JobConfig, job: PipelineJob) -> dg.ScheduleDefinition:
    """The schedule of a job of tags that has one."""
    zone = config.timezone or project.config.automation.timezone
    return _schedule(project, config.job, project.nodes_with(config.tags), str(config.schedule), zone, job)


def _schedule(
    project: Project, name: str, nodes: Sequence[NodeKey], cron: str, zone: str, job: PipelineJob
) -> dg.ScheduleDefinition:
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            instance = context.instance
        except dg.DagsterInvariantViolationError:
            # A context that was made without one: there are no runs.
            return dg.RunRequest()
        waiting = whole_run_to_begin(project, instance, nodes)
        if waiting is not None:
            return dg.SkipReason(f"Run {waiting.run_id} of {name} has not begun; it takes in what is new.")
        return dg.RunRequest()

    return dg.ScheduleDefinition(
        name=f"{DagsterNames.of(project).pipeline(name)}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone=zone,
        execution_fn=evaluate,
        description=f"Runs `{name}` at `{cron}` ({zone}). To run it now, with what is new: {_BY_SCHEDULE}.",
        default_status=dg.DefaultScheduleStatus[project.config.automation.default_status.upper()],
    )
