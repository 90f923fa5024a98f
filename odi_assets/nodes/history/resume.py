"""What a resumed run may leave out: nodes that succeeded in the pipeline's last run and for which nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.changes import table_change
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.history.repair import own_rows
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node, code_version
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import PARTIAL, RESUMED_FROM, REWIND, NodeResult
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets.state.values import decode, encode

INPUTS, TARGET = "inputs", "target"
"""Keys of a run's metrics: the positions of its sources, and the version of its table after the run."""


@dataclass(frozen=True)
class ResumeDecision:
    """Whether a resumed run leaves a node out, and why; ``last`` is the row in which it succeeded."""

    skip: bool
    reason: str
    last: RunRecord | None = None


def last_rows(state: StateBackend, project: Project, pipeline: str, run_id: str) -> Mapping[NodeKey, RunRecord]:
    """The newest row of each node in the pipeline's last run before ``run_id``.

    A run of some of the nodes (``--node``) goes on with the run before it; bounded runs and rewinds do
    not count.
    """
    row_by_key: dict[NodeKey, RunRecord] = {}
    whole: str | None = None
    for row in own_rows(project, _newest_first(state, pipeline, len(project.graph.order(pipeline)))):
        if row.run_id == run_id or not _counts(row):
            continue
        if whole is not None and row.run_id != whole:
            break
        row_by_key.setdefault(NodeKey(pipeline, row.node_name), row)
        if not row.metrics.get(PARTIAL):
            whole = row.run_id
    return row_by_key


def _newest_first(state: StateBackend, pipeline: str, nodes: int) -> list[RunRecord]:
    # The last run is usually whole; more of the history is needed only after many runs of single nodes.
    rows = state.list_runs(pipeline=pipeline, limit=8 * nodes)
    whole = [row.run_id for row in rows if _counts(row) and not row.metrics.get(PARTIAL)]
    ended = len(rows) < 8 * nodes or (whole and whole[0] != rows[-1].run_id)
    return rows if ended else state.list_runs(pipeline=pipeline)


def _counts(row: RunRecord) -> bool:
    return row.partition_key is None and row.trigger != REWIND


def verdict(project: Project, state: StateBackend, key: NodeKey, last: RunRecord | None) -> ResumeDecision:
    """Whether ``key`` may be left out, judged when its turn comes in the run.

    Raises:
        SourceError, TableError: a source cannot be examined.
    """
    if last is None:
        return ResumeDecision(False, "the last run did not come to it")
    if not (last.status.succeeded or RESUMED_FROM in last.metrics):
        return ResumeDecision(False, f"{last.status.value} in the last run")
    changed = _changed(project, state, key, last)
    run_id = last.metrics.get(RESUMED_FROM, last.run_id)
    if changed is not None:
        return ResumeDecision(False, f"succeeded in run {run_id}, but {changed}", last)
    return ResumeDecision(True, f"resumed: succeeded in run {run_id}, and nothing changed since", last)


def _changed(project: Project, state: StateBackend, key: NodeKey, last: RunRecord) -> str | None:
    if code_version(project, key) != last.code_version:
        return "its code or configuration changed"
    node = Node.of(project, key)
    target = table_change(last.metrics.get(TARGET), TableHandle.open(node.target.location))
    if target is not None:
        return f"its table changed: {target}"
    hwm = NodeMark.of_value(state.get_hwm(node.state_key))
    if node.kind.keeps_hwm and _as_recorded(hwm) != last.hwm_after:
        return f"its HWM is {hwm or 'gone'}, and it was {NodeMark.of_value(last.hwm_after) or 'none'}"
    inputs = last.metrics.get(INPUTS) or {}
    for source in node.sources:
        if (text := source.change_since(inputs.get(source.name))) is not None:
            return f"{source.label} changed: {text}"
    for other in node.waits_for:
        if (text := table_change(inputs.get(str(other)), TableHandle.open(project.target(other)))) is not None:
            return f"{other}, which it depends on, changed: {text}"
    return None


def _as_recorded(hwm: NodeMark | None) -> Any:
    return None if hwm is None else decode(encode(hwm.value).json, None)


def left_out(project: Project, key: NodeKey, decision: ResumeDecision) -> NodeResult:
    """The result of a node that a resumed run leaves out. It keeps the metrics that a later resume needs."""
    last = decision.last
    facts = {} if last is None else {name: last.metrics.get(name) for name in (INPUTS, TARGET)}
    reached = NodeMark.of_value(last.hwm_after) if last else None
    return NodeResult(
        key,
        RunStatus.SKIPPED,
        seconds=0.0,
        uri=project.target(key).uri,
        hwm_before=reached,
        hwm_after=reached,
        table_version=last.table_version if last else None,
        metrics={**facts, RESUMED_FROM: last.metrics.get(RESUMED_FROM, last.run_id) if last else None},
        error=decision.reason,
    )
