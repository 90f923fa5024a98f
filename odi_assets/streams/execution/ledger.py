"""Writes ``meta_batches``: a record for each batch in a stream node's table, from its stamp and Spark's progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.state.delta.batches import BatchLog, BatchRecord
from odi_assets.streams.planning.marks import checkpoint_named, in_effect, stream_stamps
from odi_assets.streams.query.run import BatchProgress

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StreamLedger:
    """The records of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._log: BatchLog = node.project.open_batches()
        self._known: list[BatchRecord] | None = self._log.of_node(str(node))
        self._upto = -1
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
        if self._known is not None:
            self._upto = self._in_step_upto(table, self._known)
            self._known = None
        records = [
            with_progress(unrecorded, self._progress.get(unrecorded.batch)) if unrecorded.query == query else unrecorded
            for unrecorded in records_of(self.node, table, self._upto)
        ]
        self._log.record(records)
        for record in records:
            self._upto = max(self._upto, record.table_version or 0)
            self._progress.pop(record.batch, None)
        return records

    def _in_step_upto(self, table: TableHandle, known: Sequence[BatchRecord]) -> int:
        """The last version of the table whose batch is recorded; -1 if there is none.

        Records of batches that the table does not have any more are forgotten: after it was put back from a copy, other
        batches get their numbers, and their versions of the table.
        """
        recorded, newer, base = set(map(_identity, known)), [], None
        for record in _batches_of(self.node, table):
            if _identity(record) in recorded:
                base = record
                break
            newer.append(record)
        if base is None and not newer:
            return -1
        query, after = (base.query, base.batch) if base else (newer[-1].query, newer[-1].batch - 1)

        def is_gone(record: BatchRecord) -> bool:
            if record.query == query:
                return record.batch > after
            # A query that the table had before was planned before.
            since = base.planned_at if base else None
            return since is not None and record.planned_at is not None and record.planned_at > since

        for other in {record.query for record in filter(is_gone, known)}:
            self._log.forget_after(str(self.node), other, after if other == query else -1)
        return -1 if base is None or base.table_version is None else base.table_version


def _identity(record: BatchRecord) -> tuple[object, ...]:
    """What identifies a batch: another history of the table has other batches with its number."""
    return record.query, record.batch, record.table_version, record.planned_at


def records_of(node: Node, table: TableHandle, after: int = -1) -> list[BatchRecord]:
    """The records of the batches in the log of a node's table, in order, made from the stamps.

    Args:
        after: only commits after this version.
    """
    return [*_batches_of(node, table, after)][::-1]


def _batches_of(node: Node, table: TableHandle, after: int = -1) -> Iterator[BatchRecord]:
    """The records of :func:`records_of`, newest first."""
    stamps = takewhile(lambda stamped_facts: stamped_facts[0].version > after, stream_stamps(table, app_id(node.key)))
    for stamp, facts in in_effect(stamp for stamp, _ in stamps):
        if facts.stream is not None:
            yield record_of(node, stamp, facts.stream, facts)


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
        rows_dropped=sum(operator.rows_dropped for operator in operators),
        rows_removed=sum(operator.rows_removed for operator in operators),
        state_rows=sum(operator.rows_total for operator in operators),
        state_bytes=sum(operator.state_bytes for operator in operators),
    )


def _moment(ms: int) -> datetime | None:
    return _EPOCH + timedelta(milliseconds=ms) if ms else None
