"""A job per pipeline, and its schedule."""

from __future__ import annotations

from typing import Any

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PipelineConfig
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import asset_key

AssetJob = Any
"""What ``define_asset_job`` returns; Dagster does not export its type."""


def pipeline_job(project: Project, pipeline: PipelineConfig) -> AssetJob:
    """The job named after a pipeline: all its nodes in one process, so with one JVM.

    Raises:
        ConfigError: its nodes have different partitions, which one Dagster job cannot have.
    """
    _require_one_partitioning(pipeline)
    keys = [asset_key(NodeKey(pipeline.pipeline, node.name)) for node in pipeline.nodes]
    return dg.define_asset_job(
        pipeline.pipeline,
        selection=dg.AssetSelection.assets(*keys),
        description=pipeline.description or f"Pipeline `{pipeline.pipeline}` of {project.config.project}.",
        executor_def=dg.in_process_executor,
        tags=dict.fromkeys(pipeline.tags, ""),
    )


def pipeline_schedule(pipeline: PipelineConfig, job: AssetJob) -> dg.ScheduleDefinition:
    """The schedule of a pipeline that has one: unbounded runs, at times in UTC. It is started in the UI."""
    return dg.ScheduleDefinition(
        name=f"{pipeline.pipeline}_schedule",
        job=job,
        cron_schedule=str(pipeline.schedule),
        execution_timezone="UTC",
        description=f"Runs pipeline `{pipeline.pipeline}` at `{pipeline.schedule}` (UTC).",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )


def _require_one_partitioning(pipeline: PipelineConfig) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for node in pipeline.nodes:
        if node.partition is not None:
            seen.setdefault((node.partition.every, node.partition.start, node.partition.end), node.name)
    if len(seen) > 1:
        first, second, *_ = seen.values()
        raise ConfigError(
            f"pipeline {pipeline.pipeline}: the nodes `{first}` and `{second}` have different partitions, and the "
            "nodes of a pipeline run in one Dagster job, which has one kind of partition",
            fix="give them the same `every`, `start` and `end`, or move one of them to a pipeline of its own",
            pipeline=pipeline.pipeline,
        )
