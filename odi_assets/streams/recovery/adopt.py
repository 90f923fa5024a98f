"""Adopts the table and the checkpoint of a stream node: it or its project was renamed, or its landing files were moved.

The mark of a stream is its checkpoint, which has no name in it. So a commit without rows says under the node's own
fence which batch the table has; what is recorded of earlier batches is copied to the node's name, and the tables of
kept rows learn how far they go. Where landing files are has a place in the checkpoint: the commit names a copy of it
that has them where they are now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.identity import origin_now
from odi_assets.nodes.planning.writers import Writer
from odi_assets.nodes.recovery.adopt import Adoption
from odi_assets.nodes.result import ADOPT
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.sources.streamed import ReadBefore
from odi_assets.state.delta.batches import BatchRecord
from odi_assets.streams.execution.kept_rows import move_mark
from odi_assets.streams.execution.ledger import record_of
from odi_assets.streams.planning.inputs import planned_reads, read_before, require_unread, stream_inputs
from odi_assets.streams.planning.kept_rows import kept_app_id, kept_tables, last_kept
from odi_assets.streams.planning.marks import checkpoint_named, last_batch, next_checkpoint, stream_stamps
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.relocate import relocated


@dataclass(frozen=True)
class FormerStream:
    """The stream that wrote a table, to be gone on with under another name.

    Attributes:
        node: the node that adopts it.
        target: the table.
        name: the node that wrote it; the same one, if only the project was renamed.
        facts: the last batch in the table.
        records: of the batches of that query, in order: of ``meta_batches``, and what the table's log knows beyond it.
        log: of the checkpoint.
        moved: inputs whose files were read elsewhere.
    """

    node: Node
    target: TableHandle
    name: str
    facts: StreamFacts
    records: tuple[BatchRecord, ...]
    log: ProgressLog
    moved: tuple[ReadBefore, ...] = ()

    def take_over(self, facts: CommitFacts) -> None:
        """Make the table the adopting node's. Done again after a crash, it completes what is left.

        Args:
            facts: what the commit says of itself.

        Raises:
            FencedError: somebody committed to the table since; it was left as it is.
        """
        node = self.node
        said = replace(facts, stream=_in_new_place(self) if self.moved else self.facts)
        if self.name != str(node):
            # First what is only looked up, last the commit that makes the table the node's.
            node.project.open_batches().record(replace(record, node=str(node)) for record in self.records)
            for which, location in kept_tables(node).items():
                table = TableHandle.open(location)
                last = last_kept(table, kept_app_id(self.name, which)) if table.exists else None
                if last is not None:
                    move_mark(table, kept_app_id(str(node), which), replace(said, mode=which, stream=last))
        move_mark(self.target, app_id(node.key), said)


def adoption_of_stream(node: Node, target: TableHandle, writer: Writer | None) -> Adoption | None:
    """How ``node`` goes on with the stream that wrote its table; None if nothing changed. Changes nothing.

    Args:
        writer: who wrote its table, if that was not the node itself.

    Raises:
        IdentityMismatchError: the rows do not come from one stream, so that no checkpoint belongs to them; or an input
            was renamed, too.
        SourceError, TableError: an input cannot be examined.
    """
    former = _former_stream(node, target, writer)
    if former is None:
        return None
    inputs = stream_inputs(node)
    rereads = tuple(
        read_before(node, inputs, former.log, former.facts, planned_reads(node, inputs, former.log, former.facts))
    )
    if any(reread.name != reread.input for reread in rereads):
        require_unread(node, rereads, former.log.location.uri)
    changes = [] if writer is None else [f"the table was written by {writer}"]
    changes += [str(reread) for reread in rereads]
    if not changes:
        return None
    batch, former = former.facts.mark, replace(former, moved=rereads)
    return Adoption(node, target, None, batch, batch, origin_now(node), tuple(changes), taken_over=former)


def _former_stream(node: Node, target: TableHandle, writer: Writer | None) -> FormerStream | None:
    """The stream that wrote the table of ``node``; None if the node itself is the writer, and has no batch."""
    for name in (str(node),) if writer is None else writer.nodes:
        stamps = list(stream_stamps(target, app_id(NodeKey.parse(name))))
        known = node.project.open_batches().of_node(name)
        facts = stamps[0][1] if stamps else _of_record(known)
        # Rows of runs that were no streams may have been there before: the first batch has replaced them.
        if facts is not None:
            recorded = {(record.query, record.batch) for record in known}
            newer = [
                record_of(node, stamp, batch_facts, CommitFacts.of(stamp))
                for stamp, batch_facts in reversed(stamps)
                if batch_facts is not None
                and (batch_facts.query, batch_facts.batch) not in recorded
                and CommitFacts.of(stamp).mode != ADOPT
            ]
            records = tuple(record for record in (*known, *newer) if record.query == facts.query)
            log = ProgressLog(checkpoint_named(node, facts.checkpoint))
            return FormerStream(node, target, name, facts, records, log)
    if writer is None:
        last_batch(node, target)
        return None
    raise IdentityMismatchError(
        f"{node}: the table at {target.location.uri} was written by {writer}, and that was no stream; a stream reads "
        "its inputs from their beginning, and would add their rows again",
        fix=f"rebuild the table by the stream: odi run {node.command} --full-refresh; or give it a table of its own",
        node=str(node),
    )


def _of_record(records: list[BatchRecord]) -> StreamFacts | None:
    """The last batch by its record in ``meta_batches``, if the table's log no longer has it."""
    if not records:
        return None
    last = records[-1]
    return StreamFacts(
        query=last.query,
        batch=last.batch,
        checkpoint=(last.checkpoint or "").rstrip("/").rpartition("/")[2],
        offsets=last.offsets,
        watermark_ms=round(last.watermark.timestamp() * 1000) if last.watermark else 0,
        planned_ms=round(last.planned_at.timestamp() * 1000) if last.planned_at else 0,
    )


def _in_new_place(stream: FormerStream) -> StreamFacts:
    """Copy the checkpoint for the files where they are now, and return what is said of the last batch with the copy."""
    log = relocated(
        stream.log, next_checkpoint(stream.node), {moved.name: (moved.folder, moved.now) for moved in stream.moved}
    )
    last = log.batch(stream.facts.batch)
    offsets = stream.facts.offsets if last is None else last.offsets
    return replace(stream.facts, checkpoint=log.location.uri.rstrip("/").rpartition("/")[2], offsets=offsets)
