"""The IO manager of nodes: commits what a step computed, advances the HWM, reads tables for assets downstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from odi_assets.config.write_modes import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ChecksFailedError, ConfigError
from odi_assets.nodes.execution.materialize import Computed
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.nodes.run_node import NodeRun, finish
from odi_assets.orchestration.assets.attempts import attempt_of
from odi_assets.orchestration.assets.checks import report_stopped
from odi_assets.orchestration.assets.column_lineage import RunLineage
from odi_assets.orchestration.assets.failures import remedy_first
from odi_assets.orchestration.assets.frames import AssetTable, partition_values, write_frame
from odi_assets.orchestration.assets.inputs import INCREMENTAL, Wanted, load_increment, load_whole, require_increment
from odi_assets.orchestration.assets.partitions import PartitionSize, partition_keys, sizes_by_partition
from odi_assets.orchestration.assets.suppress_materialization import suppress_materialization
from odi_assets.orchestration.assets.words import words_of_assets
from odi_assets.orchestration.metadata import (
    STORAGE_KIND,
    materialization_metadata,
    observation_metadata,
    partition_metadata,
)
from odi_assets.orchestration.naming import DagsterNames, node_of, partition_of
from odi_assets.orchestration.runs.history import BACKFILL_TAG, DagsterRunHistory
from odi_assets.spark.death import death_named
from odi_assets.state.records import RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.config.models import PartitionConfig
    from odi_assets.connections.location import Location
    from odi_assets.orchestration.resources import SparkResource

IO_MANAGER = "delta_io_manager"
ROW_COUNT = "dagster/partition_row_count"
SPARK, STATE, HISTORY = "spark", "state", "run_history"


@dataclass(frozen=True)
class StepOutput:
    """The output of a node's step: rows not computed yet, and the run they are for; or the result of a node that a
    resumed run leaves out.

    Attributes:
        checked: the step's asset has the checks of the node's rows.
    """

    run: NodeRun
    work: Computed | NodeResult
    checked: bool = False


@dataclass
class DeltaIOManager(dg.IOManager):
    """Writes a node's rows in one Delta commit, then the HWM, the row of run history and the asset's metadata."""

    project: Project
    _reads: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = field(default_factory=dict)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit ``obj``: what a node's step gives, or the frame of an asset that is none, as its metadata says:
        ``connection``, ``path``, ``mode``, ``keys``, ``partition_column``, ``partition_by``, ``schema``.

        For a node that has nothing new, report an observation, not a materialization.

        Raises:
            dagster.Failure: nothing was committed; the run history says why.
        """
        with remedy_first(context.asset_key, obj.run if isinstance(obj, StepOutput) else None):
            if isinstance(obj, StepOutput):
                self._finish(context, obj)
            else:
                self._write_frame(context, obj)

    def _finish(self, context: dg.OutputContext, obj: StepOutput) -> None:
        if isinstance(obj.work, NodeResult):
            suppress_materialization(context)
            return
        history: DagsterRunHistory = getattr(context.resources, self.project.resource_prefix + HISTORY)
        with idle_nodes_shown(self.project, history, context.log_event):
            # A run of the shell without an instance shows its events to nobody.
            shown = obj.checked or not context.step_context.instance.is_ephemeral
            lineage = RunLineage.of(self.project, obj.run.key, obj.work, shown=shown)
            try:
                result = finish(obj.run, obj.work)
            except ChecksFailedError as error:
                if obj.checked:
                    report_stopped(context, error)
                raise
            partition = partition_of(self.project, result.key)
            if result.status is RunStatus.NO_DATA:
                _report_nothing_new(context, result)
            elif partition is not None:
                self._report_partitions(context, result, obj.run.info, partition, lineage.metadata(result))
            else:
                context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(result.table_version)))
                context.add_output_metadata({**materialization_metadata(result), **lineage.metadata(result)})

    def _report_partitions(
        self,
        context: dg.OutputContext,
        result: NodeResult,
        run: RunInfo,
        partition: PartitionConfig,
        lineage: Mapping[str, Any],
    ) -> None:
        if context.has_asset_partitions:
            for key, shown in self._by_partition(result, partition, context.asset_partition_keys).items():
                context.step_context.add_asset_metadata({**shown, **lineage}, context.asset_key, key)
            return
        # A run of the pipeline writes to whichever partitions its rows belong to; Dagster does not know which.
        suppress_materialization(context)
        tags = {"dagster/code_version": run.code_version} if run.code_version else None
        keys = partition_keys(result.partitions, partition)
        for key, shown in self._by_partition(result, partition, keys).items():
            shown = {**shown, **lineage}
            context.log_event(dg.AssetMaterialization(context.asset_key, metadata=shown, partition=key, tags=tags))
        if not keys:
            context.log_event(dg.AssetObservation(context.asset_key, metadata=observation_metadata(result)))

    def _by_partition(
        self, result: NodeResult, partition: PartitionConfig, keys: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """The metadata of each partition. The first one has the figures of the run, so that sums over events are
        right."""
        written = set(partition_keys(result.partitions, partition))
        table = TableHandle.open(self.project.target(result.key), result.table_version)
        sizes = sizes_by_partition(table, partition)
        replaces = self.project.graph.node(result.key).write.mode is WriteMode.PARTITION_OVERWRITE
        found: dict[str, dict[str, Any]] = {}
        for key in keys:
            size = sizes.get(key, PartitionSize())
            found[key] = partition_metadata(result) if found else materialization_metadata(result)
            found[key] |= {ROW_COUNT: size.rows, "partition_bytes": size.bytes, "partition_files": size.files}
            if replaces:
                found[key]["rows_written"] = size.rows if key in written else 0
        return found

    def load_input(self, context: dg.InputContext) -> Any:
        """The table of a node, or of an asset that this IO manager writes, for an asset that takes it as an argument.

        It is a Spark DataFrame, unless the argument is annotated with a frame of pandas, pyarrow or polars; these need
        no JVM. An asset that runs for partitions gets the rows of those. The metadata of the argument's ``AssetIn`` can
        ask for ``columns``, for a range (``column``, ``from``, ``to``), or with ``incremental: True`` for what was
        gained since the asset that takes it was last committed by this IO manager.

        Raises:
            dagster.Failure: the metadata is not right, the table cannot be read, or it is not known what was gained.
        """
        with remedy_first(context.asset_key):
            return self._loaded(context)

    def _loaded(self, context: dg.InputContext) -> Any:
        location, column = self._table(context)
        wanted = Wanted.by(context, column)
        with words_of_assets(by_node=node_of(self.project, context.asset_key) is not None):
            if (context.definition_metadata or {}).get(INCREMENTAL):
                return self._increment(context, location, wanted)
            return load_whole(TableHandle.open(location), wanted, lambda: self._spark(context))

    def _increment(self, context: dg.InputContext, location: Location, wanted: Wanted) -> Any:
        require_increment(context)
        upstream, reader = context.asset_key.to_user_string(), self._reader(context)
        tags = context.step_context.dagster_run.tags
        increment = load_increment(upstream, location, reader, wanted, tags, lambda: self._spark(context))
        self._reads.setdefault(_step(context.step_context), {})[upstream] = increment.reads
        return increment.rows

    def _spark(self, context: dg.InputContext | dg.OutputContext) -> SparkSession:
        resource: SparkResource = getattr(context.resources, self.project.resource_prefix + SPARK)
        found: SparkSession = resource.spark_session
        return found

    def _table(self, context: dg.InputContext) -> tuple[Location, str | None]:
        """Where the table of an input is, and the column that decides to which partition a row belongs."""
        node = node_of(self.project, context.asset_key)
        if node is not None:
            partition = self.project.graph.node(node).partition
            return self.project.target(node), partition.column if partition else None
        output = context.upstream_output
        metadata = (output.definition_metadata if output else None) or {}
        table = AssetTable.of(self.project, context.asset_key, metadata)
        return table.location, table.partition_column

    def _reader(self, context: dg.InputContext) -> AssetTable:
        """The table of the asset that takes the input."""
        step = context.step_context
        keys = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
        own = [key for key in keys if isinstance(key, dg.AssetKey)]
        outputs = [output for output in step.op_def.output_defs if output.io_manager_key == _manager_key(self.project)]
        if len(own) != 1 or not outputs:
            raise ConfigError(
                "an increment is what an asset has not committed yet, and this one is written by another IO manager",
                fix=f'give the asset io_manager_key="{_manager_key(self.project)}", or read the input whole',
            )
        return AssetTable.of(self.project, own[0], step.job_def.asset_layer.get(own[0]).metadata)

    def _write_frame(self, context: dg.OutputContext, frame: Any) -> None:
        table = AssetTable.of(self.project, context.asset_key, context.definition_metadata or {})
        reads = self._reads.pop(_step(context.step_context), {})
        attempt = attempt_of(context, reads, partition_values(context, table))
        with death_named(f"{table.key} was written"), words_of_assets():
            written, version = write_frame(table, frame, attempt, lambda: self._spark(context))
        context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(version)))
        metadata: dict[str, Any] = {
            "dagster/uri": table.location.uri,
            "dagster/storage_kind": STORAGE_KIND,
            "delta_version": version,
        }
        if written is None:
            context.log.info("%s was committed by an earlier attempt, as version %d", table.key, version)
        else:
            metadata |= {
                "dagster/row_count": written.rows_total,
                "rows_written": written.rows_written,
                "dagster/column_schema": dg.TableSchema.from_name_type_dict(dict(written.columns)),
            }
        context.add_output_metadata({name: value for name, value in metadata.items() if value is not None})


def _manager_key(project: Project) -> str:
    return project.resource_prefix + IO_MANAGER


def _step(context: Any) -> tuple[str, str]:
    return context.dagster_run.run_id, context.step.key


@contextmanager
def idle_nodes_shown(
    project: Project, history: DagsterRunHistory, log_event: Callable[[dg.AssetMaterialization], None]
) -> Iterator[None]:
    """In a run in which a node failed, report nodes that had nothing to do as materialized, as they were before.

    Dagster paints each asset red that a failed run was to materialize and did not. The data version stays as it was.
    """
    try:
        yield
    finally:
        if history.failed:
            _show_idle_nodes(project, history, log_event)


def _show_idle_nodes(
    project: Project, history: DagsterRunHistory, log_event: Callable[[dg.AssetMaterialization], None]
) -> None:
    for result in history.results.values():
        partitioned = partition_of(project, result.key) is not None
        if result.status is not RunStatus.NO_DATA or partitioned or result.key in history.shown_idle:
            continue
        history.shown_idle.add(result.key)
        key, tags = DagsterNames.of(project).asset(result.key), {"dagster/data_version": str(result.table_version)}
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
