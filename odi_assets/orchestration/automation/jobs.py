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
    pipelines: Iterable[PipelineConfig],
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
    resources: Mapping[str, object],
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    *,
    described: bool = True,
    checks: Iterable[dg.AssetChecksDefinition] = (),
) -> dict[str, dg.JobDefinition]:
    """The job of each of ``pipelines``, by its name: all nodes of the pipeline in one process, so with one JVM.

    Args:
        assets: the nodes of these pipelines, and the sources to show beside them.
        described: False for jobs that nobody looks at.
        checks: run in the jobs after the nodes that they are of.

    In these jobs, the nodes' assets have no partitions. A run of a pipeline reads what is new and writes to whichever
    partitions that belongs to, and Dagster 1.13 runs a partitioned asset downstream of another one only if the run
    names partitions. Backfills name them: they run the partitioned assets, outside of these jobs. Without partitions,
    one job can also hold nodes with different ones.
    """
    pipelines = list(pipelines)
    keys = {p.pipeline: [asset_key(NodeKey(p.pipeline, node.name)) for node in p.nodes] for p in pipelines}
    definitions = dg.Definitions(
        assets=dg.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=None), list(assets)),
        asset_checks=list(checks),
        jobs=[
            dg.define_asset_job(
                pipeline.pipeline,
                selection=dg.AssetSelection.assets(*keys[pipeline.pipeline]),
                description=_description(project, pipeline) if described else None,
                executor_def=dg.in_process_executor,
                tags=dict.fromkeys(pipeline.tags, ""),
            )
            for pipeline in pipelines
        ],
        resources=resources,
        executor=dg.in_process_executor,
        loggers=loggers,
    )
    return {p.pipeline: definitions.resolve_job_def(p.pipeline) for p in pipelines}


def _description(project: Project, pipeline: PipelineConfig) -> str:
    text = pipeline.description or f"Pipeline `{pipeline.pipeline}` of {project.config.project}."
    if any(node.partition for node in pipeline.nodes):
        text += (
            "\n\nTo take in what is new by hand: *Open launchpad*, *Materialize*, without a partition. With "
            "partitions, those are computed again and the high-water marks stay as they are."
        )
    return (
        f"{text}\n\nThe run tag `{FULL_REFRESH_TAG}: true` reads all sources from the beginning; "
        f"`{RESUME_TAG}: true` leaves out the nodes that succeeded in the last run and for which nothing changed."
    )


def pipeline_schedule(pipeline: PipelineConfig, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule of a pipeline that has one, in UTC. It is stopped until somebody starts it in the UI."""
    return dg.ScheduleDefinition(
        name=f"{pipeline.pipeline}_schedule",
        job=job,
        cron_schedule=str(pipeline.schedule),
        execution_timezone="UTC",
        description=f"Runs pipeline `{pipeline.pipeline}` at `{pipeline.schedule}` (UTC).",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
