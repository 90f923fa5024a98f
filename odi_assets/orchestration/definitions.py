"""Dagster definitions of a project file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PipelineConfig
from odi_assets.nodes.events import Listener, nobody
from odi_assets.nodes.kinds import kind_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult
from odi_assets.orchestration.assets.io_manager import HISTORY, IO_MANAGER, SPARK, STATE, DeltaIOManager
from odi_assets.orchestration.assets.log_lag import lag_check
from odi_assets.orchestration.assets.nodes import node_asset
from odi_assets.orchestration.assets.shown.system_tables import system_tables
from odi_assets.orchestration.assets.shown.translation import ShownAs, Translation, translated
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.orchestration.automation.alerts import alert_sensor
from odi_assets.orchestration.automation.jobs import pipeline_job, pipeline_schedule, tag_job, tag_schedule
from odi_assets.orchestration.automation.sensors import condition_sensor, new_data_sensor
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.orchestration.resources import SparkResource, StateResource
from odi_assets.orchestration.runs.history import DagsterRunHistory
from odi_assets.orchestration.runs.in_flight import PROCESS_TAG, process_of_run, project_tags
from odi_assets.orchestration.runs.reconcile import repair_history
from odi_assets.util.collector import collector_paused


def build_definitions(
    project: Project,
    *,
    key_prefix: str | Sequence[str] = (),
    resource_prefix: str = "",
    executor: dg.ExecutorDefinition | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    listener: Listener = nobody,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    asset_spec: ShownAs | None = None,
) -> dg.Definitions:
    """All that Dagster shows of a project: an asset per node and per source, a job, schedule and sensor per pipeline.

    Starts no JVM and asks no source. Merge it with ``Definitions`` of your own to add assets beside the nodes, or with
    the ``Definitions`` of another project, if one of the two has other prefixes.

    Args:
        key_prefix: comes before the keys of all assets, and the names of jobs, schedules and sensors.
        resource_prefix: comes before the keys of the resources ``spark``, ``state``, ``run_history`` and
            ``delta_io_manager``, where others have these names.
        executor: of runs of assets that are picked in the UI; Dagster's own choice if None. The jobs of pipelines run
            in one process, with one JVM.
        retry_policy: when the step of a node is tried again, in any run. An attempt that failed after its commit is
            not repeated.
        listener: called for each node of a run that starts or ends, in the process of the run.
        loggers: loggers of the jobs, instead of Dagster's.
        asset_spec: gets each node with its spec, and gives the spec that Dagster is to show: with another key, group,
            owners, tags, description, metadata, kinds, automation condition or freshness policy.

    Raises:
        ConfigError: the project file asks for something that Dagster cannot show, or ``asset_spec`` changes what the
            project file decides.
    """
    with collector_paused():
        prefix = (key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix)
        named = replace(project, key_prefix=prefix, resource_prefix=resource_prefix)
        shown = translated(named, asset_spec) if asset_spec is not None else Translation(named)
        return _built(shown, executor, retry_policy, listener, loggers)


def _built(
    shown: Translation,
    executor: dg.ExecutorDefinition | None,
    retry_policy: dg.RetryPolicy | None,
    listener: Listener,
    loggers: Mapping[str, dg.LoggerDefinition] | None,
) -> dg.Definitions:
    project, sources = shown.project, Sources(shown.project)
    nodes = [
        shown.applied(key, node_asset(project, key, sources, checked=True, retry_policy=retry_policy))
        for key in project.graph.order(None)
    ]
    shared = resources(project, listener)
    pipelines = project.config.pipelines
    checks = _checks(project, pipelines)
    jobs = {pipeline.pipeline: pipeline_job(project, pipeline, sources) for pipeline in pipelines}
    tagged = {job_config.job: tag_job(project, job_config, sources) for job_config in project.config.jobs}
    sensors = [new_data_sensor(project, name, job, sources) for name, job in jobs.items()]
    if project.config.automation.default_status == "running" and any(
        node.automation is not None for pipeline in pipelines for node in pipeline.nodes
    ):
        sensors.append(condition_sensor(project))
    if project.config.alerts:
        sensors.append(alert_sensor(project, sources))
    return dg.Definitions(
        assets=[*sources.specs(), *system_tables(project), *nodes],
        asset_checks=[check for group in checks.values() for check in group],
        jobs=[*jobs.values(), *tagged.values()],
        schedules=[
            *(
                pipeline_schedule(project, pipeline, jobs[pipeline.pipeline])
                for pipeline in pipelines
                if pipeline.schedule
            ),
            *(
                tag_schedule(project, job_config, tagged[job_config.job])
                for job_config in project.config.jobs
                if job_config.schedule
            ),
        ],
        sensors=[sensor for sensor in sensors if sensor is not None],
        resources=shared,
        executor=executor,
        loggers=loggers,
    )


def build_job(
    project: Project,
    pipeline: str,
    *,
    listener: Listener = nobody,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    results: dict[NodeKey, NodeResult] | None = None,
) -> dg.JobDefinition:
    """The job of one pipeline, for a run from the shell: without what Dagster only shows.

    Args:
        listener, loggers: as of :func:`build_definitions`.
        results: gets the result of each node that ends.
    """
    config = next(candidate for candidate in project.config.pipelines if candidate.pipeline == pipeline)
    # Health has limits; the checks on rows that are given up have none, and tell the shell nothing.
    limited = any(kind_of(node).has_limits(node) or node.captures_server for node in config.nodes)
    checks = _checks(project, [config])[pipeline] if limited else []
    job = pipeline_job(project, config)
    definitions = dg.Definitions(
        assets=[node_asset(project, key, partitioned=False) for key in project.graph.order(pipeline)],
        asset_checks=checks,
        jobs=[job],
        resources=resources(project, listener, results),
        loggers=loggers,
    )
    return definitions.resolve_job_def(job.name)


def _checks(project: Project, pipelines: Iterable[PipelineConfig]) -> dict[str, list[dg.AssetChecksDefinition]]:
    """By pipeline, the checks that the kinds of its nodes add, and of nodes that capture a log, on how far they are
    behind."""
    checks_by_pipeline: dict[str, list[dg.AssetChecksDefinition]] = {}
    for pipeline in pipelines:
        nodes = {NodeKey(pipeline.pipeline, node.name): node for node in pipeline.nodes}
        own = [check for key, node in nodes.items() for check in kind_of(node).asset_checks(project, key)]
        checks_by_pipeline[pipeline.pipeline] = [
            *own,
            *(lag_check(project, key) for key, node in nodes.items() if node.captures_server),
        ]
    return checks_by_pipeline


def resources(
    project: Project, listener: Listener = nobody, results: dict[NodeKey, NodeResult] | None = None
) -> dict[str, object]:
    """The resources of nodes, by their keys. The run history puts its results into ``results``, if that is given."""
    project.share()
    names = DagsterNames.of(project)

    @dg.resource(
        required_resource_keys={names.resources + STATE},
        description="Writes a row of run history for each node of a run.",
    )
    def run_history(context: dg.InitResourceContext) -> DagsterRunHistory:
        run, instance = context.run, context.instance
        if run is None or instance is None:
            raise dg.DagsterInvariantViolationError("the run history belongs to a run, and there is none")
        process = process_of_run(instance, run)
        instance.add_run_tags(run.run_id, {**({PROCESS_TAG: process} if process else {}), **project_tags(project)})
        state: StateResource = getattr(context.resources, names.resources + STATE)
        repair_history(project, instance, state.backend)
        return DagsterRunHistory.of_run(project, state.backend, run, listener, results)

    own_resources = {
        SPARK: SparkResource(project_file=str(project.path), environment=project.chosen),
        STATE: StateResource(project_file=str(project.path), environment=project.chosen),
        HISTORY: run_history,
        IO_MANAGER: dg.IOManagerDefinition(
            lambda _: DeltaIOManager(project),
            required_resource_keys={names.resources + name for name in (SPARK, STATE, HISTORY)},
            description="Commits a node's rows to its Delta table, advances the HWM, reads tables for other assets.",
        ),
    }
    return {names.resources + name: resource for name, resource in own_resources.items()}
