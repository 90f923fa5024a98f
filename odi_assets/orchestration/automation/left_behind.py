"""Nodes that follow no source, and that the last run which was to take them along did not come to, or failed in.

No source of theirs is ahead of a mark, so a look at the sources does not find them: what is above them has moved on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.delta.changes import table_change
from odi_assets.delta.position import table_position
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError
from odi_assets.nodes.history.repair import own_rows
from odi_assets.nodes.history.resume import INPUTS
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import RESUMED_FROM, REWIND
from odi_assets.orchestration.automation.attempts import RequestDecision, after_tries
from odi_assets.orchestration.automation.observed import digest
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord, RunStatus

_ROWS_PER_NODE = 8
_LEFT = (RunStatus.FAILURE, RunStatus.LOST, RunStatus.SKIPPED)


@dataclass(frozen=True)
class LeftBehind:
    """A node that was left behind.

    Attributes:
        text: what it has not read, in words.
        mark: a hash that changes once it is not behind any more, or what it reads moves.
        decision: whether to request a run for it. Every run since its last success counts.
    """

    text: str
    mark: str
    decision: RequestDecision


def left_behind(
    project: Project, instance: dg.DagsterInstance, pipeline: str, keys: Sequence[NodeKey], now: float
) -> tuple[dict[NodeKey, LeftBehind], dict[NodeKey, str]]:
    """Which of some nodes of a pipeline were left behind; and the nodes that cannot be looked at, each with why.

    Args:
        now: the time, in seconds.

    Raises:
        StateError: run history cannot be read.
    """
    state = project.open_state() if keys else None
    newest = _newest_rows(project, state, pipeline, keys) if state is not None else {}
    found: dict[NodeKey, LeftBehind] = {}
    errors: dict[NodeKey, str] = {}
    for key, last in newest.items():
        if state is None or last.status not in _LEFT or _took_in(last):
            continue
        rows = _counting(project, state.list_runs(pipeline=pipeline, node=key.node))
        try:
            why = _why_behind(project, instance, key, rows)
        except OdiError as error:
            errors[key] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        if why is not None:
            tries = len({row.run_id for row in takewhile(lambda row: not _took_in(row), rows)})
            decision = after_tries(project.config.automation, tries, last.timestamp.timestamp(), now)
            found[key] = LeftBehind(*why, decision)
    return found, errors


def _newest_rows(
    project: Project, state: StateBackend, pipeline: str, keys: Sequence[NodeKey]
) -> dict[NodeKey, RunRecord]:
    """The newest row of history of each of these nodes that has one."""
    limit = _ROWS_PER_NODE * len(project.graph.order(pipeline))
    last = state.list_runs(pipeline=pipeline, limit=limit)
    newest: dict[NodeKey, RunRecord] = {}
    for row in _counting(project, last):
        newest.setdefault(NodeKey(pipeline, row.node_name), row)
    for key in keys:
        # A backfill has a row for each of its partitions, and none of them counts.
        if key not in newest and len(last) == limit:
            own = _counting(project, state.list_runs(pipeline=pipeline, node=key.node))
            newest |= {key: own[0]} if own else {}
    return {key: newest[key] for key in keys if key in newest}


def _counting(project: Project, rows: Sequence[RunRecord]) -> list[RunRecord]:
    """The rows of history that say whether a node took in what is there: bounded runs and rewinds say nothing of it."""
    return [row for row in own_rows(project, rows) if row.partition_key is None and row.trigger != REWIND]


def _took_in(row: RunRecord) -> bool:
    return row.status.succeeded or RESUMED_FROM in row.metrics


def _why_behind(
    project: Project, instance: dg.DagsterInstance, key: NodeKey, rows: Sequence[RunRecord]
) -> tuple[str, str] | None:
    """Why a node is behind, in words, and a hash that changes once it is not, or what it reads moves; None if it is not
    behind.

    Args:
        rows: of its history, newest first; the first one did not take in what there was.

    Raises:
        SourceError, TableError: what it reads cannot be looked at.
    """
    run = instance.get_run_by_id(rows[0].run_id)
    if run is not None and run.status is dg.DagsterRunStatus.CANCELED:
        return None
    if any(table_position(project.target(up))["version"] is None for up in project.graph.upstream(key)):
        # A node above it has to run first.
        return None
    node, good = Node.of(project, key), next((row for row in rows if _took_in(row)), None)
    inputs = (good.metrics.get(INPUTS) if good is not None else None) or {}
    known = [source for source in node.sources if source.knows_changes]
    moved = [source.label for source in known if source.change_since(inputs.get(source.name)) is not None]
    tables = {str(up): TableHandle.open(project.target(up)) for up in node.waits_for}
    moved += [name for name, table in tables.items() if table_change(inputs.get(name), table) is not None]
    if not moved:
        return None
    stands = {
        **{source.name: source.position() for source in known},
        **{name: table.position for name, table in tables.items()},
    }
    text = f"{' and '.join(moved)} moved on, and its last run ended as {rows[0].status.value}"
    return text, digest([good.run_id if good is not None else "", stands])
