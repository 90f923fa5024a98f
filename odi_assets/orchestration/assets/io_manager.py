"""The IO manager of nodes: commits what a step computed, advances the HWM, reads tables for assets downstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

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
from odi_assets.orchestration.assets.frames import AssetTable, chosen_partitions, write_frame
from odi_assets.orchestration.assets.inputs import INCREMENTAL, Wanted, load_increment, load_whole, require_increment
from odi_assets.orchestration.assets.suppress_materialization import suppress_materialization, without_placeholder
from odi_assets.orchestration.assets.words import words_of_assets
from odi_assets.orchestration.metadata import (
    STORAGE_KIND,
    materialization_metadata,
    observation_metadata,
    partition_metadata,
    versions_read,
)
from odi_assets.orchestration.naming import DagsterNames, node_of, partition_of
from odi_assets.orchestration.partitions import PartitionKeys, PartitionSize, add_partitions
from odi_assets.orchestration.runs.history import BACKFILL_TAG, DagsterRunHistory
from odi_assets.spark.death import death_named
from odi_assets.state.records import RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.config.models import PartitionConfig
    from odi_assets.connections.location import Location
    from odi_assets.orchestration.assets.chosen_partitions import ChosenPartitions
    from odi_assets.orchestration.resources import SparkResource
    from odi_assets.tables.engine import WriteResult

IO_MANAGER = "delta_io_manager"
OUTSIDE = "rows_outside_partitions"
"""Rows of a run that belong to no partition in Dagster, in the event of the first that it wrote."""
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


@dataclass(frozen=True)
class IncrementRead:
    """From where, and up to where, a step has read the table of an incremental input, as commits note it."""

    began: Mapping[str, Any] | None
    reads: Mapping[str, Any]


@dataclass
class DeltaIOManager(dg.IOManager):
    """Writes a node's rows in one Delta commit, then the HWM, the row of run history and the asset's metadata."""

    project: Project
    _reads: dict[tuple[str, str], dict[str, IncrementRead]] = field(default_factory=dict)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit ``obj``: what a node's step gives, or the frame of an asset that is none, as its metadata says:
        ``connection``, ``path``, ``mode``, ``keys``, ``partition_column``, ``partition_by``, ``schema``.

        For a node that has nothing new, report an observation, not a materialization.

        Raises:
            dagster.Failure: nothing was committed; the run history says why.
        """
        without_placeholder(context)
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
            if partition is not None:
                table = TableHandle.open(self.project.target(result.key), result.table_version)
                name = DagsterNames.of(self.project).partitions(result.key)
                add_partitions(context.step_context.instance, name, partition, table)
            if result.status is RunStatus.NO_DATA:
                self._report_nothing_new(context, result, partition, obj.run.info)
                return
            made_of = {**versions_read(self.project, result), **lineage.metadata(result)}
            if partition is not None:
                self._report_partitions(context, result, obj.run.info, partition, made_of)
            else:
                context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(result.table_version)))
                context.add_output_metadata({**materialization_metadata(result), **made_of})

    def _report_partitions(
        self,
        context: dg.OutputContext,
        result: NodeResult,
        run: RunInfo,
        partition: PartitionConfig,
        made_of: Mapping[str, Any],
    ) -> None:
        table = TableHandle.open(self.project.target(result.key), result.table_version)
        keys_of = PartitionKeys(partition, table.columns)
        if context.has_asset_partitions:
            asked = list(map(str, context.asset_partition_keys))
            for key, shown in _by_partition(result, table, keys_of, asked).items():
                context.step_context.add_asset_metadata({**shown, **made_of}, context.asset_key, key)
            return
        # A run of the pipeline writes to whichever partitions its rows belong to; Dagster does not know which.
        suppress_materialization(context)
        keys = keys_of.of_all(result.partition_rows)
        metadata_by_key = _by_partition(result, table, keys_of, keys)
        _log_partitions(context, run, {key: {**shown, **made_of} for key, shown in metadata_by_key.items()})
        if not keys:
            context.log_event(dg.AssetObservation(context.asset_key, metadata=observation_metadata(result)))

    def _report_nothing_new(
        self, context: dg.OutputContext, result: NodeResult, partition: PartitionConfig | None, run: RunInfo
    ) -> None:
        """Report an observation; and the table as materialized where Dagster has to know of it."""
        metadata, instance = observation_metadata(result), context.step_context.instance
        # Runs of a shell that had no instance, or of another instance, have loaded what Dagster knows nothing of.
        has_table = result.table_version is not None and not instance.is_ephemeral
        is_known = not has_table or instance.get_latest_materialization_event(context.asset_key) is not None
        # For a backfill, an asset without a materialization has failed, and it gives up the assets downstream. The
        # unchanged data version says that there is nothing new.
        if BACKFILL_TAG in context.step_context.dagster_run.tags or (partition is None and not is_known):
            context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(result.table_version)))
            context.add_output_metadata(metadata)
            return
        suppress_materialization(context)
        context.log_event(dg.AssetObservation(context.asset_key, metadata=metadata))
        if partition is None or is_known or context.has_asset_partitions:
            return
        table = TableHandle.open(self.project.target(result.key), result.table_version)
        sizes = PartitionKeys(partition, table.columns).sizes(table)
        _log_partitions(context, run, {key: {**partition_metadata(result), **sizes[key].metadata} for key in sizes})

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
        location, columns = self._table(context)
        wanted = Wanted.by(context, columns)
        with words_of_assets(by_node=node_of(self.project, context.asset_key) is not None):
            if (context.definition_metadata or {}).get(INCREMENTAL):
                return self._increment(context, location, wanted)
            return load_whole(TableHandle.open(location), wanted, lambda: self._spark(context))

    def _increment(self, context: dg.InputContext, location: Location, wanted: Wanted) -> Any:
        require_increment(context)
        upstream, reader = context.asset_key.to_user_string(), self._reader(context)
        tags = context.step_context.dagster_run.tags
        increment = load_increment(upstream, location, reader, wanted, tags, lambda: self._spark(context))
        read = IncrementRead(increment.began, increment.reads)
        self._reads.setdefault(_step(context.step_context), {})[upstream] = read
        return increment.rows

    def _spark(self, context: dg.InputContext | dg.OutputContext) -> SparkSession:
        resource: SparkResource = getattr(context.resources, self.project.resource_prefix + SPARK)
        session: SparkSession = resource.spark_session
        return session

    def _table(self, context: dg.InputContext) -> tuple[Location, Mapping[str, str]]:
        """Where the table of an input is, and by dimension the column that decides to which partition a row belongs."""
        node = node_of(self.project, context.asset_key)
        if node is not None:
            partition = self.project.graph.node(node).partition
            columns = partition.columns if partition else ()
            return self.project.target(node), dict(zip(columns if len(columns) > 1 else ("",), columns, strict=False))
        output = context.upstream_output
        metadata = (output.definition_metadata if output else None) or {}
        table = AssetTable.of(self.project, context.asset_key, metadata)
        return table.location, table.partition_columns

    def _reader(self, context: dg.InputContext) -> AssetTable:
        """The table of the asset that takes the input."""
        step = context.step_context
        keys = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
        own = [key for key in keys if isinstance(key, dg.AssetKey)]
        outputs = [output for output in step.op_def.output_defs if output.io_manager_key == _manager_key(self.project)]
        if len(own) > 1 and outputs:
            raise ConfigError(
                f"an increment is what an asset has not committed yet, and {step.op_def.name} writes {len(own)} assets "
                "in commits of their own",
                fix="make an asset of each output, or read the input whole",
            )
        if len(own) != 1 or not outputs:
            raise ConfigError(
                "an increment is what an asset has not committed yet, and this one is written by another IO manager",
                fix=f'give the asset io_manager_key="{_manager_key(self.project)}", or read the input whole',
            )
        return AssetTable.of(self.project, own[0], step.job_def.asset_layer.get(own[0]).metadata)

    def _write_frame(self, context: dg.OutputContext, frame: Any) -> None:
        table = AssetTable.of(self.project, context.asset_key, context.definition_metadata or {})
        reads = self._reads.pop(_step(context.step_context), {})
        now = {upstream: read.reads for upstream, read in reads.items()}
        attempt = attempt_of(context, now, chosen_partitions(context, table))
        began = {upstream: read.began for upstream, read in reads.items()}
        with death_named(f"{table.key} was written"), words_of_assets():
            written, version = write_frame(table, frame, attempt, lambda: self._spark(context), began)
        context.step_context.set_data_version(context.asset_key, dg.DataVersion(str(version)))
        metadata: dict[str, Any] = {
            "dagster/uri": table.location.uri,
            "dagster/storage_kind": STORAGE_KIND,
            "delta_version": version,
        }
        if written is None:
            message = "%s was committed by an earlier attempt, as version %d; a new run commits once more"
            context.log.warning(message, table.key, version)
        else:
            metadata |= {
                "dagster/row_count": written.rows_total,
                "dagster/column_schema": dg.TableSchema.from_name_type_dict(dict(written.columns)),
            }
        context.add_output_metadata({name: value for name, value in metadata.items() if value is not None})
        if written is not None:
            _report_rows(context, table, written, attempt.chosen)


def _log_partitions(context: dg.OutputContext, run: RunInfo, metadata_by_key: Mapping[str, Mapping[str, Any]]) -> None:
    """Report partitions as materialized by a run that Dagster takes for one of the whole asset."""
    tags = {"dagster/code_version": run.code_version} if run.code_version else None
    for key, shown in metadata_by_key.items():
        context.log_event(dg.AssetMaterialization(context.asset_key, metadata=shown, partition=key, tags=tags))


def _by_partition(
    result: NodeResult, table: TableHandle, keys_of: PartitionKeys, keys: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The metadata of each partition. The first one has the figures of the run, so that sums over events are right."""
    written, sizes = keys_of.rows(result.partition_rows), keys_of.sizes(table)
    rest = (result.rows_written or 0) - sum(written.get(key, 0) for key in keys)
    metadata_by_key: dict[str, dict[str, Any]] = {}
    for key in keys:
        metadata_by_key[key] = partition_metadata(result) if metadata_by_key else materialization_metadata(result)
        metadata_by_key[key] |= {"rows_written": written.get(key, 0), **sizes.get(key, PartitionSize()).metadata}
    if keys and rest:
        metadata_by_key[keys[0]][OUTSIDE] = rest
    return metadata_by_key


def _report_rows(
    context: dg.OutputContext, table: AssetTable, written: WriteResult, chosen: ChosenPartitions | None
) -> None:
    """Report what was written: of each partition its own rows, and all where nothing says which rows are whose."""
    keys = sorted(map(str, context.asset_partition_keys)) if context.has_asset_partitions else []
    if not keys:
        context.add_output_metadata({"rows_written": written.rows_written})
        return
    if chosen is None or not set(chosen.columns) <= set(table.partition_by):
        metadata_by_key = {key: {"rows_written": written.rows_written if key == keys[0] else 0} for key in keys}
    else:
        handle = TableHandle.open(table.location, written.version)
        counts = chosen.rows_by_key(zip(written.partitions, written.partition_rows, strict=True), handle.columns)
        metadata_by_key = {key: {"rows_written": counts.get(key, 0), **PartitionSize().metadata} for key in keys}
        for file in handle.live_files:
            if (key := chosen.key_of(file.partition, handle.columns)) is not None:
                of_file = PartitionSize(file.rows or 0, file.size, 1).metadata
                metadata_by_key[key].update(
                    {name: metadata_by_key[key][name] + value for name, value in of_file.items()}
                )
        if rest := written.rows_written - sum(counts.get(key, 0) for key in keys):
            metadata_by_key[keys[0]][OUTSIDE] = rest
    for key, shown in metadata_by_key.items():
        context.step_context.add_asset_metadata(shown, context.asset_key, key)


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
