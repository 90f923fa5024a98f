"""The steps of a materialization once its plan is made: read, transform, commit, advance. ``run_node`` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odi_assets.config.compared_columns import known_rows
from odi_assets.config.spark_settings import REQUIRED_CONF
from odi_assets.delta.commit import Stamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.execution.advance import advance, end_hwm
from odi_assets.nodes.execution.deduplicate import each_once, without_loaded
from odi_assets.nodes.execution.deliveries import DELIVERY, are_mixed, numbered, repeats_placed
from odi_assets.nodes.execution.errors import computation_named
from odi_assets.nodes.execution.kept_aside import KnownKeys
from odi_assets.nodes.execution.kept_values import with_kept_values
from odi_assets.nodes.execution.ordering import require_typed_order
from odi_assets.nodes.execution.outcomes import succeeded
from odi_assets.nodes.execution.parts.newer_rows import Replacing, newer_rows_guard
from odi_assets.nodes.execution.parts.outside_partitions import in_partitions_only
from odi_assets.nodes.execution.resolve import resolve
from odi_assets.nodes.execution.row_counts import RowCounts
from odi_assets.nodes.kinds import CommitsItself, OpenedStore, Service, open_node_store
from odi_assets.nodes.planning.partition_column import require_partition_column
from odi_assets.nodes.planning.plan import NodePlan, ResolvedPlan
from odi_assets.nodes.planning.readers import has_readers_of_old_log
from odi_assets.nodes.remedies import remedies_named
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.spark.call_sites import without_call_sites
from odi_assets.spark.death import death_named
from odi_assets.state.backend import StateBackend
from odi_assets.tables.engine import WriteResult, engine_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.nodes.execution.checks.guard import Guard
    from odi_assets.spark.own_session import OwnSession
    from odi_assets.tables.parts import TableParts


@dataclass(frozen=True)
class NodeRows:
    """A node's rows, not computed yet, with the plan they come from.

    Attributes:
        spark: the session that the node was given.
        own: the clone of it that they were made in, and are to be computed in; None if they were made in ``spark``.
        store: the state store that the node's function changed.
        inputs: what the node's transform was given, by name.
        transformed: what it made of that; None if the node has none.
    """

    plan: ResolvedPlan
    df: DataFrame
    counts: RowCounts
    spark: SparkSession
    own: OwnSession | None = None
    store: OpenedStore | None = None
    inputs: Mapping[str, DataFrame] = field(default_factory=dict)
    transformed: DataFrame | None = None

    def open_spark(self) -> SparkSession:
        """The session that the node was given."""
        return self.spark


@dataclass(frozen=True)
class ArrowRows:
    """A node's rows, which are here, with the plan they come from.

    Attributes:
        open_spark: gives the session, for what Arrow cannot write.
    """

    plan: ResolvedPlan
    rows: pa.Table | TableParts
    open_spark: Callable[[], SparkSession]
    counts: RowCounts


@dataclass(frozen=True)
class NoRows:
    """There is nothing to do for ``plan``: its sources gained nothing, or the target has all of their rows."""

    plan: NodePlan


Computed = NodeRows | ArrowRows | NoRows | CommitsItself
"""What a plan comes to. The batches of a stream commit themselves, one after the other."""


def arrow_rows(plan: NodePlan, open_spark: Callable[[], SparkSession]) -> ArrowRows | NoRows | None:
    """The rows that ``plan`` names, read without Spark; None if only Spark can read them, or check them."""
    config = plan.node.config
    if len(plan.reads) != 1 or config.checks or (config.partition is not None and config.partition.listed):
        return None
    with remedies_named(plan.node):
        if plan.node.config.apply is None:
            read_and_rows = plan.reads[0].without_spark()
        else:
            from odi_assets.nodes.execution.apply_here import applied_here

            read_and_rows = applied_here(plan)
    if read_and_rows is None:
        return None
    read, rows = read_and_rows
    resolved = ResolvedPlan.of(plan, (read,), plan.write)
    if resolved.nothing_new:
        return NoRows(resolved)
    counts = RowCounts.of(resolved)
    counts.known[read.name] = rows.num_rows if read.rows_known is None else read.rows_known
    return ArrowRows(resolved, rows, open_spark, counts)


def compute(plan: NodePlan, spark: SparkSession, service: Service | None = None) -> Computed:
    """Read and transform what ``plan`` names. Lazy, except for what has to be resolved first.

    A node with code of its own gets a session of its own: a clone of ``spark``, until its rows are written.

    Args:
        service: of a run that goes on until it is stopped: it waits for what is new.

    Raises:
        IncrementError: rows have no cursor.
        ConfigError, TransformError, SourceError, TableError: the sources or the transform are not right.
        SparkDiedError: the JVM died, or had no memory left.
    """
    if plan.nothing_new and service is None:
        return NoRows(plan)
    with remedies_named(plan.node), death_named(f"{plan.node} ran"), without_call_sites():
        own = plan.node.kind.rows(plan, spark) if service is None else service.rows(plan, spark)
        return _computed(plan, spark) if own is None else own


def _computed(plan: NodePlan, spark: SparkSession) -> NodeRows | NoRows:
    node, own = plan.node, None
    if node.config.transform or any(spark.conf.get(key, None) != value for key, value in REQUIRED_CONF.items()):
        from odi_assets.spark.own_session import OwnSession

        own = OwnSession(spark)
    with own or nullcontext(), computation_named(node, plan.reads):
        resolved = resolve(plan, spark)
        df, within, counts = None, resolved.write.within, RowCounts.of(resolved)
        opened: list[OpenedStore] = []
        sources: dict[str, DataFrame] = {}
        made: DataFrame | None = None
        if not resolved.nothing_new:
            sources = {read.name: counts.watch(read, read.load(spark)) for read in resolved.reads}
            for read in resolved.reads:
                if read.follows and read.snapshot.format != "delta":
                    # A Delta table has its columns in its log: the plan has looked at them.
                    require_partition_column(node, read.label, sources[read.name].columns)
            require_typed_order(resolved, sources)
            resolved = with_kept_values(resolved, sources, spark)
            if node.config.apply is not None:
                from odi_assets.nodes.execution.apply import applied

                df = applied(next(iter(sources.values())), resolved, spark)
            elif node.config.transform is None and len(sources) == 1:
                (df,) = sources.values()
                df = numbered(df, resolved)
            else:
                from odi_assets.nodes.execution.transform import transformed

                open_store = _store_opener(resolved, opened)
                df = made = transformed(spark, node.config, node.project.root, sources, str(node), open_store)
        if within is not None and df is not None:
            df = within.where(df)
        if df is not None:
            df = in_partitions_only(KnownKeys.of(node).required_of(df), resolved)
        if df is not None and known_rows(node.config):
            df = each_once(df, resolved)
        overlaps = [read.overlap for read in resolved.reads if read.overlap is not None]
        if df is not None and overlaps and resolved.write.mode.traits.keeps_stored_rows:
            df = without_loaded(df, resolved, overlaps[0], spark)
        if df is not None:
            if counts.observed:
                counts.keep_those_in(df)
            return NodeRows(resolved, df, counts, spark, own, opened[0] if opened else None, sources, made)
    if own is not None:
        own.close()
    return NoRows(replace(resolved, nothing_new=True))


def _store_opener(plan: ResolvedPlan, opened: list[OpenedStore]) -> Callable[[], object]:
    def open_store() -> object:
        opened.append(open_node_store(plan))
        return opened[0].store

    return open_store


def commit_once(rows: NodeRows | ArrowRows, state: StateBackend, run: RunInfo) -> NodeResult:
    """Write ``rows`` and their HWM in one commit.

    Raises:
        TableConflictError: another commit changed what this write had read; nothing was written.
        FencedError: another run committed this increment first; nothing was written.
    """
    plan = rows.plan
    facts = plan.commit_facts(run).to_json()
    store = rows.store if isinstance(rows, NodeRows) else None
    if store is not None:
        facts["store"] = store.stage()
    guard, replacing = None, newer_rows_guard(plan)
    engine = engine_of(plan.target)
    if replacing is not None and not engine.admits:
        raise ConfigError(
            f"{plan.node}: the table engine `{plan.target.location.table_engine}` does not say which rows the run "
            f"{plan.request.part} would replace, and newer ones may be among them",
            fix=f"load all of it: odi run {plan.node.command} --full-refresh; nothing was committed",
            node=str(plan.node),
        )
    if plan.node.config.checks:
        from odi_assets.nodes.execution.checks.guard import Guard

        if not engine.admits:
            raise ConfigError(
                f"{plan.node} has checks, and the table engine `{plan.target.location.table_engine}` makes none",
                fix="check the rows in a node whose connection has another `table_engine`; nothing was committed",
                node=str(plan.node),
            )
        guard = Guard(plan)

    def late() -> Mapping[str, Any]:
        for read in plan.reads if plan.moves_hwm else ():
            read.once_read()
        return {} if guard is None else guard.facts()

    keeps = partial(has_readers_of_old_log, plan.node.project, state, plan.target.location)
    fences = not plan.request.is_bounded
    stamp = Stamp(plan.write.app_id, plan.write.number, facts, fences=fences, late_facts=late, keeps_log=keeps)
    if plan.moves_hwm:
        for read in plan.reads:
            read.before_commit()
            if read.keep is not None:
                read.keep()
    written, rows_read = _written(rows, stamp, guard, replacing)
    table = plan.target if plan.target.exists else TableHandle.open(plan.target.location, written.version)
    if guard is not None:
        guard.committed(written.version)
    if plan.ends_hwm:
        end_hwm(plan, state)
    elif plan.moves_hwm:
        advance(plan, state, plan.hwm_after, written.version, run.run_id, plan.origin(table.table_id))
        for read in plan.reads:
            read.after_commit()
    if store is not None:
        store.publish()
    result = succeeded(plan, table, run, written, rows_read)
    return result if guard is None else replace(result, metrics={**result.metrics, **guard.metrics})


def _written(
    rows: NodeRows | ArrowRows, stamp: Stamp, guard: Guard | None, replacing: Replacing | None
) -> tuple[WriteResult, int | None]:
    """What the commit of ``rows`` did, and how many rows were read for it."""
    plan, engine = rows.plan, engine_of(rows.plan.target)
    if isinstance(rows, ArrowRows):
        with computation_named(plan.node, plan.reads):
            written = engine.write_arrow(rows.rows, plan.target, plan.write_spec, stamp, rows.open_spark)
        return written, rows.counts.total(written.rows_written)
    with (
        rows.own.until_written(rows.df) if rows.own else nullcontext(),
        computation_named(plan.node, plan.reads),
        repeats_placed(rows.df, plan),
        without_call_sites(),
    ):
        delivery = DELIVERY if DELIVERY in rows.df.columns else None
        admit = None if guard is None else guard.admit
        mixed = are_mixed(plan)
        spec = replace(plan.write_spec, delivery=delivery, mixes_deliveries=mixed, admit=admit, replacing=replacing)
        written = engine.write(rows.df, plan.target, spec, stamp)
        return written, rows.counts.total(written.rows_written + (0 if guard is None else guard.rows_quarantined))
