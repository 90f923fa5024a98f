"""A job per pipeline, and its schedule."""

from __future__ import annotations

import dagster as dg

from odi_assets.config.models import PipelineConfig
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FULL_REFRESH_TAG, RESUME_TAG
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.orchestration.automation.pipeline_job import PipelineJob
from odi_assets.orchestration.naming import DagsterNames, partition_of
from odi_assets.orchestration.runs.in_flight import project_tags, whole_run_to_begin


def pipeline_job(project: Project, pipeline: PipelineConfig, sources: Sources | None = None) -> PipelineJob:
    """The job of a pipeline: all its nodes in one process, so with one JVM. It has no partitions: backfills run the
    assets, outside of it.

    Args:
        sources: the project's sources; None for a job that Dagster does not show.
    """
    return PipelineJob.of(
        project,
        pipeline.pipeline,
        sources,
        description=_description(project, pipeline),
        executor_def=dg.in_process_executor,
        tags={**project_tags(project), **dict.fromkeys(pipeline.tags, "")},
    )


def _has_partitions(project: Project, pipeline: PipelineConfig) -> bool:
    return any(partition_of(project, key) for key in project.graph.order(pipeline.pipeline))


def _description(project: Project, pipeline: PipelineConfig) -> str:
    text = pipeline.description or f"Pipeline `{pipeline.pipeline}` of {project.config.project}."
    if _has_partitions(project, pipeline):
        text += (
            "\n\nTo take in what is new by hand: *Open launchpad*, *Materialize*, without a partition, *Confirm*. With "
            "partitions, those are computed again and the high-water marks stay as they are."
        )
    return (
        f"{text}\n\nThe run tag `{FULL_REFRESH_TAG}: true` reads all sources from the beginning; "
        f"`{RESUME_TAG}: true` leaves out the nodes that succeeded in the last run and for which nothing changed."
    )


def pipeline_schedule(project: Project, pipeline: PipelineConfig, job: PipelineJob) -> dg.ScheduleDefinition:
    """The schedule of a pipeline that has one, in UTC. It is stopped until somebody starts it in the UI."""

    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            instance = context.instance
        except dg.DagsterInvariantViolationError:
            # A context that was made without one: there are no runs.
            return dg.RunRequest()
        waiting = whole_run_to_begin(project, instance, pipeline.pipeline)
        if waiting is not None:
            return dg.SkipReason(f"Run {waiting.run_id} of {pipeline.pipeline} has not begun; it takes in what is new.")
        return dg.RunRequest()

    return dg.ScheduleDefinition(
        name=f"{DagsterNames.of(project).pipeline(pipeline.pipeline)}_schedule",
        job=job,
        cron_schedule=str(pipeline.schedule),
        execution_timezone="UTC",
        execution_fn=evaluate,
        description=f"Runs pipeline `{pipeline.pipeline}` at `{pipeline.schedule}` (UTC).",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
