"""Nodes as software-defined assets.

There is no ``from __future__ import annotations`` here: Dagster needs the types of :class:`NodeRunConfig`, not their
text. The assets are made of ops, not by ``@dg.asset``: that looks at the signature of each function and makes a new
schema of its configuration, which takes longer than all the rest.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig
from odi_assets.nodes.node import code_version
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FROM_TAG, TO_TAG, RunRequest, partition_label, partitions_in
from odi_assets.nodes.run_node import NodeRun, prepare
from odi_assets.orchestration.assets.checks import check_results, check_specs, up_to_date
from odi_assets.orchestration.assets.conditions import condition_of
from odi_assets.orchestration.assets.failures import remedy_first
from odi_assets.orchestration.assets.io_manager import (
    HISTORY,
    IO_MANAGER,
    SPARK,
    STATE,
    StepOutput,
    idle_nodes_shown,
)
from odi_assets.orchestration.assets.suppress_materialization import PLANNED
from odi_assets.orchestration.metadata import UP_TO_DATE, definition_attributes
from odi_assets.orchestration.naming import DagsterNames, node_of, partition_of, pool_of
from odi_assets.orchestration.partitions import (
    backfill_policy,
    partition_mapping,
    partitions_definition,
    run_part,
)
from odi_assets.orchestration.runs.selection import skipped_with

if TYPE_CHECKING:
    from odi_assets.orchestration.assets.sources import Sources
    from odi_assets.orchestration.resources import SparkResource
    from odi_assets.orchestration.runs.history import DagsterRunHistory

_TABLE = "result"
_NO_NAME = re.compile(r"\W", re.ASCII)
StepEvents = Iterator[dg.Output[StepOutput] | dg.Output[None] | dg.AssetCheckResult]


class NodeRunConfig(dg.Config):
    """What can be set for a node in the launchpad."""

    full_refresh: bool = Field(
        default=False, description="Read the sources from the beginning and replace the table, in one commit."
    )
    adopt: bool = Field(
        default=False,
        description="First take over the table and its high-water mark, where the node, the project or a source was "
        "renamed or is followed in another way: the rows are the same.",
    )
    accept_loss: bool = Field(
        default=False, description="A full refresh may remove rows from the table that its sources no longer give."
    )


_CONFIG = NodeRunConfig.to_config_schema()
_INPUT = dg.In(dg.Nothing)
_out: Callable[..., dg.Out] = cache(dg.Out)
"""The outputs of all nodes are alike, and Dagster looks at the type of each that it makes."""


def node_asset(
    project: Project,
    key: NodeKey,
    sources: "Sources | None" = None,
    *,
    partitioned: bool = True,
    checked: bool = False,
    retry_policy: dg.RetryPolicy | None = None,
) -> dg.AssetsDefinition:
    """The asset of one node: key ``[pipeline, node]``, in the group of its pipeline.

    Args:
        sources: the project's sources, for an asset that Dagster shows: with its lineage, owner, tags and description.
            None makes one that is only run.
        partitioned: False for one without the node's partitions: its runs take in what is new.
        retry_policy: when Dagster tries the step again.
        checked: with the asset check ``up_to_date``, and the checks of its rows.
    """
    names = DagsterNames.of(project)
    deps = [names.asset(above) for above in project.graph.upstream(key)]
    shown: dict[str, Any] = {}
    if sources is not None:
        deps = list(dict.fromkeys([*deps, *sources.of(key)]))
        shown = definition_attributes(project, key)
    partition = partition_of(project, key) if partitioned else None
    asset = names.asset(key)
    inputs = _by_input(deps)
    checks = {UP_TO_DATE: dg.AssetCheckSpec(UP_TO_DATE, asset=asset, description=_CHECK_TEXT)}
    checks = {**checks, **check_specs(project, key, asset)} if checked else {}
    version = code_version(project, key)
    manager, name = names.resources + IO_MANAGER, names.step(key, of_ranges=partition is not None)

    # A function, and not a `partial`: `dagster.with_source_code_references` asks for the lines of its source.
    def step(context: dg.OpExecutionContext, inputs: Mapping[str, Any]) -> StepEvents:
        del inputs
        return _step(project, key, checked, context)

    # Dagster asks for the signature of each op's function; `inspect` would work it out for each of them.
    step.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        # Dagster calls backfill policies and pools beta; the versions it is pinned to have them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        op = dg.OpDefinition(
            step,
            name,
            ins=dict.fromkeys(inputs, _INPUT),
            outs={
                _TABLE: _out(dg.Any, is_required=not checks, io_manager_key=manager),
                **{name: _out(dg.Nothing, is_required=False, io_manager_key=manager) for name in checks},
            },
            config_schema=_CONFIG,
            required_resource_keys={names.resources + resource for resource in (SPARK, STATE, HISTORY)},
            pool=pool_of(project, key, of_ranges=partition is not None),
            retry_policy=retry_policy,
        )
        spec = dg.AssetSpec(
            asset,
            deps=_mapped(project, deps, partition),
            group_name=names.pipeline(key.pipeline),
            code_version=version,
            partitions_def=partitions_definition(partition, names.partitions(key)) if partition else None,
            automation_condition=None if sources is None else condition_of(project, key, sources, deps),
            **shown,
        )
        return dg.AssetsDefinition(
            keys_by_input_name=inputs,
            keys_by_output_name={_TABLE: asset},
            node_def=op,
            check_specs_by_output_name=checks or None,
            specs=[spec],
            # So that the rows and each of the checks can be selected apart.
            can_subset=bool(checks),
            backfill_policy=backfill_policy(partition) if partition else None,
        )


_CHECK_TEXT = (
    "When it was last looked at, when it last gained rows, and up to where it has read its sources. Warns of rows that "
    "arrived at or below its high-water mark."
)


def _step(project: Project, key: NodeKey, checked: bool, context: dg.OpExecutionContext) -> StepEvents:
    """The rows of a node, and its checks; or the checks alone, of the last run, where only they are selected."""
    if _TABLE in context.selected_output_names:
        config = NodeRunConfig(**context.op_config)
        # Of checks that were not selected, nothing is reported.
        reports = checked and len(context.selected_output_names) > 1
        yield dg.Output(replace(_computed(project, key, context, config), checked=reports), _TABLE, metadata=PLANNED)
    if not checked:
        return
    # Dagster goes on here once the IO manager has committed the rows.
    names = DagsterNames.of(project)
    asset = names.asset(key)
    history: DagsterRunHistory = getattr(context.resources, names.resources + HISTORY)
    for event in (up_to_date(project, key, asset, history), *check_results(project, key, asset, history)):
        name = event.check_name if isinstance(event, dg.AssetCheckResult) else event.output_name
        if name in context.selected_output_names:
            yield event


def _mapped(
    project: Project, deps: Iterable[dg.AssetKey], partition: PartitionConfig | None
) -> list[dg.AssetKey | dg.AssetDep]:
    """What a node reads, and how its partitions go with the partitions of that."""
    mapped_deps: list[dg.AssetKey | dg.AssetDep] = list(deps)
    if partition is None:
        return mapped_deps
    for at, dep in enumerate(deps):
        above = node_of(project, dep)
        mapping = None if above is None else partition_mapping(partition, partition_of(project, above))
        if mapping is not None:
            mapped_deps[at] = dg.AssetDep(dep, partition_mapping=mapping)
    return mapped_deps


def _by_input(deps: Iterable[dg.AssetKey]) -> dict[str, dg.AssetKey]:
    deps_by_input: dict[str, dg.AssetKey] = {}
    for dep in deps:
        name = _NO_NAME.sub("_", "__".join(dep.path))
        deps_by_input[name if name not in deps_by_input else f"{name}_{len(deps_by_input)}"] = dep
    return deps_by_input


def _parameters(context: dg.OpExecutionContext, inputs: Mapping[str, Any]) -> None: ...


_SIGNATURE = inspect.signature(_parameters)


def _computed(
    project: Project,
    key: NodeKey,
    context: dg.OpExecutionContext,
    config: NodeRunConfig,
) -> StepOutput:
    prefix = project.resource_prefix
    # Without partitions in Dagster, a node takes in what is new, in a run for partitions of others too.
    partition = partition_of(project, key)
    history: DagsterRunHistory = getattr(context.resources, prefix + HISTORY)
    spark: SparkResource = getattr(context.resources, prefix + SPARK)
    with idle_nodes_shown(project, history, context.log_event):
        run = NodeRun(
            history,
            key,
            lambda: spark.spark_session,
            retry_number=context.retry_number,
            partition_key=_partition_label(context, has_partitions=partition is not None),
            gives_up=partial(skipped_with, project, key, context.job_def),
            log=context.log,
        )
        with remedy_first(context.asset_key, run), run.failures_recorded():
            names = DagsterNames.of(project)
            bounds, values = run_part(context, partition, names.partitions(key)) if partition else (None, ())
            request = RunRequest.of_run(
                context.run.tags,
                full_refresh=config.full_refresh,
                adopt=config.adopt,
                accept_loss=config.accept_loss,
                bounds=bounds,
                partitions=values,
            )
        with remedy_first(context.asset_key, run):
            return StepOutput(run, prepare(run, request))


def _partition_label(context: dg.OpExecutionContext, *, has_partitions: bool) -> str | None:
    if has_partitions and context.has_partition_key:
        return str(context.partition_key)
    if has_partitions and context.has_partition_key_range:
        return f"{context.partition_key_range.start}...{context.partition_key_range.end}"
    tags = context.run.tags
    bounds = (tags[FROM_TAG], tags[TO_TAG]) if FROM_TAG in tags and TO_TAG in tags else None
    return partition_label(bounds, partitions_in(tags))
