"""Dagster definitions of a project file."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.io_manager import HISTORY, IO_MANAGER, SPARK, STATE, DeltaIOManager
from odi_assets.orchestration.assets.nodes import node_asset
from odi_assets.orchestration.automation.jobs import pipeline_jobs, pipeline_schedule
from odi_assets.orchestration.resources import SparkResource, StateResource
from odi_assets.orchestration.runs.history import Listener, RunHistory, nobody
from odi_assets.orchestration.runs.reconcile import PROCESS_TAG, PROJECT_TAG, repair_history
from odi_assets.util.process import process_name


def build_definitions(
    project: Project,
    *,
    listener: Listener = nobody,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """All that Dagster shows of a project: an asset per node and per source, a job, schedule and sensor per pipeline.

    Starts no JVM. Merge it with ``Definitions`` of your own to add assets beside the nodes.

    Args:
        listener: called for each node of a run that starts or ends, in the process of the run.
        loggers: loggers of the jobs, instead of Dagster's.

    Raises:
        ConfigError: the project file asks for something that Dagster cannot show.
    """
    from odi_assets.orchestration.assets.sources import Sources
    from odi_assets.orchestration.automation.sensors import new_data_sensor

    sources = Sources(project)
    assets: list[dg.AssetSpec | dg.AssetsDefinition] = [
        *sources.specs(),
        *(node_asset(project, key, sources) for key in project.graph.order(None)),
    ]
    shared = resources(project, listener)
    checks = _checks(project)
    jobs = pipeline_jobs(project, project.config.pipelines, assets, shared, loggers, checks=checks)
    sensors = [new_data_sensor(project, name, job) for name, job in jobs.items()]
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=list(jobs.values()),
        schedules=[pipeline_schedule(p, jobs[p.pipeline]) for p in project.config.pipelines if p.schedule],
        sensors=[sensor for sensor in sensors if sensor is not None],
        resources=shared,
        # Assets picked in the UI run outside a pipeline's job; they share one JVM too.
        executor=dg.in_process_executor,
        loggers=loggers,
    )


def build_job(
    project: Project,
    pipeline: str,
    *,
    listener: Listener = nobody,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.JobDefinition:
    """The job of one pipeline, for a run from the shell: without what Dagster only shows.

    Args as of :func:`build_definitions`.
    """
    nodes = [node_asset(project, key) for key in project.graph.order(pipeline)]
    config = next(one for one in project.config.pipelines if one.pipeline == pipeline)
    shared = resources(project, listener)
    has_limits = any(node.stream and node.stream.health for node in config.nodes)
    checks = _checks(project, pipeline) if has_limits else []
    return pipeline_jobs(project, [config], nodes, shared, loggers, described=False, checks=checks)[pipeline]


def _checks(project: Project, pipeline: str | None = None) -> list[dg.AssetChecksDefinition]:
    """The checks of stream nodes: on the rows that they give up, and on their health where it has limits."""
    from odi_assets.orchestration.assets.kept_rows import kept_rows_checks
    from odi_assets.orchestration.assets.stream_health import health_check

    streams = {key: s for key in project.graph.order(pipeline) if (s := project.graph.node(key).stream)}
    kept = [check for key in streams for check in kept_rows_checks(project, key)]
    return kept + [health_check(project, key) for key, stream in streams.items() if stream.health]


def resources(project: Project, listener: Listener = nobody) -> dict[str, object]:
    """The resources of nodes, by their keys."""
    project.share()

    @dg.resource(required_resource_keys={STATE}, description="Writes a row of run history for each node of a run.")
    def run_history(context: dg.InitResourceContext) -> RunHistory:
        run, instance = context.run, context.instance
        if run is None or instance is None:
            raise dg.DagsterInvariantViolationError("the run history belongs to a run, and there is none")
        instance.add_run_tags(run.run_id, {PROCESS_TAG: process_name(), PROJECT_TAG: project.config.project})
        state: StateResource = getattr(context.resources, STATE)
        repair_history(project, instance, state.backend)
        return RunHistory(project, state.backend, run, listener)

    return {
        SPARK: SparkResource(project_file=str(project.path)),
        STATE: StateResource(project_file=str(project.path)),
        HISTORY: run_history,
        IO_MANAGER: dg.IOManagerDefinition(
            lambda _: DeltaIOManager(project),
            required_resource_keys={SPARK, STATE, HISTORY},
            description="Commits a node's rows to its Delta table, advances the HWM, reads tables for other assets.",
        ),
    }
