"""Nodes as software-defined assets.

There is no ``from __future__ import annotations`` here: Dagster needs the type of a step's ``config``, not its text.
"""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from pydantic import Field

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.execution.materialize import NoRows, compute
from odi_assets.nodes.node import code_version
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import FROM_TAG, TO_TAG, RunRequest
from odi_assets.orchestration.assets.io_manager import HISTORY, IO_MANAGER, SPARK, STATE, StepOutput
from odi_assets.orchestration.assets.partitions import partitions_definition, run_bounds
from odi_assets.orchestration.assets.suppress_materialization import PLANNED
from odi_assets.orchestration.metadata import definition_attributes
from odi_assets.orchestration.naming import asset_key, op_name
from odi_assets.orchestration.runs.selection import skipped_with

if TYPE_CHECKING:
    from odi_assets.orchestration.assets.sources import Sources
    from odi_assets.orchestration.resources import SparkResource, StateResource
    from odi_assets.orchestration.runs.history import RunHistory

    class NodeResources(Protocol):
        """The resources a node's step asks for."""

        spark: SparkResource
        state: StateResource
        run_history: RunHistory


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


def node_asset(project: Project, key: NodeKey, sources: "Sources | None" = None) -> dg.AssetsDefinition:
    """The asset of one node: key ``[pipeline, node]``, in the group of its pipeline.

    Args:
        sources: the project's sources, for an asset that Dagster shows: with its lineage, owner, tags and description.
            None makes one that is only run.
    """

    def step(context: dg.AssetExecutionContext, config: NodeRunConfig) -> Iterator[dg.Output[StepOutput]]:
        yield dg.Output(_computed(project, key, context, config), metadata=PLANNED)

    step.__name__ = op_name(key)
    node = project.graph.node(key)
    shown: dict[str, Any] = {} if sources is None else definition_attributes(project, key)
    above = [] if sources is None else sources.of(key)
    with warnings.catch_warnings():
        # Dagster calls backfill policies and pools beta; the versions it is pinned to have them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        made: dg.AssetsDefinition = dg.asset(
            name=None,
            key=asset_key(key),
            op_tags=None,
            group_name=key.pipeline,
            code_version=code_version(project, key),
            deps=[*map(asset_key, project.graph.upstream(key)), *above],
            partitions_def=partitions_definition(node.partition) if node.partition else None,
            backfill_policy=dg.BackfillPolicy.single_run() if node.partition else None,
            io_manager_key=IO_MANAGER,
            required_resource_keys={SPARK, STATE, HISTORY},
            pool=key.pipeline,
            dagster_type=dg.Any,
            **shown,
        )(step)
        return made


def _computed(project: Project, key: NodeKey, context: dg.AssetExecutionContext, config: NodeRunConfig) -> StepOutput:
    resources: NodeResources = context.resources
    partition = _partition_label(context)
    run = resources.run_history.start(key, context.retry_number, partition)
    plan = None
    try:
        partition_config = project.graph.node(key).partition
        partitions = run_bounds(context, partition_config) if partition_config else None
        wanted = RunRequest.of_run(
            context.run.tags,
            full_refresh=config.full_refresh,
            adopt=config.adopt,
            accept_loss=config.accept_loss,
            partitions=partitions,
        )
        if wanted.adopt:
            from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption

            state = resources.state.backend
            adoption = plan_adoption(project, state, key, lambda: resources.spark.spark_session)
            if adoption is not None:
                context.log.info("%s is adopted: %s", key, "; ".join(adoption.changes))
                apply_adoption(state, adoption)
        if wanted.resume and resources.run_history.left_out(key, run) is not None:
            return StepOutput(None, run, partition)
        plan = plan_node(project, resources.state.backend, key, wanted)
        context.log.info("%s: %s", key, plan.summary)
        for loss in plan.losses:
            context.log.warning("%s: its full refresh loses %s", key, loss)
        # If nothing is new, there is no reason to start Spark.
        computed = NoRows(plan) if plan.nothing_new else compute(plan, resources.spark.spark_session)
    except BaseException as error:
        skipped = skipped_with(key, project.graph, context.job_def)
        resources.run_history.fail(plan or key, run, error, skipped, partition)
        raise
    return StepOutput(computed, run, partition)


def _partition_label(context: dg.AssetExecutionContext) -> str | None:
    if context.has_partition_key:
        return str(context.partition_key)
    if context.has_partition_key_range:
        return f"{context.partition_key_range.start}...{context.partition_key_range.end}"
    tags = context.run.tags
    return f"{tags[FROM_TAG]}...{tags[TO_TAG]}" if FROM_TAG in tags and TO_TAG in tags else None
