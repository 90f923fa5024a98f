"""Rows of run history for attempts that could not write their own: what the target's log says became of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from odi_assets.config.graph import NodeKey
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.history.attempts import Attempt
from odi_assets.nodes.node import app_ids
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import PARTIAL, REWIND
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord, RunStatus

GRACE = timedelta(minutes=15)
"""How long a commit may stand without a row before its run, of which nothing else is known, counts as gone."""
_log = logging.getLogger(__name__)
_CLOCKS_APART = timedelta(days=1)


def is_recorded(state: StateBackend, key: NodeKey, run_id: str, attempt: int) -> bool:
    """Whether an attempt has its row."""
    rows = state.list_runs(pipeline=key.pipeline, node=key.node, run_id=run_id)
    return any(row.attempt == attempt for row in rows)


def row_of(project: Project, attempt: Attempt) -> RunRecord:
    """The row of an attempt that has ended without writing one.

    SUCCESS, if the target's log holds its commit, with the figures of that; FAILURE, if somebody knows its error; else
    LOST, at the time it began, for nobody knows when it ended.
    """
    stamp = _commit_of(project, attempt)
    if stamp is not None:
        return _succeeded(project, attempt, stamp)
    status = RunStatus.FAILURE if attempt.error else RunStatus.LOST
    error = attempt.error or "the run vanished before this node ended; it had committed nothing"
    return _row(project, attempt, status, attempt.began, error=error)


def commits_without_row(
    project: Project, state: StateBackend, keys: Iterable[NodeKey], *, every: bool = False
) -> list[Attempt]:
    """The attempts behind the last commits of ``keys``, or behind ``every`` one, where history has no row of them.

    Tables that cannot be read are left out: it is told in the log, and by what else needs them.
    """
    found: list[Attempt] = []
    for key in keys:
        try:
            found += _every_without_row(project, state, key) if every else _last_without_row(project, state, key)
        except TableError as error:
            _log.warning("%s: history cannot be compared with its table: %s", key, error.message)
    return found


def _every_without_row(project: Project, state: StateBackend, key: NodeKey) -> list[Attempt]:
    rows = state.list_runs(pipeline=key.pipeline, node=key.node)
    return [attempt_of(key, stamp) for stamp in stamps_without_row(project, key, rows)]


def _last_without_row(project: Project, state: StateBackend, key: NodeKey) -> list[Attempt]:
    attempts = (attempt_of(key, stamp) for stamp in _last_stamps(project, key))
    return [attempt for attempt in attempts if not is_recorded(state, key, attempt.run_id, attempt.number)]


def stamps_without_row(project: Project, key: NodeKey, rows: Sequence[RunRecord]) -> list[CommittedStamp]:
    """The commits of ``key`` that none of ``rows``, its history, is of, oldest first.

    Those from before the oldest row are left out: theirs were dropped when their time was over.
    """
    known = {(row.run_id, row.attempt) for row in rows}
    oldest = min((row.started_at or row.timestamp for row in rows), default=datetime.min.replace(tzinfo=UTC))
    found = []
    for stamp in TableHandle.open(project.target(key)).stamps():
        if stamp.app_id not in app_ids(key) or not _names_run(stamp) or stamp.committed_at < oldest:
            continue
        attempt = attempt_of(key, stamp)
        if (attempt.run_id, attempt.number) not in known:
            found.append(stamp)
    return found[::-1]


def _last_stamps(project: Project, key: NodeKey) -> list[CommittedStamp]:
    table = TableHandle.open(project.target(key))
    found = (table.last_stamp(app_id) for app_id in app_ids(key))
    return [stamp for stamp in found if stamp is not None and _names_run(stamp)]


def _names_run(stamp: CommittedStamp) -> bool:
    return CommitFacts.of(stamp).run_id is not None


def attempt_of(key: NodeKey, stamp: CommittedStamp) -> Attempt:
    """The attempt that made a commit, as far as the commit tells."""
    facts = CommitFacts.of(stamp)
    return Attempt(
        key,
        str(facts.run_id),
        facts.attempt or 1,
        stamp.committed_at,
        trigger=REWIND if facts.mode == REWIND else None,
        partition_key="...".join(facts.bounds) if facts.bounds else None,
        partial=facts.partial,
    )


def _commit_of(project: Project, attempt: Attempt) -> CommittedStamp | None:
    if attempt.key not in project.graph.nodes:
        return None
    for stamp in TableHandle.open(project.target(attempt.key)).stamps():
        facts = CommitFacts.of(stamp)
        if (facts.run_id, facts.node, facts.attempt or 1) == (attempt.run_id, str(attempt.key), attempt.number):
            return stamp
        if stamp.committed_at < attempt.began - _CLOCKS_APART:
            return None
    return None


def _succeeded(project: Project, attempt: Attempt, stamp: CommittedStamp) -> RunRecord:
    facts = CommitFacts.of(stamp)
    counted = {
        "rows_written": facts.rows_written,
        "rows_updated": facts.rows_updated,
        "mode": facts.mode,
        "increment": facts.increment,
    }
    metrics: dict[str, object] = {name: value for name, value in counted.items() if value is not None}
    metrics["inputs"] = facts.positions
    target = TableHandle.open(project.target(attempt.key), stamp.version)
    metrics["target"] = {"table_id": target.table_id, "version": stamp.version}
    return _row(
        project,
        attempt,
        RunStatus.SUCCESS,
        max(attempt.began, stamp.committed_at),
        rows=facts.rows_written,
        metrics=metrics,
        hwm_after=facts.hwm.value if facts.hwm else None,
        version=stamp.version,
        code_version=facts.code_version,
    )


def _row(
    project: Project,
    attempt: Attempt,
    status: RunStatus,
    ended: datetime,
    *,
    rows: int | None = None,
    metrics: Mapping[str, object] | None = None,
    hwm_after: object = None,
    version: int | None = None,
    code_version: str | None = None,
    error: str | None = None,
) -> RunRecord:
    return RunRecord(
        run_id=attempt.run_id,
        project=project.config.project,
        pipeline_name=attempt.key.pipeline,
        node_name=attempt.key.node,
        status=status,
        rows_processed=rows,
        duration_ms=int((ended - attempt.began).total_seconds() * 1000),
        timestamp=ended,
        metrics={
            **(metrics or {}),
            **({PARTIAL: True} if attempt.partial else {}),
            "mended": True,
            "mended_at": datetime.now(UTC).isoformat(),
        },
        environment=project.environment,
        started_at=attempt.began,
        partition_key=attempt.partition_key,
        trigger=attempt.trigger,
        attempt=attempt.number,
        hwm_after=hwm_after,
        table_version=version,
        code_version=code_version or attempt.code_version,
        error=error,
    )
