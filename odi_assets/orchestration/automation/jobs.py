"""A job per pipeline, and its schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PipelineConfig
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FULL_REFRESH_TAG, RESUME_TAG
from odi_assets.orchestration.naming import asset_key


def pipeline_jobs(
    project: Project,
    nodes: Iterable[dg.AssetsDefinition],
    sources: Iterable[dg.AssetSpec],
    resources: Mapping[str, object],
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dict[str, dg.JobDefinition]:
    """The job of each pipeline, by the name of both: all its nodes in one process, so with one JVM.

    The jobs have the nodes' assets without their partitions. A run of a pipeline reads what is new and writes to
    whichever partitions that belongs to, and Dagster 1.13 does not run a partitioned asset below another one unless
    the run names partitions. Backfills do name them; they run the partitioned assets, outside of these jobs. It also
    lets nodes of different partitions run in one job.
    """
    unpartitioned = dg.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=None), list(nodes))
    definitions = dg.Definitions(
        assets=[*sources, *unpartitioned],
        jobs=[
            dg.define_asset_job(
                pipeline.pipeline,
                selection=dg.AssetSelection.assets(*_keys(pipeline)),
                description=_description(project, pipeline),
                executor_def=dg.in_process_executor,
                tags=dict.fromkeys(pipeline.tags, ""),
            )
            for pipeline in project.config.pipelines
        ],
        resources=resources,
        executor=dg.in_process_executor,
        loggers=loggers,
    )
    return {p.pipeline: definitions.resolve_job_def(p.pipeline) for p in project.config.pipelines}


def _description(project: Project, pipeline: PipelineConfig) -> str:
    text = pipeline.description or f"Pipeline `{pipeline.pipeline}` of {project.config.project}."
    if any(node.partition for node in pipeline.nodes):
        text += (
            "\n\nTo take in what is new by hand: *Open launchpad*, *Materialize*, without a partition. With "
            "partitions, those are computed again and the high-water marks stay where they are."
        )
    return (
        f"{text}\n\nThe run tag `{FULL_REFRESH_TAG}: true` reads all sources from the beginning; "
        f"`{RESUME_TAG}: true` leaves out the nodes that succeeded in the last run and for which nothing changed."
    )


def _keys(pipeline: PipelineConfig) -> list[dg.AssetKey]:
    return [asset_key(NodeKey(pipeline.pipeline, node.name)) for node in pipeline.nodes]


def pipeline_schedule(pipeline: PipelineConfig, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule of a pipeline that has one, at times in UTC. It is started in the UI."""
    return dg.ScheduleDefinition(
        name=f"{pipeline.pipeline}_schedule",
        job=job,
        cron_schedule=str(pipeline.schedule),
        execution_timezone="UTC",
        description=f"Runs pipeline `{pipeline.pipeline}` at `{pipeline.schedule}` (UTC).",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
