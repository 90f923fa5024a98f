"""Rows of run history for attempts that did not write their own, made from the target's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.history.attempts import NodeAttempt, run_record
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import app_ids
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import partition_label
from odi_assets.nodes.result import PARTIAL, QUARANTINED, REWIND, NodeResult
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord, RunStatus

GRACE = timedelta(minutes=15)
"""Age at which a commit without a row counts as one of a run that is gone, if nothing else is known of that run."""
CLOCKS_APART = timedelta(days=1)
"""How far the clock of a store may be behind that of a run, at most."""


def own_rows(project: Project, rows: Iterable[RunRecord]) -> list[RunRecord]:
    """The rows of ``project``: others may keep their history in the same table. Other tools name no project."""
    return [row for row in rows if row.project in (None, project.config.project)]


def is_recorded(state: StateBackend, attempt: NodeAttempt) -> bool:
    """Whether an attempt has its row. A node that a run did not come to has one row of that run."""
    rows = state.list_runs(pipeline=attempt.key.pipeline, node=attempt.key.node, run_id=attempt.run_id)
    return any(attempt.skipped or row.attempt == attempt.attempt for row in rows)


def row_of(project: Project, attempt: NodeAttempt) -> RunRecord:
    """The row of an attempt that ended without writing one.

    SUCCESS with the figures of its commit, if the target's log holds one. NO_DATA, if Dagster saw it succeed without
    one. SKIPPED, if it never began. CANCELLED, if its run was cancelled. FAILURE, if its error is known. Else LOST, and
    so is one that was in the middle of a snapshot. Without a commit, at the time it began: nobody knows when it ended.
    """
    stamps = [] if attempt.skipped else _commits_of(project, attempt)
    stamp = stamps[0] if stamps else None
    metrics = {
        **(_metrics(project, attempt, stamps) if stamps else {}),
        **({PARTIAL: True} if attempt.partial else {}),
        "mended": True,
        "mended_at": datetime.now(UTC).isoformat(),
    }
    if stamp is None:
        status, error = _ended(attempt)
        return run_record(
            project,
            attempt.key,
            attempt,
            status,
            attempt.started_at,
            metrics=metrics,
            partition_key=attempt.partition_key,
            error=error,
        )
    facts = CommitFacts.of(stamp)
    mark = facts.hwm.mark if facts.hwm else None
    left = None if attempt.succeeded or mark is None else mark.snapshot_left()
    return run_record(
        project,
        attempt.key,
        attempt,
        RunStatus.SUCCESS if left is None else RunStatus.LOST,
        max(attempt.started_at, stamp.committed_at),
        rows_processed=metrics.get("rows_written"),
        error=None if left is None else f"the run vanished in the middle of a {left}; the next one goes on there",
        code_version=facts.code_version,
        metrics=metrics,
        partition_key=attempt.partition_key,
        hwm_before=_mark_before(project, attempt.key, stamps[-1]),
        hwm_after=mark,
        table_version=stamp.version,
    )


def with_commits(project: Project, attempt: NodeAttempt, result: NodeResult) -> NodeResult:
    """``result`` of an attempt that was cancelled, with the figures of the commits that it had made, if any.

    Raises:
        TableError: the target cannot be read.
    """
    stamps = _commits_of(project, attempt)
    if not stamps:
        return result
    facts, metrics = CommitFacts.of(stamps[0]), _metrics(project, attempt, stamps)
    return replace(
        result,
        increment=facts.increment or "",
        rows_written=metrics.get("rows_written"),
        hwm_after=facts.hwm.mark if facts.hwm else result.hwm_after,
        table_version=stamps[0].version,
        metrics={**result.metrics, **metrics},
        error="the run was cancelled after this node had committed",
    )


def _mark_before(project: Project, key: NodeKey, first: CommittedStamp) -> NodeMark | None:
    """The HWM that the node had before an attempt, whose first commit is ``first``."""
    stamps = TableHandle.open(project.target(key)).stamps()
    older = (CommitFacts.of(stamp) for stamp in stamps if stamp.version < first.version)
    own = (facts for facts in older if facts.node == str(key) and (facts.hwm is not None or facts.before_first_run))
    last = next(own, None)
    return None if last is None or last.hwm is None else last.hwm.mark


def _ended(attempt: NodeAttempt) -> tuple[RunStatus, str | None]:
    """How an attempt without a commit ended, and why."""
    if attempt.skipped:
        return RunStatus.SKIPPED, attempt.skipped
    if attempt.succeeded:
        return RunStatus.NO_DATA, None
    if attempt.error:
        return RunStatus.FAILURE, attempt.error
    if attempt.cancelled:
        return RunStatus.CANCELLED, "the run was cancelled while this node ran"
    return RunStatus.LOST, "the run vanished before this node ended; it had committed nothing"


def _metrics(project: Project, attempt: NodeAttempt, stamps: Sequence[CommittedStamp]) -> dict[str, Any]:
    stamp, facts = stamps[0], CommitFacts.of(stamps[0])
    written = [CommitFacts.of(commit_stamp).rows_written for commit_stamp in stamps]
    bad = [said.get("rows", 0) for stamp in stamps if (said := CommitFacts.of(stamp).quarantine) is not None]
    counted = {
        "rows_written": None if None in written else sum(rows or 0 for rows in written),
        "rows_updated": facts.rows_updated,
        "mode": facts.mode,
        "increment": facts.increment,
        QUARANTINED: sum(bad) if bad else None,
    }
    target = TableHandle.open(project.target(attempt.key), stamp.version)
    return {
        **{name: value for name, value in counted.items() if value is not None},
        "inputs": facts.positions,
        "target": target.position,
    }


def commits_without_row(
    project: Project, state: StateBackend, keys: Iterable[NodeKey], *, every: bool = False
) -> tuple[list[NodeAttempt], list[TableError]]:
    """The attempts that made the last commits of ``keys``, or with ``every`` all their commits, and have no row.

    Returns:
        The attempts, and the errors of tables that cannot be looked at; the other tables are looked at all the same.
    """
    attempts: list[NodeAttempt] = []
    last: list[NodeAttempt] = []
    unreadable: list[TableError] = []
    for key in keys:
        try:
            if every:
                table = TableHandle.open(project.target(key))
                rows = own_rows(project, state.list_runs(pipeline=key.pipeline, node=key.node))
                attempts += (attempt_of(key, stamp) for stamp in stamps_without_row(project, key, table, rows))
                continue
            last += last_attempts(project, key, TableHandle.open(project.target(key)))
        except TableError as error:
            unreadable.append(error)
    return attempts + unrecorded(state, last), unreadable


def last_attempts(project: Project, key: NodeKey, table: TableHandle) -> list[NodeAttempt]:
    """The attempts that made the last commits of ``key`` in ``table``: of an increment, and of a bounded run."""
    last = (table.last_stamp(app_id) for app_id in app_ids(key))
    return [attempt_of(key, stamp) for stamp in last if stamp is not None and _has_row_here(project, stamp)]


def unrecorded(state: StateBackend, attempts: Iterable[NodeAttempt]) -> list[NodeAttempt]:
    """The ``attempts`` that have no row; asks once for each run."""
    attempts = list(attempts)
    rows = (row for run_id in {attempt.run_id for attempt in attempts} for row in state.list_runs(run_id=run_id))
    known = {(f"{row.pipeline_name}.{row.node_name}", row.run_id, row.attempt) for row in rows}
    return [attempt for attempt in attempts if (str(attempt.key), attempt.run_id, attempt.attempt) not in known]


def stamps_without_row(
    project: Project, key: NodeKey, table: TableHandle, rows: Sequence[RunRecord]
) -> list[CommittedStamp]:
    """The commits of ``key`` that have no row among ``rows``, its history; oldest first.

    ``table`` was opened before the rows were read: a run that ends right now has its row then.

    Of an attempt that made several, it is the last.

    Commits from before the oldest row are left out: the retention of run history has dropped their rows.
    """
    known = {(row.run_id, row.attempt) for row in rows}
    oldest = min((row.started_at or row.timestamp for row in rows), default=datetime.min.replace(tzinfo=UTC))
    stamps = []
    for stamp in table.stamps():
        if stamp.app_id not in app_ids(key) or not _has_row_here(project, stamp) or stamp.committed_at < oldest:
            continue
        attempt = attempt_of(key, stamp)
        if (attempt.run_id, attempt.attempt) not in known:
            # One row for an attempt, although each batch of a stream is a commit: the newest shows how far it came.
            known.add((attempt.run_id, attempt.attempt))
            stamps.append(stamp)
    return stamps[::-1]


def _has_row_here(project: Project, stamp: CommittedStamp) -> bool:
    """Whether the run history of the project, in its environment, is to have the run of a commit."""
    facts = CommitFacts.of(stamp)
    return facts.run_id is not None and facts.history in (None, project.history)


def attempt_of(key: NodeKey, stamp: CommittedStamp) -> NodeAttempt:
    """The attempt that made a commit, as far as the commit says."""
    facts = CommitFacts.of(stamp)
    return NodeAttempt(
        str(facts.run_id),
        REWIND if facts.mode == REWIND else None,
        facts.attempt or 1,
        started_at=stamp.committed_at,
        partial=facts.partial,
        key=key,
        partition_key=partition_label(facts.bounds, facts.partitions or ()),
    )


def _commits_of(project: Project, attempt: NodeAttempt) -> list[CommittedStamp]:
    """The commits of an attempt, newest first: one, or several for a snapshot."""
    stamps: list[CommittedStamp] = []
    if attempt.key not in project.graph.nodes:
        return stamps
    for stamp in TableHandle.open(project.target(attempt.key)).stamps():
        facts = CommitFacts.of(stamp)
        if (facts.run_id, facts.node, facts.attempt or 1) == (attempt.run_id, str(attempt.key), attempt.attempt):
            stamps.append(stamp)
        elif (stamps and facts.node) or stamp.committed_at < attempt.started_at - CLOCKS_APART:
            break
    return stamps
