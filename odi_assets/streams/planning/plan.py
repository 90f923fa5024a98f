"""The plan of one run of a stream node: what its inputs have gained since its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, IdentityMismatchError, SourceError
from odi_assets.nodes.mark import UNTIL_READ, NodeMark
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.plan import NodePlan, WritePlan
from odi_assets.nodes.planning.refresh import losses_of_others, require_consent
from odi_assets.nodes.planning.start import Start
from odi_assets.nodes.planning.writers import other_writer, require_no_quarantine
from odi_assets.nodes.request import RunRequest
from odi_assets.sources.losses import Loss
from odi_assets.sources.streamed import StreamedSource
from odi_assets.streams.planning.changed_settings import require_settings_hold
from odi_assets.streams.planning.inputs import (
    changed_files,
    planned_reads,
    read_before,
    require_unread,
    stream_inputs,
    with_way_back,
)
from odi_assets.streams.planning.kept_rows import KeptMark, kept_marks, lost_since
from odi_assets.streams.planning.marks import (
    StreamMarks,
    is_of_no_stream,
    next_checkpoint,
    require_in_step,
    stream_marks,
)
from odi_assets.streams.query.progress_log import ProgressLog

_CUT_SHORT = "what the watermark has passed leaves the state"


@dataclass(frozen=True, kw_only=True)
class StreamPlan(NodePlan):
    """What one run of a stream node will do.

    Attributes:
        marks: where the node stands.
        checkpoint: of the query that runs: a new one for a full refresh.
        streams: the inputs.
        has_batches: the query has a batch to run; else there are kept rows to look for, if anything.
        cut_short: that batch is the one without new rows, in which what the watermark has passed leaves the state.
        kept: how far the tables of kept rows go.
        lost: kept rows that no run brings back, of batches since the last one with kept rows, each with what to do.
    """

    marks: StreamMarks
    checkpoint: Location
    streams: tuple[StreamedSource, ...]
    has_batches: bool = True
    cut_short: bool = False
    kept: tuple[KeptMark, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def hwm_after(self) -> NodeMark | None:
        return self.start.hwm if self.nothing_new else UNTIL_READ

    @property
    def summary(self) -> str:
        """What will be read, and which kept rows are looked for, in words."""
        kept = [text for mark in self.kept for text in mark.work]
        beyond = [what for what, _ in self._beyond_repair]
        return "; ".join([super().summary, *([_CUT_SHORT] if self.cut_short else []), *kept, *beyond])

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{what}; {way}" for what, way in self._beyond_repair)

    @property
    def _beyond_repair(self) -> tuple[tuple[str, str], ...]:
        return (*changed_files(self.node, self.reads), *self.lost)

    def to_json(self) -> dict[str, Any]:
        kept = {
            mark.which: {
                "behind": mark.is_behind,
                "lost": [*map(list, mark.lost)],
                "undone": [*map(list, mark.undone.batches if mark.undone else ())],
                "returns_from": mark.returns.version if mark.returns else None,
            }
            for mark in self.kept
        }
        return super().to_json() | {"kept": kept}

    @property
    def moves_hwm(self) -> bool:
        """No: the mark is the checkpoint, and state has no HWM of the node."""
        return False


def planned_stream(node: Node, target: TableHandle, request: RunRequest) -> StreamPlan:
    """What a run of a stream node will do. Changes nothing.

    Raises:
        ConfigError: it cannot be run as requested.
        IdentityMismatchError: the table is another node's, its rows are of another query, or rows would be read again.
        CheckpointError, TargetBehindStateError: checkpoint and table are apart, or a setting was edited.
        LossError: a full refresh would lose rows, and the request does not say that it may.
        SourceError, TableError: an input cannot be examined.
    """
    if request.is_bounded:
        raise ConfigError(
            f"{node} is a stream, which goes on from its checkpoint, and the run is to take a part ({request.part})",
            fix="run it without a range or partitions, or read all its inputs again: "
            f"odi run {node.command} --full-refresh",
            node=str(node),
        )
    (require_no_quarantine if request.full_refresh else require_own_stream)(node, target)
    marks = stream_marks(node, target, streams_only=request.full_refresh)
    if not request.full_refresh:
        require_in_step(node, marks)
        require_settings_hold(node, marks)
    fence = app_id(node.key)
    hwm = None if marks.last is None else marks.last.mark
    streams = stream_inputs(node)
    log = ProgressLog(next_checkpoint(node)) if request.full_refresh else marks.log
    last = None if request.full_refresh else marks.last
    try:
        reads = planned_reads(node, streams, log, last)
    except SourceError as error:
        raise with_way_back(node, target, error) from error
    if last is not None:
        require_unread(node, tuple(read_before(node, streams, log, last, reads)), log.location.uri)
    plan = StreamPlan(
        node,
        request,
        target,
        Start(hwm, None, None, None, None, datetime.now(UTC)),
        WritePlan(node.config.write.mode, fence, target.transaction_number(fence) + 1),
        tuple(reads.values()),
        waited={str(other): TableHandle.open(node.project.target(other)).position for other in node.waits_for},
        marks=marks,
        checkpoint=log.location,
        streams=streams,
    )
    if request.full_refresh:
        losses = require_consent(plan, _losses(plan))
        return replace(plan, write=replace(plan.write, mode=WriteMode.OVERWRITE), losses=losses)
    return _with_work(plan, log)


def _with_work(plan: StreamPlan, log: ProgressLog) -> StreamPlan:
    """The plan with what there is to do: batches, or rows that are kept beside the table."""
    planned, committed = (max(numbers, default=-1) for numbers in (log.planned(), log.committed()))
    has_news = planned > committed or any(read.file_count for read in plan.reads)
    cut_short = not has_news and plan.marks.is_cut_short
    kept = kept_marks(plan.node, plan.target, plan.marks)
    nothing_new = not has_news and not cut_short and not any(mark.has_work for mark in kept)
    lost = tuple(lost_since(plan.node, plan.target, kept))
    return replace(
        plan, nothing_new=nothing_new, has_batches=has_news or cut_short, cut_short=cut_short, kept=kept, lost=lost
    )


def require_own_stream(node: Node, target: TableHandle) -> None:
    """Raises IdentityMismatchError if another node or project wrote the table that a stream node adds to."""
    require_no_quarantine(node, target)
    writer = other_writer(node, target)
    if writer is None:
        return
    raise IdentityMismatchError(
        f"{node}: the table at {target.location.uri} was written by {writer}, and {node} of project "
        f"{node.project.config.project} would add its own rows",
        fix=f"if it was renamed and the rows are the same, take table and checkpoint over: odi state adopt {node}; "
        "or rename it back; or give it a table of its own (`write.path`); "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
        node=str(node),
        writer=str(writer),
        target=target.location.uri,
    )


def _losses(plan: StreamPlan) -> Iterator[Loss]:
    if not plan.target.live_files:
        return
    for source in plan.streams:
        yield from source.losses(plan.marks.log)
    if is_of_no_stream(plan.node, plan.target):
        yield Loss("what runs loaded before it was a stream, where its inputs do not hold it any more", for_good=True)
    yield from losses_of_others(plan)
