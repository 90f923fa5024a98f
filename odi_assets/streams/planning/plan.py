"""The plan of one run of a stream node: what its inputs have gained since its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, IdentityMismatchError, SourceError
from odi_assets.nodes.mark import UNTIL_READ, NodeMark
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.identity import other_writer
from odi_assets.nodes.planning.plan import NodePlan, WritePlan
from odi_assets.nodes.planning.refresh import losses_of_others, require_consent
from odi_assets.nodes.planning.start import Start
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.sources.errors import is_about_header, unreadable_file
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import Identity
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import Source
from odi_assets.streams.inputs.files import StreamedFiles
from odi_assets.streams.inputs.input import News, StreamedInput
from odi_assets.streams.planning.changed_settings import require_settings_hold
from odi_assets.streams.planning.inputs import news_of, read_before, require_unread, stream_inputs, with_way_back
from odi_assets.streams.planning.kept_rows import KeptMark, kept_marks
from odi_assets.streams.planning.marks import StreamMarks, next_checkpoint, require_in_step, stream_marks
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FIX_OF_HEADER = (
    "nothing of the batch was written: put the file back, under its name, with the columns of `read.schema` in their "
    "order; or load the files with a node that has `read.rescued: COLUMN`, which reads them by the names in their "
    'headers, and stream its table; `options: {enforceSchema: "true"}` takes columns by position, whatever headers say'
)
_CUT_SHORT = "what the watermark has passed leaves the state"


@dataclass(frozen=True)
class StreamMark:
    """How far a stream's checkpoint has read one of its inputs: the offset of the last batch in the node's table."""

    offset: Mapping[str, Any] | None
    measures: Identity | None = field(default=None, compare=False)

    @property
    def value(self) -> Any:
        return self.offset


@dataclass(frozen=True, kw_only=True)
class StreamSnapshot(SourceSnapshot):
    """An input of a stream as it was when the run was planned."""

    source: Source
    at: Position
    news: News

    @property
    def position(self) -> Position:
        return self.at

    @property
    def summary(self) -> str:
        return self.source.label

    @property
    def file_count(self) -> int | None:
        return self.news.files

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        return self.source.snapshot().rows(spark, only)

    def read_error(self, text: str) -> SourceError | None:
        found = self.source.snapshot().read_error(text) or unreadable_file(self.label, text)
        if found is None or not is_about_header(text):
            return found
        return SourceError(found.message, fix=_FIX_OF_HEADER, **found.fields)


@dataclass(frozen=True, kw_only=True)
class StreamRead(PlannedRead):
    """What the batches of one run will read of an input; they fix its bounds, batch by batch."""

    news: News

    def whole(self) -> PlannedRead:
        return self

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        del wanted
        return self


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
    """

    marks: StreamMarks
    checkpoint: Location
    streams: tuple[StreamedInput, ...]
    has_batches: bool = True
    cut_short: bool = False
    kept: tuple[KeptMark, ...] = ()

    @property
    def hwm_after(self) -> NodeMark | None:
        return self.start.hwm if self.nothing_new else UNTIL_READ

    @property
    def summary(self) -> str:
        """What will be read, and which kept rows are looked for, in words."""
        kept = [text for mark in self.kept for text in mark.work]
        return "; ".join([super().summary, *([_CUT_SHORT] if self.cut_short else []), *kept])

    def to_json(self) -> dict[str, Any]:
        kept = {
            mark.which: {
                "behind": mark.is_behind,
                "lost": [*map(list, mark.lost)],
                "undone": [*map(list, mark.undone.batches if mark.undone else ())],
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
    if request.bounds is not None:
        raise ConfigError(
            f"{node} is a stream, which goes on from its checkpoint, and the run is to take a range ({request.bounds})",
            fix=f"run it without --from and --to, or read all its inputs again: odi run {node.command} --full-refresh",
            node=str(node),
        )
    if not request.full_refresh:
        require_own_stream(node, target)
    marks = stream_marks(node, target)
    if not request.full_refresh:
        require_in_step(node, marks)
        require_settings_hold(node, marks)
    fence = app_id(node.key)
    hwm = None if marks.last is None else marks.last.mark
    streams = stream_inputs(node)
    log = ProgressLog(next_checkpoint(node)) if request.full_refresh else marks.log
    last = None if request.full_refresh else marks.last
    try:
        news = news_of(streams, log, last)
    except SourceError as error:
        raise with_way_back(node, target, error) from error
    if last is not None:
        require_unread(node, tuple(read_before(streams, log, last, news)), log.location.uri)
    reads = tuple(_read(source, one, last, news) for source, one in zip(node.sources, streams, strict=True))
    plan = StreamPlan(
        node,
        request,
        target,
        Start(hwm, None, None, None, None, datetime.now(UTC)),
        WritePlan(node.config.write.mode, fence, target.transaction_number(fence) + 1),
        reads,
        waited={str(other): TableHandle.open(node.project.target(other)).position for other in node.waits_for},
        marks=marks,
        checkpoint=log.location,
        streams=streams,
    )
    if request.full_refresh:
        losses = require_consent(plan, _losses(plan))
        return replace(plan, write=replace(plan.write, mode=WriteMode.OVERWRITE), losses=losses)
    return _with_work(plan, reads, log)


def _with_work(plan: StreamPlan, reads: Sequence[StreamRead], log: ProgressLog) -> StreamPlan:
    """The plan with what there is to do: batches, or rows that are kept beside the table."""
    planned, committed = (max(numbers, default=-1) for numbers in (log.planned(), log.committed()))
    has_news = planned > committed or any(read.news.files for read in reads)
    cut_short = not has_news and plan.marks.is_cut_short
    kept = kept_marks(plan.node, plan.target, plan.marks)
    nothing_new = not has_news and not cut_short and not any(mark.has_work for mark in kept)
    return replace(plan, nothing_new=nothing_new, has_batches=has_news or cut_short, cut_short=cut_short, kept=kept)


def _read(source: Source, one: StreamedInput, last: StreamFacts | None, found: Mapping[str, News]) -> StreamRead:
    offset = None if last is None else (last.offsets.get(one.name) or {}).get("end")
    news = found[one.name]
    identity = Identity("stream", source.label, "offset", place=source.uri)
    return StreamRead(
        snapshot=StreamSnapshot(
            name=source.name,
            label=source.label,
            format=one.format if isinstance(one, StreamedFiles) else "delta",
            identity=identity,
            source=source,
            at=source.position(),
            news=news,
        ),
        summary=news.summary,
        before=None if offset is None else StreamMark(offset),
        after=StreamMark(news.mark) if news.files else (None if offset is None else StreamMark(offset)),
        follows=True,
        news=news,
    )


def require_own_stream(node: Node, target: TableHandle) -> None:
    """Raises IdentityMismatchError if another node or project wrote the table that a stream node adds to."""
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
    for one in plan.streams:
        gone = one.missing(plan.marks.log) if isinstance(one, StreamedFiles) else []
        if gone:
            text = f"rows of {counted(len(gone), 'file')} of {one.label} gone since"
            yield Loss(text, tuple(gone), for_good=True)
    yield from losses_of_others(plan)
