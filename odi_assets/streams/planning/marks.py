"""A stream node's mark: the batches in its table and in its checkpoint, and whether the two belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from odi_assets.config.models import StreamSettings
from odi_assets.connections.location import Location
from odi_assets.delta.history import CommittedStamp, restored_version
from odi_assets.delta.table import TableHandle
from odi_assets.errors import CheckpointError, IdentityMismatchError, OdiError, TargetBehindStateError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id, node_of_app
from odi_assets.nodes.planning.target_check import rows_removed_since
from odi_assets.nodes.result import ADOPT, REWIND
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.state.delta.batches import BatchRecord
from odi_assets.streams.query.progress_log import PlannedBatch, ProgressLog

CHECKPOINT_FOLDER = "_odi_stream"
"""The folder of a stream's checkpoint inside its table's: no vacuum cleans names that begin with ``_``."""


class Match(StrEnum):
    """Whether the checkpoint of a stream node and its table belong together, and if not, which of them does not."""

    IN_STEP = "in step"
    TABLE_ONE_AHEAD = "table one batch ahead"
    CHECKPOINT_OLDER = "older copy of the checkpoint"
    CHECKPOINT_GONE = "checkpoint gone"
    CHECKPOINT_TORN = "checkpoint lacks a file"
    TABLE_BEHIND = "table behind its checkpoint"
    OTHER_QUERY = "table of another query"

    @property
    def can_go_on(self) -> bool:
        """Whether the next run goes on by itself."""
        return self in (Match.IN_STEP, Match.TABLE_ONE_AHEAD)


@dataclass(frozen=True)
class StreamMarks:
    """Where a stream node stands.

    Attributes:
        log: the logs of the checkpoint that its next run uses.
        last: the last batch in its table; None if it has none.
        stamp: of the commit with ``last``; None if the table's log no longer holds it.
        match: whether the checkpoint and the table belong together.
        why: where it cannot go on: what does not belong together.
        held: the batch whose rows the table has: ``last``, unless somebody else put the table back; None if that is not
            known.
        undisturbed: the last version of the table before somebody else took its rows away; None if nobody did.
    """

    log: ProgressLog
    last: StreamFacts | None
    stamp: CommittedStamp | None
    match: Match
    why: str = ""
    held: StreamFacts | None = None
    undisturbed: int | None = None

    @property
    def checkpoint(self) -> Location:
        return self.log.location

    @property
    def is_cut_short(self) -> bool:
        """Whether a run ended before the batch without new rows that evicts from the state what the watermark of the
        last batch has passed. False for a checkpoint in an object store: such a batch cannot be planned there."""
        last = self.last
        return (
            last is not None
            and self.log.location.is_local
            and last.evicts
            and self.log.next_watermark_ms(last.batch) > last.watermark_ms
        )


def stream_facts(batch: PlannedBatch, checkpoint: Location) -> StreamFacts:
    """What the commit of ``batch`` says of it."""
    name = checkpoint.uri.rstrip("/").rpartition("/")[2]
    return StreamFacts(
        query=batch.query,
        batch=batch.batch,
        checkpoint=name,
        offsets=batch.offsets,
        watermark_ms=batch.watermark_ms,
        planned_ms=batch.planned_ms,
    )


def stream_stamps(target: TableHandle, fence: str) -> Iterator[tuple[CommittedStamp, StreamFacts | None]]:
    """The commits fenced by ``fence``, newest first, each with the batch whose rows are in the table from it on; None
    for a rewind to before the first batch, and for commits of a node that was no stream.

    Commits before an adoption are fenced by the node that was adopted.
    """
    wanted: str | None = fence
    for stamp in target.stamps():
        if wanted is None and node_of_app(stamp.app_id) is not None:
            wanted = stamp.app_id
        if stamp.app_id == wanted:
            facts = CommitFacts.of(stamp)
            yield stamp, facts.stream
            wanted = None if facts.mode == ADOPT else wanted


def in_effect(stamps: Iterable[CommittedStamp]) -> Iterator[tuple[CommittedStamp, CommitFacts]]:
    """The commits of batches, newest first, without those that a rewind has undone, and without commits that
    add no rows: of rewinds and adoptions."""
    undone_after: int | None = None
    for stamp in stamps:
        if undone_after is not None and stamp.version > undone_after:
            continue
        facts = CommitFacts.of(stamp)
        if facts.rewound_to is not None:
            undone_after = facts.rewound_to
        elif facts.mode not in (REWIND, ADOPT):
            yield stamp, facts


def batch_at(node: Node, target: TableHandle, version: int) -> StreamFacts | None:
    """The batch whose rows the table of a node had at a version; None if it had none, or that is not known."""
    stamps = stream_stamps(target, app_id(node.key))
    return next((facts for stamp, facts in stamps if stamp.version <= version), None)


def settings_of(node: Node) -> StreamSettings:
    """How a node streams, as the project file says; without settings for a node that is no stream any more."""
    return node.config.stream or StreamSettings()


def checkpoint_base(node: Node) -> Location:
    """Where the first checkpoint of a node is; those after a full refresh are beside it."""
    checkpoint = settings_of(node).checkpoint
    if checkpoint:
        return node.project.location(node.config.write.connection, checkpoint)
    return node.target.location.child(CHECKPOINT_FOLDER)


def checkpoint_named(node: Node, name: str) -> Location:
    """The checkpoint of a node that a commit calls ``name``."""
    base = checkpoint_base(node)
    return replace(base, uri=f"{base.uri.rstrip('/').rpartition('/')[0]}/{name}")


def checkpoint_of(node: Node, records: Sequence[BatchRecord]) -> Location | None:
    """The checkpoint of the last of a node's batches, wherever the project is now; None without a batch."""
    places = [record.checkpoint for record in records if record.checkpoint]
    return checkpoint_named(node, places[-1].rstrip("/").rpartition("/")[2]) if places else None


def next_checkpoint(node: Node) -> Location:
    """A place for the checkpoint of a full refresh: there is nothing in it, not even what is left of a query.

    Raises:
        CheckpointError: it cannot be looked at.
    """
    name = checkpoint_base(node).uri.rstrip("/").rpartition("/")[2]
    number = 1
    while True:
        checkpoint = checkpoint_named(node, name if number == 1 else f"{name}-{number}")
        if not ProgressLog(checkpoint).names(""):
            return checkpoint
        number += 1


def is_of_no_stream(node: Node, target: TableHandle) -> bool:
    """Whether the node's rows were loaded by runs that were no streams."""
    return _is_of_no_stream(next(stream_stamps(target, app_id(node.key)), None))


def _is_of_no_stream(newest: tuple[CommittedStamp, StreamFacts | None] | None) -> bool:
    return newest is not None and newest[1] is None and not CommitFacts.of(newest[0]).before_first_run


def last_batch(
    node: Node, target: TableHandle, *, streams_only: bool = False
) -> tuple[CommittedStamp | None, StreamFacts | None]:
    """The last batch in a node's table, with the stamp of its commit if the log still holds it.

    Args:
        streams_only: what runs that were no streams loaded counts as nothing. Else it is refused.

    Raises:
        IdentityMismatchError: the node's rows were loaded by runs that were no streams.
        StateError: ``meta_batches`` cannot be read.
    """
    fence = app_id(node.key)
    if not target.transaction_number(fence):
        return None, None
    newest = next(stream_stamps(target, fence), None)
    if _is_of_no_stream(newest):
        if streams_only:
            return None, None
        raise IdentityMismatchError(
            f"{node}: its table was loaded by runs that were no streams; a stream reads its inputs from their "
            "beginning, and would add their rows again",
            fix=f"rebuild the table by the stream (odi run {node.command} --full-refresh), or give the stream a "
            "table of its own (`write.path`)",
            node=str(node),
        )
    if newest is not None:
        return newest
    records = node.project.open_batches().of_node(str(node))
    return None, _facts_of(records[-1]) if records else None


def _facts_of(record: BatchRecord) -> StreamFacts:
    return StreamFacts(
        query=record.query,
        batch=record.batch,
        checkpoint=(record.checkpoint or CHECKPOINT_FOLDER).rstrip("/").rpartition("/")[2],
        offsets=record.offsets,
        watermark_ms=round(record.watermark.timestamp() * 1000) if record.watermark else 0,
        planned_ms=round(record.planned_at.timestamp() * 1000) if record.planned_at else 0,
    )


def stream_marks(node: Node, target: TableHandle, *, streams_only: bool = False) -> StreamMarks:
    """Where a stream node stands. Changes nothing.

    Args:
        streams_only: as in :func:`last_batch`.

    Raises:
        IdentityMismatchError: the node's rows were loaded by runs that were no streams.
        CheckpointError: the checkpoint cannot be read.
    """
    marks = _marks(node, target, streams_only)
    if marks.match is not Match.TABLE_BEHIND:
        return marks
    # A query whose client was killed goes on on its Spark Connect server until it notices: it may have committed a
    # batch after ``target`` was read. A table that is read after the checkpoint has all that the checkpoint has.
    now = TableHandle.open(target.location)
    return marks if now.version == target.version else _marks(node, now, streams_only)


def _marks(node: Node, target: TableHandle, streams_only: bool) -> StreamMarks:
    stamp, last = last_batch(node, target, streams_only=streams_only)
    checkpoint = checkpoint_base(node) if last is None else checkpoint_named(node, last.checkpoint)
    log = ProgressLog(checkpoint)
    change = None if stamp is None else rows_removed_since(stamp.version, target)
    if stamp is None or change is None:
        match, why = _match(log, last, target)
        return StreamMarks(log, last, stamp, match, why, last)
    back = restored_version(change.commit.operation, change.commit.parameters)
    held = None if back is None else batch_at(node, target, back)
    return StreamMarks(log, last, stamp, Match.TABLE_BEHIND, f"the table was {change}", held, stamp.version)


def _match(log: ProgressLog, last: StreamFacts | None, target: TableHandle) -> tuple[Match, str]:
    query = log.query()
    committed, planned = (max(numbers, default=-1) for numbers in (log.committed(), log.planned()))
    if last is None:
        if committed < 0:
            return Match.IN_STEP, ""
        now = "has none of them" if target.exists else "does not exist"
        return Match.TABLE_BEHIND, f"the checkpoint has read up to batch {committed}, and the table {now}"
    if query is None:
        return Match.CHECKPOINT_GONE, f"the table has batch {last.batch}, and there is no checkpoint"
    if query != last.query:
        why = f"the table has batch {last.batch} of query {last.query}, and the checkpoint is of query {query}"
        return Match.OTHER_QUERY, why
    if committed > last.batch:
        why = f"the checkpoint has read up to batch {committed}, and the table has batch {last.batch}"
        return Match.TABLE_BEHIND, why
    same = log.batch(last.batch)
    if same is not None and last.is_same_batch(stream_facts(same, log.location)):
        if committed == last.batch:
            return Match.IN_STEP, ""
        if committed == last.batch - 1:
            return Match.TABLE_ONE_AHEAD, ""
    if same is not None and last.batch - 1 in _missing(log):
        why = f"the checkpoint lacks its file offsets/{last.batch - 1}, which says from where batch {last.batch} reads"
        return Match.CHECKPOINT_TORN, why
    why = f"the table has batch {last.batch}, and the checkpoint has read up to batch {max(committed, -1)}"
    if planned >= last.batch:
        why += f"; its batch {last.batch} reads other rows"
    return Match.CHECKPOINT_OLDER, why


def _missing(log: ProgressLog) -> set[int]:
    """The batches between those that the offset log holds, which it does not hold: Spark deletes the oldest ones."""
    planned = log.planned()
    return set(range(planned[0], planned[-1])) - set(planned) if planned else set()


def require_in_step(node: Node, marks: StreamMarks) -> None:
    """Raises an OdiError, of a type for each remedy, if table and checkpoint do not belong together."""
    if not marks.match.can_go_on:
        raise out_of_step(node, marks)


def out_of_step(node: Node, marks: StreamMarks) -> OdiError:
    """The error of a stream node that cannot go on, with its remedies."""
    last, uri = marks.last, marks.checkpoint.uri
    refresh = f"rebuild the table from its sources: odi run {node.command} --full-refresh"
    text = f"{node}: {marks.why} ({uri})"
    fields = {"node": str(node), "path": uri}
    if marks.match is Match.CHECKPOINT_GONE:
        fix = f"put the checkpoint back from a copy; or {refresh}"
        return CheckpointError(text, fix=fix, **fields)
    if marks.match is Match.CHECKPOINT_TORN:
        return CheckpointError(text, fix=f"put the file back from a copy of the checkpoint; or {refresh}", **fields)
    if marks.match is Match.OTHER_QUERY:
        fix = f"put the checkpoint of query {last.query if last else ''} back; or {refresh}"
        return IdentityMismatchError(text, fix=fix, **fields)
    if marks.match is Match.CHECKPOINT_OLDER:
        committed = max(marks.log.committed(), default=-1)
        # A batch of the same number that reads other rows is none to go back to.
        is_before = last is not None and 0 <= committed < last.batch
        back = f"take the table back to it: odi state rewind {node} --to-batch {committed}; or " if is_before else ""
        return CheckpointError(text, fix=f"put the newer checkpoint back; or {back}{refresh}", **fields)
    return TargetBehindStateError(text, fix="; or ".join([*_ways_forward(node, marks), refresh]), **fields)


def _ways_forward(node: Node, marks: StreamMarks) -> Iterator[str]:
    """The remedies of a table that has fewer rows than its checkpoint has read."""
    if marks.held is not None:
        yield f"go on from the rows that it has: odi state rewind {node} --to-batch {marks.held.batch}"
    if marks.undisturbed is None:
        yield "put the table back from a copy"
    elif marks.held != marks.last:
        yield f"put its rows back: odi state rewind {node} --to-version {marks.undisturbed}"
