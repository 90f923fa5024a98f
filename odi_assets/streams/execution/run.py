"""One run of a stream node: the query from its start to its end, batch by batch, and what became of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from odi_assets.config.models import StreamSettings
from odi_assets.delta.on_disk import sync_folder_of
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.errors import errors_named
from odi_assets.nodes.execution.kept_aside import KnownKeys
from odi_assets.nodes.execution.outcomes import committed_by_earlier_attempt, nothing_new, succeeded_before
from odi_assets.nodes.execution.transform import transformed
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.sources.streamed import StreamMark
from odi_assets.spark.call_sites import without_call_sites
from odi_assets.spark.connect_worker import TOKEN_REMEDY
from odi_assets.spark.own_session import OwnSession
from odi_assets.spark.session import apply_conf
from odi_assets.state.records import RunStatus
from odi_assets.streams.execution.batch import BatchCommitter
from odi_assets.streams.execution.check import require_fits_checkpoint
from odi_assets.streams.execution.definition import late_times
from odi_assets.streams.execution.kept_rows import KeptRows
from odi_assets.streams.execution.ledger import StreamLedger, records_of
from odi_assets.streams.execution.unmatched_rows import require_descriptions
from odi_assets.streams.planning.changed_settings import compared_settings
from odi_assets.streams.planning.kept_rows import kept_mark, kept_tables
from odi_assets.streams.planning.marks import settings_of, stream_facts, stream_stamps
from odi_assets.streams.planning.plan import StreamPlan
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.relocate import name_own_schemas
from odi_assets.streams.query.run import BatchProgress, RunningQuery, checkpoint_conf, query_conf, query_error
from odi_assets.streams.query.truncate import CheckpointFolder
from odi_assets.tables.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SPARKS_RETENTION = 100
_MARKED_EVERY = 100
"""After this many batches without a search for rows to keep, a table of kept rows records how far it has come: plans
search only the batches since."""
_RECORDED_EVERY = 5.0
"""Seconds after which batches are recorded while a query runs. What is not recorded, the next run records."""


@dataclass(frozen=True)
class StreamService:
    """A run of a stream node that goes on until it is stopped.

    Attributes:
        interval: how often it looks for new data, as Spark takes it: ``10 seconds``.
        on_batch: called with each batch as it ends.
        on_start: called with a function that ends the run after the batch that it computes; a signal handler may call
            that function.
    """

    interval: str
    on_batch: Callable[[BatchProgress], None] | None = None
    on_start: Callable[[Callable[[], None]], None] | None = None

    def rows(self, plan: NodePlan, spark: SparkSession) -> StreamRows:
        """The batches of the run, not computed yet."""
        return StreamRows(plan, spark, self)


@dataclass(frozen=True)
class StreamRows:
    """A stream's batches, not computed yet, with the plan they come from.

    Attributes:
        service: of a run that goes on until it is stopped; else the run takes what is there, and ends.
    """

    plan: NodePlan
    spark: SparkSession
    service: StreamService | None = None

    def commit(self, run: RunInfo) -> NodeResult:
        """Take in what the inputs have now, and end; a service goes on until it is stopped.

        Raises:
            OdiError: what ended the query. What was committed stays, and the next run goes on from there.
        """
        assert isinstance(self.plan, StreamPlan)
        service = self.service
        if service is None:
            return StreamRun(self.plan, self.spark, run).execute()
        stream = StreamRun(self.plan, self.spark, run, service.interval, service.on_batch)
        if service.on_start is not None:
            service.on_start(stream.stop_after_batch)
        return stream.execute()


@dataclass(frozen=True)
class BatchCounts:
    """Rows of several batches together, and the state after the last of them."""

    rows_in: int = 0
    rows_dropped: int = 0
    rows_removed: int = 0
    state_rows: int = 0
    state_bytes: int = 0

    @classmethod
    def of(cls, progress: BatchProgress) -> BatchCounts:
        """The figures of one batch, over all of its inputs and operators."""
        operators = progress.operators
        return cls(
            sum(progress.rows_in.values()),
            sum(operator.rows_dropped for operator in operators),
            sum(operator.rows_removed for operator in operators),
            sum(operator.rows_total for operator in operators),
            sum(operator.state_bytes for operator in operators),
        )

    def __add__(self, later: BatchCounts) -> BatchCounts:
        return replace(
            later,
            rows_in=self.rows_in + later.rows_in,
            rows_dropped=self.rows_dropped + later.rows_dropped,
            rows_removed=self.rows_removed + later.rows_removed,
        )


_CLOCK_STEP = 2.0
"""The coarsest time that file systems keep, in seconds."""


@dataclass
class StreamRun:
    """A run of a stream node.

    Args:
        plan: of the node.
        spark: the session that computes it, in a clone.
        run: the run of the history.
        interval: of a service, how often it looks for new data; None: it takes what is there, and ends.
        on_batch: called with each batch as it ends.
    """

    plan: StreamPlan
    spark: SparkSession
    run: RunInfo
    interval: str | None = None
    on_batch: Callable[[BatchProgress], None] | None = None
    _query: RunningQuery | None = None
    _stopping: bool = False
    _counts: BatchCounts = BatchCounts()
    _late_times: Mapping[str, str] = field(default_factory=dict)

    def stop_after_batch(self) -> None:
        """End the run once the batch that it computes is committed. May be called in a signal handler."""
        self._stopping = True
        if self._query is not None:
            self._query.stop_after_batch()

    def execute(self) -> NodeResult:
        """Run the query to its end.

        Raises:
            OdiError: what ended it. What was committed stays, and the next run goes on from there.
        """
        node = self.plan.node
        settings = settings_of(node)
        # This comes before the session takes the query's settings.
        if settings.late_rows and self._runs_batches:
            # To find them through Spark Connect takes another process. Else it takes a moment, and what the node's
            # module imports may have changed.
            known = None if hasattr(self.spark, "_jsparkSession") else self._times_known()
            self._late_times = known or late_times(node, self.spark)
        own = OwnSession(self.spark)
        try:
            # What earlier runs left out of meta_batches is recorded while Spark makes the query, and before it starts:
            # its first batch may remove from the checkpoint what the records need.
            with ThreadPoolExecutor(1) as pool, own, without_call_sites(), _errors_named(self.plan):
                recorded = pool.submit(_ledger, node)
                CheckpointFolder(self.plan.checkpoint).clear_unplanned()
                if settings.unmatched_rows:
                    require_descriptions(self.plan.checkpoint, str(node))
                name_own_schemas(self.plan.checkpoint)
                apply_conf(self.spark, checkpoint_conf(self.plan.checkpoint) | query_conf(settings))
                table = self._run(settings, recorded)
        finally:
            own.close()
        return self._result(table)

    @property
    def _runs_batches(self) -> bool:
        """Whether the query is started: a service waits for what comes."""
        return self.plan.has_batches or self.interval is not None

    def _times_known(self) -> Mapping[str, str] | None:
        """The times of late rows that the last batch recorded, if the node's definition has not changed since."""
        stamp = self.plan.marks.stamp
        facts = None if stamp is None else CommitFacts.of(stamp)
        if facts is None or facts.stream is None or facts.code_version != self.run.code_version:
            return None
        return facts.stream.late_times

    def _run(self, settings: StreamSettings, recorded: Future[StreamLedger]) -> TableHandle:
        """Run the query, and return the node's table as it is then."""
        plan, spark = self.plan, self.spark
        node, log = plan.node, ProgressLog(plan.checkpoint)
        commit = committer(plan, self.run)
        if commit.kept is not None:
            commit.kept.bring_in_step(log)
        if not self._runs_batches:
            table = _record(recorded.result(), log.query())
            self._keep_up(commit.kept, log, table)
            return table
        sources = {source.name: source.stream(spark) for source in plan.streams}
        rows = transformed(spark, node.config, node.project.root, sources, str(node))
        commit.changed = require_fits_checkpoint(plan, rows, self.run)
        if commit.kept is not None:
            commit.kept.late_times = self._late_times
        # A client of Spark Connect sends a copy; it knows nothing of the query that calls it.
        is_classic = hasattr(rows, "_jdf")
        commit.dropped = self._rows_dropped if is_classic else None
        commit.evicts = self._evicts if is_classic else None
        ledger = recorded.result()
        folder, last = CheckpointFolder(plan.checkpoint), -1 if plan.marks.last is None else plan.marks.last.batch
        if not plan.request.full_refresh:
            ends = {read.name: read.before.value for read in plan.reads if isinstance(read.before, StreamMark)}
            folder.carry(ends, list(sources), last)
        if plan.cut_short and last >= 0:
            folder.plan_next(last, log.next_watermark_ms(last))
        query = RunningQuery(
            rows, settings, plan.checkpoint.uri, commit, [source.name for source in plan.streams], self.interval
        )
        self._query = query
        if self._stopping:
            query.stop_after_batch()
        written = time.monotonic()
        try:
            for progress in query.batches():
                ledger.note(progress)
                self._counts += BatchCounts.of(progress)
                if self.on_batch is not None:
                    self.on_batch(progress)
                if time.monotonic() - written > _RECORDED_EVERY:
                    _record(ledger, log.query())
                    written = time.monotonic()
        finally:
            table = _record(ledger, log.query())
        self._warn_of_token(table)
        self._keep_up(commit.kept, log, table)
        # Before the run counts as done; a batch that was committed before a power cut is looked for by its offsets.
        sync_folder_of(plan.checkpoint, self.run.started_at.timestamp() - _CLOCK_STEP)
        return table

    def _warn_of_token(self, table: TableHandle) -> None:
        plan = self.plan
        _, last = next(stream_stamps(table, plan.write.app_id) if table.exists else iter(()), (None, None))
        if last is not None and last.token_logged:
            _log.warning("%s: the Spark Connect server has its token in its log: %s", plan.node, TOKEN_REMEDY)

    def _keep_up(self, kept: KeptRows | None, log: ProgressLog, table: TableHandle) -> None:
        """Keep the unmatched rows of the batches since that was last done, if any of them took rows out of the state:
        to look for them costs several passes of Spark."""
        committed, node = log.committed(), self.plan.node
        if kept is None or not committed:
            return
        last = log.batch(committed[-1])
        for which in kept.tables:
            mark = kept_mark(node, table, which, log)
            if mark.is_behind:
                kept.marks = {**kept.marks, which: mark}
                kept.keep_unmatched(self.spark, str(mark.query), self.plan.streams, log)
            elif last is not None and last.batch - mark.upto >= _MARKED_EVERY:
                kept.say(which, replace(stream_facts(last, log.location), gaps=mark.lost))

    def _rows_dropped(self) -> tuple[int, ...] | None:
        return self._query.rows_dropped() if self._query is not None else None

    def _evicts(self) -> bool:
        return self._query is not None and self._query.evicts()

    def _result(self, table: TableHandle) -> NodeResult:
        plan, counts = self.plan, self._counts
        before = -1 if plan.target.version is None else plan.target.version
        own = [record for record in records_of(plan.node, table, before) if record.run_id == self.run.run_id]
        if not own:
            result = nothing_new(plan, self.run, plan.start.hwm)
            earlier = committed_by_earlier_attempt(plan, self.run)
            return result if earlier is None else succeeded_before(plan, result, earlier)
        first, last = own[0], own[-1]
        batches = f"batch {last.batch}" if len(own) == 1 else f"batches {first.batch} to {last.batch}"
        return NodeResult(
            plan.node.key,
            RunStatus.SUCCESS,
            seconds=max(0.0, time.time() - self.run.started_at.timestamp()),
            uri=plan.target.location.uri,
            increment=batches if self.interval else f"{batches}: {plan.summary}",
            rows_read=counts.rows_in,
            rows_written=sum(record.rows_out or 0 for record in own),
            rows_total=table.rows,
            hwm_before=plan.start.hwm,
            hwm_after=NodeMark({"query": last.query, "batch": last.batch}),
            table_version=last.table_version,
            columns=tuple((column.name, column.dataType.simpleString()) for column in spark_schema(table.schema_json)),
            metrics={
                "mode": plan.write.mode.value,
                "inputs": plan.inputs,
                "target": table.position,
                "rows_total": table.rows,
                "batches": len(own),
                "rows_dropped": counts.rows_dropped,
                "rows_removed": counts.rows_removed,
                "state_rows": counts.state_rows,
                "state_bytes": counts.state_bytes,
                "watermark": last.watermark.isoformat() if last.watermark else None,
                "query": last.query,
                "checkpoint": plan.checkpoint.uri,
            },
        )


def committer(plan: StreamPlan, run: RunInfo) -> BatchCommitter:
    """What commits the batches of ``plan``."""
    node, mode, settings = plan.node, plan.node.config.write.mode, settings_of(plan.node)
    # A full refresh replaces the table in its first batch only.
    facts = replace(plan.commit_facts(run), mode=mode.value)
    tables, marks = kept_tables(node), {mark.which: mark for mark in plan.kept}
    kept = KeptRows(facts, tables, marks, settings.retain_batches or _SPARKS_RETENTION) if tables else None
    return BatchCommitter(
        str(node),
        plan.target.location,
        plan.write.app_id,
        replace(plan.write_spec, mode=mode),
        facts,
        plan.checkpoint,
        plan.streams,
        plan.marks.last,
        replaces=plan.request.full_refresh,
        kept=kept,
        settings=compared_settings(node.config),
        known_keys=KnownKeys.of(node),
    )


@contextmanager
def _errors_named(plan: StreamPlan) -> Iterator[None]:
    """Raise what Spark raises as errors of ours."""
    try:
        with errors_named(plan.node, plan.reads):
            yield
    except (PySparkException, Py4JError) as error:
        raise query_error(str(plan.node), plan.node.command, plan.checkpoint, error) from error


def _ledger(node: Node) -> StreamLedger:
    ledger = StreamLedger(node)
    ledger.write(TableHandle.open(node.target.location))
    return ledger


def _record(ledger: StreamLedger, query: str | None) -> TableHandle:
    """Record what was committed; return the node's table, which was opened for it."""
    table = TableHandle.open(ledger.node.target.location)
    try:
        ledger.write(table, query)
    except StateError as error:
        _log.warning("batches could not be recorded; the next run does it: %s", error.message)
    return table
