"""The IO manager of nodes: commits what a step computed, advances the HWM, reads tables for assets downstream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd
import pyarrow as pa

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.execution.materialize import Computed, commit
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.orchestration.assets.partitions import partition_keys, rows_by_partition
from odi_assets.orchestration.assets.suppress_materialization import suppress_materialization
from odi_assets.orchestration.metadata import materialization_metadata, observation_metadata
from odi_assets.orchestration.naming import Names, node_key
from odi_assets.orchestration.runs.history import BACKFILL_TAG, RunHistory
from odi_assets.orchestration.runs.selection import skipped_with
from odi_assets.state.records import RunStatus
from odi_assets.tables.reader import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_assets.orchestration.resources import StateResource

IO_MANAGER = "delta_io_manager"
ROW_COUNT = "dagster/partition_row_count"
SPARK, STATE, HISTORY = "spark", "state", "run_history"


@dataclass(frozen=True)
class StepOutput:
    """The output of a node's step: rows not computed yet, and the run they are for.

    ``computed`` is None for a node that a resumed run leaves out.
    """

    computed: Computed | None
    run: RunInfo
    partition_key: str | None = None


@dataclass
class DeltaIOManager(dg.IOManager):
    """Writes a node's rows in one Delta commit, then the HWM, the row of run history and the asset's metadata."""

    project: Project

    def handle_output(self, context: dg.OutputContext, obj: StepOutput) -> None:
        """Commit ``obj``. For a node that has nothing new, report an observation, not a materialization.

        Raises:
            OdiError: nothing was committed; the run history says why.
        """
        if obj.computed is None:
            suppress_materialization(context)
            return
        names = Names.of(self.project)
        history: RunHistory = getattr(context.resources, names.resource(HISTORY))
        state: StateResource = getattr(context.resources, names.resource(STATE))
        plan = obj.computed.plan
        try:
            result = commit(obj.computed, state.backend, obj.run)
        except BaseException as error:
            skipped = skipped_with(self.project, plan.node.key, context.step_context.job_def, error)
            history.fail(plan, obj.run, error, skipped, obj.partition_key)
            show_idle_nodes(self.project, history, context.log_event)
            raise
        history.finish(result, obj.run, obj.partition_key)
        self._report(context, result, obj.run)
        show_idle_nodes(self.project, history, context.log_event)

    def _report(self, context: dg.OutputContext, result: NodeResult, run: RunInfo) -> None:
        if result.status is RunStatus.NO_DATA:
            _report_nothing_new(context, result)
            return
        metadata = materialization_metadata(result)
        partition = self.project.graph.node(result.key).partition
        if partition is None:
            context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(result.table_version)))
            context.add_output_metadata(metadata)
            return
        keys = partition_keys(result.partitions, partition)
        rows = rows_by_partition(TableHandle.open(self.project.target(result.key), result.table_version), partition)
        if context.has_asset_partitions:
            context.add_output_metadata(metadata)
            for key in set(keys) & set(context.asset_partition_keys):
                context.step_context.add_asset_metadata({ROW_COUNT: rows.get(key, 0)}, context.asset_key, key)
            return
        # A run of the pipeline writes to whichever partitions its rows belong to; Dagster does not know which.
        suppress_materialization(context)
        tags = {"dagster/code_version": run.code_version} if run.code_version else None
        for key in keys:
            values = {**metadata, ROW_COUNT: rows.get(key, 0)}
            context.log_event(dg.AssetMaterialization(context.asset_key, metadata=values, partition=key, tags=tags))
        if not keys:
            context.log_event(dg.AssetObservation(context.asset_key, metadata=observation_metadata(result)))

    def load_input(self, context: dg.InputContext) -> Any:
        """The table of a node, for an asset that takes it as an argument.

        It is a Spark DataFrame, unless the argument is annotated with ``pandas.DataFrame`` or ``pyarrow.Table``. An
        asset that runs for partitions gets the rows of those.
        """
        spark = getattr(context.resources, Names.of(self.project).resource(SPARK)).spark_session
        key = node_key(context.asset_key)
        rows = read_table(spark, TableHandle.open(self.project.target(key)))
        if context.has_asset_partitions:
            rows = self._within_partitions(context, key, rows)
        wanted = context.dagster_type.typing_type
        if wanted is pd.DataFrame:
            return rows.toPandas()
        return rows.toArrow() if wanted is pa.Table else rows

    def _within_partitions(self, context: dg.InputContext, key: NodeKey, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        partition = self.project.graph.node(key).partition
        if partition is None:
            return rows
        window = context.asset_partitions_time_window
        start, end = window.start.replace(tzinfo=None), window.end.replace(tzinfo=None)
        kind = "timestamp" if partition.every == "hour" else "date"
        column = F.col(partition.column).cast(kind)
        return rows.where((column >= F.lit(start).cast(kind)) & (column < F.lit(end).cast(kind)))


def show_idle_nodes(
    project: Project, history: RunHistory, log_event: Callable[[dg.AssetMaterialization], None]
) -> None:
    """In a run in which a node failed, report nodes that had nothing to do as materialized, as they were before.

    Dagster paints each asset red that a failed run was to materialize and did not. The data version stays as it was.
    """
    results = history.results.values()
    if not any(result.status in (RunStatus.FAILURE, RunStatus.CANCELLED) for result in results):
        return
    for result in results:
        partitioned = project.graph.node(result.key).partition is not None
        if result.status is not RunStatus.NO_DATA or partitioned or result.key in history.shown_idle:
            continue
        history.shown_idle.add(result.key)
        key, tags = Names.of(project).asset(result.key), {"dagster/data_version": str(result.table_version)}
        log_event(dg.AssetMaterialization(key, metadata=observation_metadata(result), tags=tags))


def _report_nothing_new(context: dg.OutputContext, result: NodeResult) -> None:
    metadata = observation_metadata(result)
    if BACKFILL_TAG in context.step_context.dagster_run.tags:
        # For a backfill, an asset without a materialization has failed, and it gives up the assets downstream. The
        # unchanged data version says that there is nothing new.
        context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(result.table_version)))
        context.add_output_metadata(metadata)
        return
    suppress_materialization(context)
    context.log_event(dg.AssetObservation(context.asset_key, metadata=metadata))
