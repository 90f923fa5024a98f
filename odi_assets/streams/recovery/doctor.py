"""Finds where the checkpoint of a stream node, its table and the tables of kept rows disagree. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.delta.table import TableHandle
from odi_assets.errors import CheckpointError, IdentityMismatchError, OdiError, SourceError
from odi_assets.nodes.node import Node
from odi_assets.nodes.recovery.findings import Disagreement, Kind, over
from odi_assets.nodes.remedies import remedy_of
from odi_assets.spark.connect_worker import TOKEN_REMEDY
from odi_assets.streams.planning.changed_settings import require_settings_hold
from odi_assets.streams.planning.inputs import (
    changed_files,
    planned_reads,
    require_goes_on,
    require_known,
    stream_inputs,
)
from odi_assets.streams.planning.kept_rows import (
    batches_text,
    kept_marks,
    kept_tables,
    late_rows_lost,
    lost_for_good,
    numbers,
    spans_of,
)
from odi_assets.streams.planning.marks import Match, StreamMarks, checkpoint_base, out_of_step, stream_marks
from odi_assets.streams.planning.plan import require_own_stream
from odi_assets.streams.recovery.repair import checkpoint_in_use, missing_description, why_stuck


def checkpoint_and_table(node: Node, target: TableHandle) -> Iterator[Disagreement]:
    """What does not belong together of a stream's checkpoint and its table."""
    try:
        require_own_stream(node, target)
        marks = stream_marks(node, target)
        require_known(node, marks)
    except IdentityMismatchError as error:
        yield Disagreement(node.key, Kind.REDEFINED, error.message, str(error.fix))
        return
    if marks.match is Match.TABLE_ONE_AHEAD and marks.last is not None:
        text = f"its table has batch {marks.last.batch}, and its query ended before it noted that"
        remedy = f"odi run {node.command}: it goes on from there (or the query runs right now)"
        yield Disagreement(node.key, Kind.BATCH_IN_FLIGHT, text, remedy)
    elif marks.match.can_go_on and marks.is_cut_short and marks.last is not None:
        text = f"a run ended after batch {marks.last.batch}: what its watermark has passed is still in the state"
        remedy = f"odi run {node.command}: it goes on from there, even without new data (or the query runs right now)"
        yield Disagreement(node.key, Kind.BATCH_IN_FLIGHT, text, remedy)
    elif not marks.match.can_go_on:
        why = out_of_step(node, marks)
        yield Disagreement(node.key, Kind.STREAM_APART, why.message, str(why.fix))
    if marks.match.can_go_on:
        yield from _edited(node, marks)
    yield from _kept_rows(node, target, marks)
    try:
        require_goes_on(node, marks)
    except SourceError as error:
        yield Disagreement(node.key, Kind.INPUT_STUCK, error.message, remedy_of(node, error.fix) or "see the message")
    if marks.last is not None and marks.last.token_logged:
        text = f"batch {marks.last.batch} was computed by a Spark Connect server that has its token in its log"
        yield Disagreement(node.key, Kind.TOKEN_LOGGED, text, TOKEN_REMEDY)


def _edited(node: Node, marks: StreamMarks) -> Iterator[Disagreement]:
    """An edited setting that the rows of checkpoint and table depend on."""
    try:
        require_settings_hold(node, marks)
    except CheckpointError as error:
        yield Disagreement(node.key, Kind.REDEFINED, error.message, str(error.fix))


def _kept_rows(node: Node, target: TableHandle, marks: StreamMarks) -> Iterator[Disagreement]:
    """The tables of kept rows that are not in step with the batches: a run ended early, or a table was put back or is
    gone."""
    if not marks.match.can_go_on:
        return
    kept = kept_marks(node, target, marks)
    for text, remedy in lost_for_good(node, target, kept):
        yield Disagreement(node.key, Kind.KEPT_LOST, text, remedy)
    for mark in kept:
        if mark.has_work:
            remedy = f"odi run {node.command}: it puts that right, even without new data (or a run is at it right now)"
            yield Disagreement(node.key, Kind.KEPT_BEHIND, "; ".join(mark.apart), remedy)


def checkpoint_files(node: Node) -> Iterator[Disagreement]:
    """What keeps a query from going on from its checkpoint, of one on this machine."""
    checkpoint = checkpoint_in_use(node)
    why = why_stuck(node, checkpoint)
    # Of a query that runs, files come and go: what counts is wrong both times.
    if why is not None and why_stuck(node, checkpoint) is not None:
        remedy = (
            f"`odi tables repair {node}` sets aside what keeps the query from going on, and says what to run next; "
            "or put it back from a copy"
        )
        yield Disagreement(node.key, Kind.DAMAGED, why, remedy)
    elif why is None and (missing := missing_description(checkpoint)):
        text = f"{checkpoint.uri}: {missing} is gone, with which an edit of the query is compared"
        remedy = f"odi run {node.command}, before its query is edited: the next batch writes it again"
        yield Disagreement(node.key, Kind.DAMAGED, text, f"put it back from a copy; or {remedy}")


def not_looked_at(node: Node) -> Iterator[tuple[str, str]]:
    """What is not read of a checkpoint, each with what reads it."""
    yield f"older batches in the checkpoint of {node}", f"odi checkpoint files {node} reads them"
    if not checkpoint_base(node).is_local:
        yield f"the checkpoint of {node}, in a store", f"odi checkpoint files {node} reads it"
    try:
        marks = stream_marks(node, TableHandle.open(node.target.location))
        reads = planned_reads(node, stream_inputs(node), marks.log, marks.last) if marks.match.can_go_on else {}
    except (OdiError, OSError) as error:
        disagreement = over(node.key, error)
        yield (
            f"whether landing files of {node} changed after a batch had read them: {disagreement.message}",
            disagreement.remedy,
        )
        return
    yield from changed_files(node, reads.values())


def kept_gaps(node: Node) -> str | None:
    """The batches whose late or unmatched rows were never kept, in words. Late rows that were kept, and are no more,
    are a disagreement."""
    if not kept_tables(node):
        return None
    try:
        target = TableHandle.open(node.target.location)
        marks = kept_marks(node, target, stream_marks(node, target))
    except (OdiError, OSError):
        # `checkpoint_and_table` names it.
        return None
    never = {mark.which: set(numbers(mark.lost)) - set(numbers(late_rows_lost(node, target, mark))) for mark in marks}
    gaps = [f"{which} lacks the rows of {batches_text(spans_of(lost))}" for which, lost in never.items() if lost]
    return "; ".join(gaps) or None
