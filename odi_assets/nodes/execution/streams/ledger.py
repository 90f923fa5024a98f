"""Writes ``meta_batches``: a record for each batch in a stream node's table, from its stamp and Spark's progress."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.stream_marks import checkpoint_named
from odi_assets.nodes.result import ADOPT, REWIND
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.state.delta.batches import BatchLog, BatchRecord
from odi_assets.streaming.query.run import BatchProgress

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StreamLedger:
    """The records of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._log: BatchLog = node.project.open_batches()
        known = self._log.of_node(str(node))
        self._upto = max((record.table_version for record in known if record.table_version is not None), default=-1)
        self._progress: dict[int, BatchProgress] = {}

    def note(self, progress: BatchProgress) -> None:
        """Keep what Spark reports of a batch of the running query, for its record."""
        self._progress[progress.batch] = progress

    def write(self, table: TableHandle, query: str | None = None) -> list[BatchRecord]:
        """Record the batches that the node's table has and ``meta_batches`` lacks; return the records, in order.

        Args:
            table: the node's table, as it is now.
            query: the query that the noted progress is of.

        Raises:
            StateError: they could not be written.
        """
        records = [
            with_progress(one, self._progress.get(one.batch)) if one.query == query else one
            for one in records_of(self.node, table, self._upto)
        ]
        self._log.record(records)
        for record in records:
            self._upto = max(self._upto, record.table_version or 0)
            self._progress.pop(record.batch, None)
        return records


def records_of(node: Node, table: TableHandle, after: int = -1) -> list[BatchRecord]:
    """The records of the batches in the log of a node's table, in order, made from the stamps.

    Args:
        after: only commits after this version.
    """
    stamps = takewhile(lambda stamp: stamp.version > after, table.stamps())
    found = [
        record_of(node, stamp, facts.stream, facts)
        for stamp, facts in _in_effect(node, stamps)
        if facts.stream is not None
    ]
    return found[::-1]


def _in_effect(node: Node, stamps: Iterator[CommittedStamp]) -> Iterator[tuple[CommittedStamp, CommitFacts]]:
    """The commits of batches, newest first, without those that a rewind has undone, and without commits that
    add no rows: of rewinds and adoptions."""
    undone_after: int | None = None
    for stamp in stamps:
        if stamp.app_id != app_id(node.key) or (undone_after is not None and stamp.version > undone_after):
            continue
        facts = CommitFacts.of(stamp)
        if facts.rewound_to is not None:
            undone_after = facts.rewound_to
        elif facts.mode not in (REWIND, ADOPT):
            yield stamp, facts


def record_of(node: Node, stamp: CommittedStamp, batch: StreamFacts, facts: CommitFacts) -> BatchRecord:
    """The record of one commit."""
    return BatchRecord(
        node=str(node),
        query=batch.query,
        batch=batch.batch,
        checkpoint=checkpoint_named(node, batch.checkpoint).uri,
        planned_at=_moment(batch.planned_ms),
        committed_at=stamp.committed_at,
        watermark=_moment(batch.watermark_ms),
        offsets=batch.offsets,
        rows_out=facts.rows_written,
        rows_dropped=None if batch.rows_dropped is None else sum(batch.rows_dropped),
        run_id=facts.run_id,
        table_version=stamp.version,
    )


def with_progress(record: BatchRecord, progress: BatchProgress | None) -> BatchRecord:
    """A record with what Spark reported of its batch."""
    if progress is None:
        return record
    operators = progress.operators
    return replace(
        record,
        rows_in=progress.rows_in,
        operators=operators,
        durations_ms=progress.durations_ms,
        rows_dropped=sum(one.rows_dropped for one in operators),
        rows_removed=sum(one.rows_removed for one in operators),
        state_rows=sum(one.rows_total for one in operators),
        state_bytes=sum(one.state_bytes for one in operators),
    )


def _moment(ms: int) -> datetime | None:
    return _EPOCH + timedelta(milliseconds=ms) if ms else None
