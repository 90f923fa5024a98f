"""What a run of a node came to."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.state.records import RunStatus
from odi_assets.tables.engine import WriteResult

_log = logging.getLogger(__name__)


def succeeded(plan: NodePlan, run: RunInfo, written: WriteResult, rows_read: int | None) -> NodeResult:
    """The result of a node whose rows were committed."""
    column = _partition_column(plan)
    metrics: dict[str, Any] = {
        "rows_updated": written.rows_updated,
        "rows_total": written.rows_total,
        "files_added": written.files_added,
        "files_removed": written.files_removed,
        "bytes_written": written.bytes_written,
        "mode": plan.write.mode.value,
        "inputs": plan.inputs,
        "target": {"table_id": _table_id(plan, written), "version": written.version},
        **_told(plan, written),
    }
    return NodeResult(
        plan.key,
        RunStatus.SUCCESS,
        seconds=_seconds(run),
        uri=plan.target.location.uri,
        increment=plan.summary,
        rows_read=rows_read,
        rows_written=written.rows_written,
        rows_total=written.rows_total,
        hwm_before=plan.hwm_before,
        hwm_after=plan.hwm_after,
        table_version=written.version,
        columns=written.columns,
        partitions=tuple(p[column] for p in written.partitions) if column else (),
        metrics=metrics,
    )


def nothing_new(plan: NodePlan, run: RunInfo, hwm: Any) -> NodeResult:
    """The result of a node that had nothing to do; ``hwm`` is its HWM now."""
    return NodeResult(
        plan.key,
        RunStatus.NO_DATA,
        seconds=_seconds(run),
        uri=plan.target.location.uri,
        increment=plan.summary,
        rows_read=0,
        rows_written=0,
        rows_total=plan.target.rows if plan.target.exists else None,
        hwm_before=plan.hwm_before,
        hwm_after=hwm,
        table_version=plan.target.version,
        metrics={"inputs": plan.inputs, "target": plan.target.position},
    )


def committed_by_earlier_attempt(plan: NodePlan, run: RunInfo) -> CommittedStamp | None:
    """The node's last commit, if an attempt before this one of the same run made it and failed after it."""
    stamp = plan.target.last_stamp(plan.write.app_id) if run.attempt > 1 else None
    return stamp if stamp is not None and CommitFacts.of(stamp).run_id == run.run_id else None


def succeeded_before(plan: NodePlan, result: NodeResult, stamp: CommittedStamp) -> NodeResult:
    """The ``result`` of a node that is tried again and has nothing to do, because an earlier attempt did commit."""
    from odi_assets.delta.changes import changes

    column, facts = _partition_column(plan), CommitFacts.of(stamp)
    touched = [p for one in changes(plan.target, stamp.version - 1, stamp.version).commits for p in one.partitions]
    standing = plan.start.standing
    counted = {"rows_updated": facts.rows_updated, "mode": facts.mode}
    return replace(
        result,
        status=RunStatus.SUCCESS,
        increment=f"{facts.increment} (committed by attempt {facts.attempt})",
        rows_read=None,
        rows_written=facts.rows_written,
        hwm_before=(standing.value if standing else None) if plan.repaired else plan.hwm_before,
        table_version=stamp.version,
        partitions=tuple(p[column] for p in touched) if column else (),
        metrics={
            **{name: value for name, value in counted.items() if value is not None},
            "inputs": plan.inputs,
            "target": {"table_id": plan.target.table_id, "version": stamp.version},
        },
    )


def failure(plan_or_key: NodePlan | NodeKey, run: RunInfo, error: BaseException, uri: str = "") -> NodeResult:
    """The result of a node that ended with ``error``."""
    key = plan_or_key.key if isinstance(plan_or_key, NodePlan) else plan_or_key
    before = plan_or_key.hwm_before if isinstance(plan_or_key, NodePlan) else None
    target = plan_or_key.target.location.uri if isinstance(plan_or_key, NodePlan) else uri
    return NodeResult(
        key,
        RunStatus.FAILURE,
        seconds=_seconds(run),
        uri=target,
        hwm_before=before,
        hwm_after=before,
        error=f"{type(error).__name__}: {error}",
    )


def _told(plan: NodePlan, written: WriteResult) -> dict[str, Any]:
    """What only some writes have to tell."""
    if written.columns_ignored:
        _log.warning("%s: left out new columns of its source: %s", plan.key, ", ".join(written.columns_ignored))
    excluded = sum(read.excluded for read in plan.reads)
    told: dict[str, Any] = {"rows_without_cursor": excluded} if excluded else {}
    told |= {"rows_deleted": written.rows_deleted} if plan.node.config.write.delete_when else {}
    if written.columns_added:
        told["columns_added"] = list(written.columns_added)
    if written.columns_ignored:
        told["columns_ignored"] = list(written.columns_ignored)
    emptied = 0
    if plan.request.bounds is not None and not written.rows_written and written.rows_total is not None:
        emptied = max(0, (plan.target.rows or 0) - written.rows_total)
    if emptied:
        told["rows_removed"] = emptied
        rows = f"{emptied:,} row{'' if emptied == 1 else 's'}"
        told_of = plan.key, plan.request.bounds, rows
        _log.warning("%s: its sources have no rows %s: what its table had there is gone, %s", *told_of)
    return told


def _table_id(plan: NodePlan, written: WriteResult) -> str:
    made = plan.target if plan.target.exists else TableHandle.open(plan.target.location, written.version)
    return made.table_id


def _partition_column(plan: NodePlan) -> str | None:
    return plan.node.config.partition.column if plan.node.config.partition else None


def _seconds(run: RunInfo) -> float:
    return max(0.0, time.time() - run.started_at.timestamp())
