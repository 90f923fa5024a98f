"""One run of one node, from its plan to its row of history: the order that all runs keep.

plan → read → transform → commit → advance → record

:func:`run_node` does all of it. Dagster calls its two halves: a node's step is :func:`prepare`, the IO manager calls
:func:`finish`. Rows are computed while they are written. So a run that dies before its commit has changed nothing. A
run that dies after its commit has lost nothing: the commit carries the fence, the HWM and the facts of the run, and the
next run brings state and history up to date from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.delta.retry import raced
from odi_assets.errors import OdiError, TableConflictError
from odi_assets.nodes.execution.advance import no_data
from odi_assets.nodes.execution.checks.bad_rows import out_of_step
from odi_assets.nodes.execution.checks.quarantine import bring_in_step
from odi_assets.nodes.execution.materialize import (
    ArrowRows,
    Computed,
    NodeRows,
    NoRows,
    arrow_rows,
    commit_once,
    compute,
)
from odi_assets.nodes.execution.outcomes import as_one
from odi_assets.nodes.kinds import Service
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.planner import NEW_DATA, plan_node
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.remedies import remedies_named
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult, RunInfo, phase_metric
from odi_assets.nodes.run_history import RunHistory
from odi_assets.spark.death import death_named
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunStatus
from odi_assets.tables.refusals import refusals_named
from odi_assets.util.phases import PhaseClock, phase
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def _no_nodes(error: BaseException) -> Iterable[NodeKey]:
    del error
    return ()


@dataclass
class NodeRun:
    """An attempt at one node within a run. To make one notes that the attempt has begun.

    Attributes:
        history: the run that it belongs to: its project, its state, its rows of history.
        open_spark: gives the session. It is not called if there is nothing to do.
        retry_number: how often the node was tried before within the run.
        partition_key: the partitions that the run was asked for, as the history shows them.
        gives_up: the nodes that do not run because this one ended with an error.
        service: of a run that goes on until it is stopped.
        log: what the run says of the node.
        info: what commits and history say of the attempt.
        plan: once it is made.
        clock: where the seconds of the attempt go.
    """

    history: RunHistory
    key: NodeKey
    open_spark: Callable[[], SparkSession]
    retry_number: int = 0
    partition_key: str | None = None
    gives_up: Callable[[BaseException], Iterable[NodeKey]] = _no_nodes
    service: Service | None = None
    log: logging.Logger = _log
    info: RunInfo = field(init=False)
    plan: NodePlan | None = field(init=False, default=None)
    clock: PhaseClock = field(init=False, default_factory=PhaseClock)

    def __post_init__(self) -> None:
        self.info = self.history.start(self.key, self.retry_number, self.partition_key)

    def spark(self) -> SparkSession:
        """The session, which is waited for."""
        with phase("jvm"):
            return self.open_spark()

    @contextmanager
    def failures_recorded(self) -> Iterator[None]:
        """Record an error that ends the attempt, and the nodes that do not run because of it.

        Raises:
            SparkDiedError: the JVM died, in this attempt or before it.
        """
        try:
            with death_named(f"{self.key} ran", but=OdiError):
                yield
        except BaseException as error:
            skipped = self.gives_up(error)
            self.history.fail(self.plan or self.key, self.info, error, skipped, self.partition_key)
            raise


def run_node(run: NodeRun, request: RunRequest = NEW_DATA) -> NodeResult:
    """Plan, read, transform, commit, advance, record.

    Raises:
        OdiError: the node failed. Its row of history says why; what was committed stays, and the next run goes on from
            there.

    Example:
        >>> history = RunHistory(project, project.open_state(), run_id="by-hand")
        >>> run_node(NodeRun(history, NodeKey("shop", "orders"), lambda: spark)).status
        <RunStatus.SUCCESS: 'success'>
    """
    work = prepare(run, request)
    return work if isinstance(work, NodeResult) else finish(run, work)


def prepare(run: NodeRun, request: RunRequest) -> Computed | NodeResult:
    """Plan, read and transform: the rows are named, and not computed yet. Nothing is written, but an adoption that was
    asked for.

    Returns:
        What :func:`finish` takes; the recorded result of a node that a resumed run leaves out.
    """
    history, key = run.history, run.key
    with run.clock.running("read"), run.failures_recorded():
        if request.adopt:
            _adopt(run)
        if request.resume and (left_out := history.left_out(key, run.info)) is not None:
            return left_out
        request = replace(request, inputs_wait=request.inputs_wait or history.inputs_wait(key))
        request = replace(request, log=history.logs.of(key))
        plan = run.plan = plan_node(history.project, history.state, key, request)
        run.log.info("%s: %s", key, plan.summary)
        for loss in plan.losses:
            run.log.warning("%s: its full refresh loses %s", key, loss)
        for text in plan.warnings:
            run.log.warning("%s: %s", key, text)
        return _read(plan, run.spark, run.service)


def finish(run: NodeRun, computed: Computed) -> NodeResult:
    """Commit the rows with fence and HWM, advance the HWM in state, record the result."""
    history = run.history
    with run.clock.running("compute"), run.failures_recorded():
        result = commit(computed, history.state, run.info, lambda text: history.progress(run.key, text))
    if result.status is RunStatus.SUCCESS:
        seconds = {phase_metric(name): round(took, 3) for name, took in run.clock.seconds.items()}
        result = replace(result, metrics={**result.metrics, **seconds})
    history.finish(result, run.info, run.partition_key)
    return result


def _adopt(run: NodeRun) -> None:
    history = run.history
    adoption = plan_adoption(history.project, history.state, run.key, run.spark)
    if adoption is not None:
        run.log.info("%s is adopted: %s", run.key, "; ".join(adoption.changes))
        apply_adoption(history.state, adoption)


def commit(
    computed: Computed, state: StateBackend, run: RunInfo, progress: Callable[[str], None] | None = None
) -> NodeResult:
    """Write the rows with fence and HWM in one Delta commit, then advance the HWM in state. After a conflict with
    another commit, plan, compute and write again.

    A snapshot that is read in chunks takes a commit for each step. Each carries the chunks that are left: a run that is
    killed between two of them has lost nothing, and the next one goes on with the chunks left.

    Args:
        progress: is called with how far such a snapshot has come, in words.

    Raises:
        FencedError: another run committed this increment, or step, first; nothing more was written.
        TableConflictError: each time, another commit changed what this write had read; nothing was written.
        SourceError: a file of a source cannot be read.
        TableError: the target cannot take the rows.
        SparkDiedError: the JVM died, or had no memory left.
    """
    if isinstance(computed, NoRows):
        return no_data(computed.plan, state, run)
    node = computed.plan.node
    with remedies_named(node), death_named(f"{node} ran"), refusals_named(node.target.location):
        if not isinstance(computed, NodeRows | ArrowRows):
            return computed.commit(run)
        if _goes_on(computed):
            return _commit_steps(computed, state, run, progress)
        return _commit_rows(computed, state, run)


def _commit_rows(rows: NodeRows | ArrowRows, state: StateBackend, run: RunInfo) -> NodeResult:
    """Write ``rows``; after a conflict, plan, compute and write them again, until there is none."""
    try:
        return commit_once(rows, state, run)
    except TableConflictError as conflict:
        _log.info("%s: %s; it is planned again", rows.plan.node.key, conflict.message)

    def attempt() -> NodeResult:
        again = _next(rows, state, rows.plan.request)
        return no_data(again.plan, state, run) if isinstance(again, NoRows) else commit_once(_rows(again), state, run)

    return raced(attempt, lost=lambda error: isinstance(error, TableConflictError))


def _commit_steps(
    first: NodeRows | ArrowRows, state: StateBackend, run: RunInfo, progress: Callable[[str], None] | None
) -> NodeResult:
    """Commit ``first``, and then what the sources have beyond it, step by step, until a step is not of a snapshot."""
    results: list[NodeResult] = []
    computed: Computed = first
    try:
        while isinstance(computed, NodeRows | ArrowRows):
            results.append(_commit_rows(computed, state, run))
            if progress is not None:
                progress(str(results[-1].hwm_after or ""))
            if not _goes_on(computed):
                break
            # A full refresh has replaced the table with its first step.
            until = {read.name: read.until for read in computed.plan.reads}
            computed = _next(computed, state, replace(computed.plan.request, full_refresh=False, until=until))
        if isinstance(computed, NoRows):
            ended = no_data(computed.plan, state, run)
            held = {name: ended.metrics[name] for name in ("inputs", "rows_held") if name in ended.metrics}
            results[-1] = replace(results[-1], metrics={**results[-1].metrics, **held})
    except BaseException as error:
        if results:
            made = counted(len(results), "commit")
            error.add_note(f"{made} were made before; the next run goes on there: {results[-1].hwm_after}")
        raise
    return as_one(results)


def _read(plan: NodePlan, open_spark: Callable[[], SparkSession], service: Service | None = None) -> Computed:
    """The rows that ``plan`` names. Spark is started only if they need it. What the node's last run has left undone in
    its quarantine is done first."""
    if out_of_step(plan.node, plan.target):
        bring_in_step(plan.node, plan.target)
    if plan.nothing_new and service is None:
        return NoRows(plan)
    rows = arrow_rows(plan, open_spark)
    return compute(plan, open_spark(), service) if rows is None else rows


def _next(rows: NodeRows | ArrowRows, state: StateBackend, request: RunRequest) -> Computed:
    """What is to be written after ``rows``, or in their place."""
    node = rows.plan.node
    return _read(plan_node(node.project, state, node.key, request), rows.open_spark)


def _rows(computed: Computed) -> NodeRows | ArrowRows:
    assert isinstance(computed, NodeRows | ArrowRows)
    return computed


def _goes_on(rows: NodeRows | ArrowRows) -> bool:
    return any(read.goes_on for read in rows.plan.reads)
