"""The commits of a run of a node: one, or for a snapshot in chunks one for each step, until the source has nothing new.

Each commit of a snapshot carries the chunks that are left. A run that is killed between two of them has lost nothing,
and the next one goes on with the chunks left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.errors import TableConflictError
from odi_assets.nodes.execution.advance import no_data
from odi_assets.nodes.execution.materialize import Computed, NodeRows, NoRows, commit_again, commit_once, compute
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.remedies import remedies_named
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.sources.marks import hwm_text
from odi_assets.spark.death import death_named
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunStatus
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.nodes.execution.streams.run import StreamRows

_log = logging.getLogger(__name__)
STEPS = "commits"
"""Key of the metrics of a run that made several commits: how many."""


def commit(
    computed: Computed,
    state: StateBackend,
    run: RunInfo,
    progress: Callable[[str], None] | None = None,
) -> NodeResult:
    """Write the rows with fence and HWM in one Delta commit, then advance the HWM in state. After a conflict with
    another commit, plan, compute and write once more.

    The rows of a snapshot that is read in chunks take a commit for each step, and are one result.

    Args:
        progress: is called with how far such a snapshot has come, in words.

    Raises:
        FencedError: another run committed this increment first; nothing was written.
        TableConflictError: each time, another commit changed what this write had read; nothing was written.
        SourceError: a file of a source cannot be read.
        TableError: the target cannot take the rows.
        SparkDiedError: the JVM died, or had no memory left.
    """
    if isinstance(computed, NoRows):
        return no_data(computed.plan, state, run)
    with remedies_named(computed.plan.node), death_named(f"{computed.plan.node} ran"):
        return _committed(computed, state, run, progress)


def _committed(
    computed: NodeRows | StreamRows, state: StateBackend, run: RunInfo, progress: Callable[[str], None] | None
) -> NodeResult:
    if not isinstance(computed, NodeRows):
        from odi_assets.nodes.execution.streams.run import run_stream

        return run_stream(computed, run)
    if any(read.goes_on for read in computed.plan.reads):
        return _commit_steps(computed, state, run, progress)
    try:
        return commit_once(computed, state, run)
    except TableConflictError as conflict:
        _log.info("%s: %s; it is planned again", computed.plan.node.key, conflict.message)
    return commit_again(computed, state, run)


def _commit_steps(
    first: NodeRows, state: StateBackend, run: RunInfo, progress: Callable[[str], None] | None = None
) -> NodeResult:
    """Commit ``first``, and then what the sources have beyond it, step by step, until a step is not of a snapshot.

    Raises:
        FencedError: another run committed a step first; the steps before it stay.
    """
    results: list[NodeResult] = []
    try:
        _commit_all(first, results, state, run, progress)
    except BaseException as error:
        if results:
            reached = hwm_text(results[-1].hwm_after)
            error.add_note(f"{counted(len(results), 'commit')} were made before; the next run goes on there: {reached}")
        raise
    return _as_one(results)


def _commit_all(
    first: NodeRows,
    results: list[NodeResult],
    state: StateBackend,
    run: RunInfo,
    progress: Callable[[str], None] | None,
) -> None:
    computed: Computed = first
    while isinstance(computed, NodeRows):
        try:
            results.append(commit_once(computed, state, run))
        except TableConflictError as conflict:
            _log.info("%s: %s; the step is planned again", computed.plan.node.key, conflict.message)
            results.append(commit_again(computed, state, run))
        if progress is not None:
            progress(hwm_text(results[-1].hwm_after) or "")
        if not any(read.goes_on for read in computed.plan.reads):
            break
        # A full refresh has replaced the table with its first step.
        plan, request = computed.plan, replace(computed.plan.request, full_refresh=False)
        computed = compute(plan_node(plan.node.project, state, plan.node.key, request), first.spark)
    if isinstance(computed, NoRows):
        ended = no_data(computed.plan, state, run)
        held = {name: ended.metrics[name] for name in ("inputs", "rows_held") if name in ended.metrics}
        results[-1] = replace(results[-1], metrics={**results[-1].metrics, **held})


def _as_one(results: Sequence[NodeResult]) -> NodeResult:
    first, last = results[0], results[-1]
    partitions = dict.fromkeys(value for one in results for value in one.partitions)
    metrics = {**last.metrics, STEPS: len(results)}
    for name in ("rows_updated", "files_added", "files_removed", "bytes_written", "rows_deleted"):
        if name in last.metrics:
            metrics[name] = _sum([one.metrics.get(name) for one in results])
    return replace(
        last,
        status=RunStatus.SUCCESS if RunStatus.SUCCESS in [one.status for one in results] else last.status,
        increment=first.increment if len(results) == 1 else f"{first.increment}; … {last.increment}",
        rows_read=_sum([one.rows_read for one in results]),
        rows_written=_sum([one.rows_written for one in results]),
        hwm_before=first.hwm_before,
        partitions=tuple(partitions),
        metrics=metrics,
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
