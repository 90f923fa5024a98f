"""The result of a node's run, for each way it can end."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.changes import changes
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle, position_at
from odi_assets.errors import ChecksFailedError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.result import CHECKS, LAG, QUARANTINED, ROWS_BELOW, NodeResult, RunInfo, is_cancellation
from odi_assets.sources.marks import Unresolved
from odi_assets.state.records import RunStatus
from odi_assets.tables.engine import WriteResult
from odi_assets.util.words import counted

_log = logging.getLogger(__name__)

STEPS = "commits"
"""Key of the metrics of a run that made several commits: how many."""


def succeeded(
    plan: NodePlan, table: TableHandle, run: RunInfo, written: WriteResult, rows_read: int | None
) -> NodeResult:
    """The result of a node whose rows were committed into ``table``."""
    metrics: dict[str, Any] = {
        "rows_updated": written.rows_updated,
        "rows_total": written.rows_total,
        "files_added": written.files_added,
        "files_removed": written.files_removed,
        "bytes_written": written.bytes_written,
        "mode": plan.write.mode.value,
        "inputs": plan.inputs,
        "target": position_at(table, written.version),
        **_special_metrics(plan, written),
    }
    return NodeResult(
        plan.node.key,
        RunStatus.SUCCESS,
        seconds=_seconds(run),
        uri=plan.target.location.uri,
        increment=plan.summary,
        rows_read=rows_read,
        rows_written=written.rows_written,
        rows_total=written.rows_total,
        hwm_before=plan.start.hwm,
        hwm_after=plan.hwm_after,
        table_version=written.version,
        columns=written.columns,
        partition_rows=_rows_by_values(plan, written),
        metrics=metrics,
    )


def as_one(results: Sequence[NodeResult]) -> NodeResult:
    """The result of a run that committed the steps of a snapshot one by one."""
    first, last = results[0], results[-1]
    rows = Counter[tuple[str | None, ...]]()
    for step_result in results:
        rows.update(step_result.partition_rows)
    lag = {name: first.metrics[name] for name in LAG if name in first.metrics}
    metrics = {**last.metrics, **lag, STEPS: len(results)}
    for name in ("rows_updated", "files_added", "files_removed", "bytes_written", "rows_deleted", QUARANTINED):
        if name in last.metrics:
            metrics[name] = _sum([step.metrics.get(name) for step in results])
    if CHECKS in last.metrics:
        # A check of several steps: of the last one that failed it, or else of the last one.
        of_steps = [outcome for step in results for outcome in step.metrics.get(CHECKS) or ()]
        latest = {outcome["check"]: outcome for outcome in sorted(of_steps, key=lambda outcome: not outcome["passed"])}
        metrics[CHECKS] = list(latest.values())
    return replace(
        last,
        status=RunStatus.SUCCESS if RunStatus.SUCCESS in [step.status for step in results] else last.status,
        increment=first.increment if len(results) == 1 else f"{first.increment}; … {last.increment}",
        rows_read=_sum([step.rows_read for step in results]),
        rows_written=_sum([step.rows_written for step in results]),
        hwm_before=first.hwm_before,
        partition_rows=rows,
        metrics=metrics,
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def nothing_new(plan: NodePlan, run: RunInfo, hwm: NodeMark | None) -> NodeResult:
    """The result of a node that had nothing to do; ``hwm`` is its HWM now."""
    return NodeResult(
        plan.node.key,
        RunStatus.NO_DATA,
        seconds=_seconds(run),
        uri=plan.target.location.uri,
        increment=plan.summary,
        rows_read=0,
        rows_written=0,
        rows_total=plan.target.rows if plan.target.exists else None,
        hwm_before=plan.start.hwm,
        hwm_after=hwm,
        table_version=plan.target.version,
        metrics={"inputs": plan.inputs, "target": plan.target.position, **rows_left(plan), **_of_sources(plan)},
    )


def committed_by_earlier_attempt(plan: NodePlan, run: RunInfo) -> CommittedStamp | None:
    """The node's last commit, if an earlier attempt of the same run made it and failed afterwards."""
    stamp = plan.target.last_stamp(plan.write.app_id) if run.attempt > 1 else None
    return stamp if stamp is not None and CommitFacts.of(stamp).run_id == run.run_id else None


def succeeded_before(plan: NodePlan, result: NodeResult, stamp: CommittedStamp) -> NodeResult:
    """The ``result`` of a retried node that has nothing to do because an earlier attempt committed."""
    facts = CommitFacts.of(stamp)
    partition, rows = plan.node.config.partition, Counter[tuple[str | None, ...]]()
    if partition is not None:
        for commit in changes(plan.target, stamp.version - 1, stamp.version).commits:
            rows.update(commit.rows_by(partition.columns))
    counted = {"rows_updated": facts.rows_updated, "mode": facts.mode}
    return replace(
        result,
        status=RunStatus.SUCCESS,
        increment=f"{facts.increment} (committed by attempt {facts.attempt})",
        rows_read=None,
        rows_written=facts.rows_written,
        hwm_before=NodeMark.in_state(plan.start.current) if plan.start.repaired else plan.start.hwm,
        table_version=stamp.version,
        partition_rows=rows,
        metrics={
            **{name: value for name, value in counted.items() if value is not None},
            "inputs": plan.inputs,
            "target": position_at(plan.target, stamp.version),
        },
    )


def failure(plan_or_key: NodePlan | NodeKey, run: RunInfo, error: BaseException, uri: str = "") -> NodeResult:
    """The result of a node that ended with ``error``: CANCELLED, if somebody ended its run."""
    key = plan_or_key.node.key if isinstance(plan_or_key, NodePlan) else plan_or_key
    before = plan_or_key.start.hwm if isinstance(plan_or_key, NodePlan) else None
    target = plan_or_key.target.location.uri if isinstance(plan_or_key, NodePlan) else uri
    cancelled = is_cancellation(error)
    return NodeResult(
        key,
        RunStatus.CANCELLED if cancelled else RunStatus.FAILURE,
        seconds=_seconds(run),
        uri=target,
        hwm_before=before,
        hwm_after=before,
        error="the run was cancelled while this node ran" if cancelled else _with_notes(error),
        metrics={CHECKS: error.checks} if isinstance(error, ChecksFailedError) else {},
    )


def _with_notes(error: BaseException) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


def rows_left(plan: NodePlan) -> dict[str, Any]:
    """Rows of the sources that the run did not take in, by why."""
    counts = {
        "rows_without_cursor": sum(read.excluded for read in plan.reads),
        "rows_held": sum(read.held for read in plan.reads),
    }
    late = [read.late for read in plan.reads]
    exact, least = ROWS_BELOW
    counts[exact if all(late_rows.is_exact for late_rows in late) else least] = sum(
        late_rows.rows for late_rows in late
    )
    return {name: count for name, count in counts.items() if count}


def _of_sources(plan: NodePlan) -> dict[str, Any]:
    return {name: value for read in plan.reads for name, value in read.metrics.items()}


def _lag(plan: NodePlan) -> dict[str, float]:
    """How far the node was behind, between its marks before and after: the most of its sources that have times."""
    lags = []
    for read in plan.reads:
        if (
            read.follows
            and read.before is not None
            and read.after is not None
            and not isinstance(read.after, Unresolved)
        ):
            times = [read.snapshot.moment_of(mark) for mark in (read.before, read.after)]
            lags += [max(0.0, until - since) for since, until in [times] if since is not None and until is not None]
    return {"lag_seconds": round(max(lags), 3)} if lags else {}


def _special_metrics(plan: NodePlan, written: WriteResult) -> dict[str, Any]:
    """Metrics that only some writes have."""
    metrics = {**_lag(plan), **rows_left(plan), **_of_sources(plan)}
    if plan.node.config.write.delete_when:
        metrics["rows_deleted"] = written.rows_deleted
    if written.columns_added:
        metrics["columns_added"] = list(written.columns_added)
    if written.columns_ignored:
        metrics["columns_ignored"] = list(written.columns_ignored)
        _log.warning("%s: left out new columns of its source: %s", plan.node.key, ", ".join(written.columns_ignored))
    if plan.request.is_bounded and not written.rows_written and written.rows_total is not None:
        removed = (plan.target.rows or 0) - written.rows_total
        if removed > 0:
            metrics["rows_removed"] = removed
            rows = counted(removed, "row")
            text = "%s: its sources have no rows %s: what its table had there is gone, %s"
            _log.warning(text, plan.node.key, plan.request.part, rows)
    return metrics


def _rows_by_values(plan: NodePlan, written: WriteResult) -> Mapping[tuple[str | None, ...], int]:
    """Rows by the values of the node's partition columns: its table may be partitioned by others, too."""
    config, rows_by_values = plan.node.config.partition, Counter[tuple[str | None, ...]]()
    if config is not None:
        for partition, count in zip(written.partitions, written.partition_rows, strict=True):
            rows_by_values[tuple(map(partition.get, config.columns))] += count
    return rows_by_values


def _seconds(run: RunInfo) -> float:
    return max(0.0, time.time() - run.started_at.timestamp())
