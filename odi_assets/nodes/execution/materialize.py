"""One materialization: read, transform, commit, advance, record. The plan was made before (see ``plan``)."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odi_assets.delta.commit import Stamp
from odi_assets.delta.types import TableEngine, WriteSpec
from odi_assets.errors import StateConflictError, TableConflictError
from odi_assets.nodes.execution.commit_facts import commit_facts
from odi_assets.nodes.execution.deduplicate import without_loaded
from odi_assets.nodes.execution.outcomes import committed_by_earlier_attempt, nothing_new, succeeded, succeeded_before
from odi_assets.nodes.execution.resolve_bounds import with_upper_bounds
from odi_assets.nodes.execution.resolve_partitions import with_partitions
from odi_assets.nodes.execution.row_counts import RowCounts
from odi_assets.nodes.execution.transform import drop_views, transformed
from odi_assets.nodes.hwm_text import hwm_text
from odi_assets.nodes.planning.plan import NodePlan, combined_hwm
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.planning.range_plan import require_time_cursor
from odi_assets.nodes.planning.range_support import range_way
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.sources.errors import unreadable_files_named
from odi_assets.sources.files import ledger
from odi_assets.sources.read import load, partition_condition
from odi_assets.state.backend import StateBackend
from odi_assets.tables.writer import EmbeddedEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Computed:
    """A node's rows, not computed yet, with the plan they come from.

    ``df`` is None when looking at the source showed that nothing is new.
    """

    plan: NodePlan
    df: DataFrame | None
    counts: RowCounts

    @property
    def spark(self) -> SparkSession | None:
        return None if self.df is None else self.df.sparkSession

    @property
    def nothing_new(self) -> bool:
        return self.df is None


def compute(plan: NodePlan, spark: SparkSession) -> Computed:
    """Read and transform what ``plan`` names; lazily, but for a pass that fixes an upper bound nothing else tells.

    Raises:
        IncrementError: rows have no cursor.
        ConfigError, TransformError, SourceError, TableError: the sources or the transform are not right.
    """
    if plan.nothing_new:
        return Computed(plan, None, RowCounts())
    with unreadable_files_named(str(plan.key)):
        return _compute(plan, spark)


def _compute(plan: NodePlan, spark: SparkSession) -> Computed:
    plan = with_partitions(with_upper_bounds(plan, spark), spark)
    if plan.nothing_new:
        return Computed(plan, None, RowCounts())
    if plan.bounds is not None:
        _require_time_cursors(plan, spark)
    counts = RowCounts.of(plan)
    sources = {read.name: counts.watch(read, load(spark, read)) for read in plan.reads}
    df = transformed(spark, plan.node, plan.project.root, sources, str(plan.key))
    if plan.within is not None and plan.within.column in df.columns:
        df = df.where(partition_condition(df, plan.within.column, plan.within.values))
    fresh = without_loaded(df, plan, spark)
    if fresh is None:
        drop_views(spark, sources)
        return Computed(replace(plan, hwm_after=plan.hwm_before, nothing_new=True), None, RowCounts())
    counts.keep_those_in(fresh)
    return Computed(plan, fresh, counts)


def _require_time_cursors(plan: NodePlan, spark: SparkSession) -> None:
    ranged = range_way(plan.key, plan.node).source
    for read in plan.reads:
        if read.name == ranged:
            schema = load(spark, replace(read, window=None)).schema
            require_time_cursor(plan.key, read, {field.name: field.dataType.jsonValue() for field in schema.fields})


def commit(computed: Computed, state: StateBackend, run: RunInfo, engine: TableEngine | None = None) -> NodeResult:
    """Write the rows with fence and HWM in one Delta commit, then advance the HWM in state.

    Raises:
        FencedError: another run committed this increment first; nothing was written.
        TableConflictError: the table kept changing in ways this write was based on, however often it was planned anew.
        SourceError: a file of a source cannot be read.
        TableError: the target cannot take the rows.
    """
    for wait in _waits():
        try:
            return _commit_once(computed, state, run, engine)
        except TableConflictError as conflict:
            plan, spark = computed.plan, computed.spark
            if wait is None or spark is None:
                raise
            _log.info("%s: %s; it is planned anew", plan.key, conflict.message)
            time.sleep(wait)
            again = plan_node(plan.project, state, plan.key, full_refresh=plan.full_refresh, bounds=plan.bounds)
            computed = compute(again, spark)
    raise AssertionError("the last wait is None")


def _waits() -> Iterator[float | None]:
    """Seconds before each new try of a write that met a conflict; None once it has been tried often enough."""
    yield from (random.uniform(0, 0.1 * 2**number) for number in range(_TRIES - 1))
    yield None


def _commit_once(computed: Computed, state: StateBackend, run: RunInfo, engine: TableEngine | None) -> NodeResult:
    plan = computed.plan
    if computed.df is None:
        return no_data(plan, state, run)
    spec = write_spec(plan)
    stamp = Stamp(plan.app_id, plan.number, commit_facts(plan, run), fences=plan.bounds is None)
    _write_ledgers(plan)
    try:
        with unreadable_files_named(str(plan.key)):
            written = (engine or EmbeddedEngine()).write(computed.df, plan.target, spec, stamp)
        rows_read = computed.counts.total(written.rows_written)
    finally:
        drop_views(computed.df.sparkSession, {read.name: read for read in plan.reads})
    advance(plan, state, written.version, run.run_id)
    return succeeded(plan, run, written, rows_read)


def write_spec(plan: NodePlan) -> WriteSpec:
    """How the rows of ``plan`` go into its table."""
    write = plan.node.write
    return WriteSpec(
        plan.mode,
        write.keys,
        partition_columns(plan),
        plan.replace,
        write.schema_policy,
        write.delete_when,
        write.only_if_newer,
        write.mode,
    )


def partition_columns(plan: NodePlan) -> tuple[str, ...]:
    """Columns that the node's table is partitioned by."""
    if plan.node.write.partition_by:
        return plan.node.write.partition_by
    return (plan.node.partition.column,) if plan.node.partition else ()


def _write_ledgers(plan: NodePlan) -> None:
    for read in plan.reads:
        if read.ledger is not None and plan.moves_hwm:
            ledger.write(plan.target.location, read.ledger)


def advance(plan: NodePlan, state: StateBackend, version: int | None, run_id: str) -> None:
    """Write the HWM that commit ``version`` carries into state, where it is an index: the commit is what counts."""
    if not plan.moves_hwm or plan.hwm_after is None:
        return
    seen = plan.entry if plan.entry and not plan.entry.deleted else None
    try:
        state.compare_and_set(
            plan.state_key,
            plan.hwm_after,
            expected_revision=seen.revision if seen else None,
            expected_value=seen.value if seen else None,
            target_commit=version,
            run_id=run_id,
        )
    except StateConflictError:
        _log.warning(
            "%s: its HWM was changed by somebody else while it ran; their value stays, and the commit of version %s "
            "carries %s",
            plan.key,
            version,
            hwm_text(plan.hwm_after),
        )


def no_data(plan: NodePlan, state: StateBackend, run: RunInfo) -> NodeResult:
    """The result of a node with nothing new: no commit. Repairs state if the target's log was ahead of it.

    State alone takes note of what changed without a new row: files that are known by another name or time now, commits
    upstream that changed no row. The next plan need not look at them again, and may not be able to: logs are cleaned.
    If this is lost, the target's log tells a lower HWM, above which the same is found again.
    """
    known = plan.entry if plan.target.exists else None
    took_note = plan.bounds is None and any(
        read.incremental and read.stateful is None and read.hwm_after != read.hwm_before for read in plan.reads
    )
    if plan.repaired:
        stamp = plan.target.last_stamp(plan.app_id)
        advance(replace(plan, hwm_after=plan.hwm_before), state, stamp.version if stamp else 0, run.run_id)
    elif took_note and known is not None:
        _write_ledgers(plan)
        plan = replace(plan, hwm_after=combined_hwm(plan))
        advance(plan, state, known.target_commit, run.run_id)
    stamp = committed_by_earlier_attempt(plan, run)
    return nothing_new(plan, run) if stamp is None else succeeded_before(plan, run, stamp)
