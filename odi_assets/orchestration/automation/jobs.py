"""A job per pipeline, and its schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PipelineConfig
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FULL_REFRESH_TAG, RESUME_TAG
from odi_assets.orchestration.assets.nodes import node_asset
from odi_assets.orchestration.naming import DagsterNames, partition_of
from odi_assets.orchestration.runs.in_flight import project_tags, whole_run_to_begin

Job = dg.JobDefinition | UnresolvedAssetJobDefinition


def pipeline_jobs(
    project: Project,
    pipelines: Sequence[PipelineConfig],
    resources: Mapping[str, object],
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    assets: Mapping[NodeKey, dg.AssetsDefinition] | None = None,
    checks: Mapping[str, Sequence[dg.AssetChecksDefinition]] | None = None,
) -> dict[str, Job]:
    """The job of each of ``pipelines``, by its name: all nodes of the pipeline in one process, so with one JVM.

    Args:
        assets: the nodes, for jobs that Dagster shows; None for those that are only run.
        checks: by pipeline, what runs after the nodes that they are of.

    In these jobs, the nodes' assets have no partitions. A run of a pipeline reads what is new and writes to whichever
    partitions that belongs to, and Dagster 1.13 runs a partitioned asset downstream of another one only if the run
    names partitions. Backfills name them: they run the partitioned assets, outside of these jobs. So the job of a
    pipeline with partitioned nodes gets assets of its own; without partitions, one job can hold nodes with different
    ones.
    """
    names = DagsterNames.of(project)
    jobs: dict[str, Job] = {
        one.pipeline: dg.define_asset_job(
            names.pipeline(one.pipeline),
            selection=dg.AssetSelection.assets(*map(names.asset, project.graph.order(one.pipeline))),
            description=_description(project, one) if assets is not None else None,
            executor_def=dg.in_process_executor,
            tags={**project_tags(project), **dict.fromkeys(one.tags, "")},
        )
        for one in pipelines
    }
    apart = [p.pipeline for p in pipelines if assets is None or _has_partitions(project, p)]
    if not apart:
        return jobs
    shown = {} if assets is None else {key: asset for key, asset in assets.items() if not asset.partitions_def}
    nodes = [key for name in apart for key in project.graph.order(name)]
    definitions = dg.Definitions(
        # Dagster wants each op to be defined once.
        assets=[
            shown.get(key) or node_asset(project, key, partitioned=False, checked=assets is not None) for key in nodes
        ],
        asset_checks=[check for name in apart for check in (checks or {}).get(name, ())],
        jobs=[jobs[name] for name in apart],
        resources=resources,
        loggers=loggers,
    )
    return jobs | {name: definitions.resolve_job_def(names.pipeline(name)) for name in apart}


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


def pipeline_schedule(project: Project, pipeline: PipelineConfig, job: Job) -> dg.ScheduleDefinition:
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
