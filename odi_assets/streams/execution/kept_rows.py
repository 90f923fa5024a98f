"""Rows that a stream gives up, kept in tables of their own: those that came too late, and those a join never matched.

Both tables have one shape: which input the row is of, when its event happened, query and batch that gave it up, the
watermark that decided it, and the row itself as a struct.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import FileChanges, Stamp, commit, settled
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.result import REWIND
from odi_assets.nodes.stream_facts import BatchSpan, StreamFacts
from odi_assets.sources.streamed import StreamedSource
from odi_assets.spark.lazy import F
from odi_assets.streams.execution.kept_shape import EMPTY_TABLE, GivenUp, moment, shaped
from odi_assets.streams.execution.unmatched_rows import evidence_from, unmatched_rows
from odi_assets.streams.planning.kept_rows import (
    LATE,
    UNMATCHED,
    KeptMark,
    UndoneRows,
    batches_text,
    kept_app_id,
    last_kept,
    mark_in_history,
    numbers,
    spans_of,
)
from odi_assets.streams.planning.marks import stream_facts
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import WriteSpec, engine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_APPEND = WriteSpec(WriteMode.APPEND, schema_policy="evolve")
_MOST_BEHIND = 50
"""After this many batches, unmatched rows are looked for although the run goes on."""


@dataclass
class KeptRows:
    """The tables of one node. It can be pickled.

    Attributes:
        facts: what each commit says of the run.
        tables: by their keys in the project file.
        marks: how far the tables went when the run was planned.
        retained: how many batches the checkpoint keeps.
        late_times: by input, SQL of what Spark compares with the watermark (microseconds; columns are
            ``input.column``), empty where it drops no row; of others it is the watermark's column.
    """

    facts: CommitFacts
    tables: Mapping[str, Location]
    marks: Mapping[str, KeptMark]
    retained: int
    late_times: Mapping[str, str] = field(default_factory=dict)
    _unmatched_upto: int | None = field(default=None, init=False)

    def keep(
        self,
        spark: SparkSession,
        facts: StreamFacts,
        inputs: Sequence[StreamedSource],
        log: ProgressLog,
        dropped: tuple[int, ...] | None,
    ) -> None:
        """Keep the rows that a batch gave up, whose own rows are in the node's table already.

        Args:
            dropped: how many rows came too late, by operator; None if nobody can tell.
        """
        if LATE in self.tables and (dropped is None or any(dropped)):
            self._keep_late(spark, facts, inputs, log)
        # What a batch changed in the state can be read once Spark has committed it.
        if UNMATCHED in self.tables:
            behind = facts.batch - 1 - self._upto(facts.query)
            if behind >= min(self.retained - 1, _MOST_BEHIND):
                self.keep_unmatched(spark, facts.query, inputs, log)

    def _keep_late(
        self, spark: SparkSession, facts: StreamFacts, inputs: Sequence[StreamedSource], log: ProgressLog
    ) -> None:
        last = last_kept(self._open(LATE), kept_app_id(self.facts.node, LATE))
        if last is None or last.query != facts.query or last.batch < facts.batch:
            self._commit(LATE, list(_late_rows(spark, facts, inputs, log, self.late_times)), facts)

    def keep_unmatched(
        self, spark: SparkSession, query: str, inputs: Sequence[StreamedSource], log: ProgressLog
    ) -> None:
        """Keep the rows that joins gave up in the batches that Spark has committed since this was last done.

        It starts at the first batch from which the checkpoint still has every change; batches before that are a gap.
        """
        upto, committed = self._upto(query), log.committed()
        last = log.batch(committed[-1]) if committed else None
        if last is None or upto >= last.batch:
            return

        facts = stream_facts(last, log.location)
        first = evidence_from(log, upto, last.batch)
        try:
            self._commit(UNMATCHED, list(unmatched_rows(spark, log, first, last.batch, inputs)), facts, first)
        except Exception as error:
            whole = evidence_from(log, upto, last.batch, look_inside=True)
            if whole == first:
                raise
            _log.warning(
                "%s: files of its state are damaged: odi checkpoint files names them: %s", self.facts.node, error
            )
            self._commit(UNMATCHED, list(unmatched_rows(spark, log, whole, last.batch, inputs)), facts, whole)
        self._unmatched_upto = last.batch

    def bring_in_step(self, log: ProgressLog, *, started_over: bool = False) -> None:
        """Take out the rows of batches that the node's table does not have, and put back the rows of batches that it
        has again: it was put back from a copy, or a rewind died, or it was started over.

        Args:
            log: of the checkpoint that belongs to the node's table.
            started_over: a full refresh has replaced the table since the run was planned.

        Raises:
            FencedError: another run committed to a table of kept rows, which was left as it is.
        """
        for which in self.tables:
            # Another run may have done it since the plan was made.
            is_apart = started_over or (which in self.marks and self.marks[which].is_apart)
            mark = bring_in_step(self._open(which), which, log, self.facts) if is_apart else None
            if mark is not None and mark.undone is not None:
                _log.warning("%s: %s of %s were taken out", self.facts.node, which, mark.undone)
            if mark is not None and mark.returns is not None:
                _log.warning("%s: %s %s were put back", self.facts.node, which, mark.returns)

    def say(self, which: str, facts: StreamFacts) -> None:
        """Note that the table has the rows of all batches up to one: those since its last commit gave up none."""
        move_mark(self._open(which), kept_app_id(self.facts.node, which), replace(self.facts, mode=which, stream=facts))

    def _upto(self, query: str) -> int:
        if self._unmatched_upto is None:
            mark = self.marks.get(UNMATCHED)
            self._unmatched_upto = mark.upto if mark is not None and mark.query == query else -1
        return self._unmatched_upto

    def _open(self, which: str) -> TableHandle:
        return TableHandle.open(self.tables[which])

    def _commit(self, which: str, rows: list[GivenUp], facts: StreamFacts, first: int | None = None) -> None:
        """Commit the rows that batches up to ``facts`` gave up.

        Args:
            first: the batch after which rows could be looked for; None if they were of all batches.
        """
        handle, fence = self._open(which), kept_app_id(self.facts.node, which)
        facts = replace(facts, gaps=self._gaps(which, handle, fence, facts, first))
        said = replace(self.facts, mode=which, stream=facts)
        frame = shaped(handle, rows, facts.query)
        if frame is None:
            move_mark(handle, fence, said)
        else:
            stamp = Stamp.next_on(handle, fence, said.to_json())
            _write(frame, handle, stamp)

    def _gaps(
        self, which: str, handle: TableHandle, fence: str, facts: StreamFacts, first: int | None
    ) -> tuple[BatchSpan, ...]:
        """The batches up to ``facts`` whose rows are not in the table, and are not known any more."""
        last, mark = last_kept(handle, fence), self.marks.get(which)
        known = last.gaps if last is not None and last.query == facts.query else ()
        upto = last.batch if last is not None and last.query == facts.query else -1
        missing = mark.missing if mark is not None and mark.query == facts.query else ()
        end = facts.batch - 1 if which == LATE else (upto if first is None else first)
        new = [number for number in missing if upto < number <= end]
        if new:
            text = "%s: %s begin after %s, whose rows of this kind are not known any more"
            _log.warning(text, self.facts.node, which, batches_text(spans_of(new)))
        return spans_of([*numbers(known), *new])


def _write(rows: DataFrame, handle: TableHandle, stamp: Stamp) -> None:
    engine_of(handle).write_once(rows, handle, _APPEND, stamp)


def move_mark(table: TableHandle, fence: str, facts: CommitFacts) -> None:
    """Commit what ``facts`` say under a fence of a table, and no row."""
    stamp = Stamp.next_on(table, fence, facts.to_json())
    schema = table.schema_json if table.exists else EMPTY_TABLE
    commit(table, schema, table.partition_columns if table.exists else (), FileChanges("rows", ()), stamp)


def bring_in_step(
    table: TableHandle, which: str, log: ProgressLog, facts: CommitFacts, upto: int | None = None
) -> KeptMark:
    """Take the rows out of a table of kept rows that are of batches which the node's table does not have, and put back
    the rows of batches which it has again. Needs no Spark.

    Args:
        log: of the checkpoint that belongs to the node's table, or that has this batch and those that a rewind undoes.
        facts: what the commits say of the run.
        upto: of a rewind, the batch that it goes to: the rows of later ones go as well.

    Returns:
        How far the table went, and what was apart.

    Raises:
        FencedError: another run committed to the table, which was left as it is.
        TableError: Delta or the store refuses.
    """
    fence, facts = kept_app_id(facts.node, which), replace(facts, mode=REWIND)
    mark = mark_in_history(table, facts.node, which, log)
    undone = mark.undone
    if mark.returns is not None:
        stamp = Stamp.next_on(table, fence, replace(facts, stream=mark.returns.facts).to_json())
        engine_of(table).restore(table, mark.returns.version, stamp)
        table, undone = table.refreshed(), None
    last = None if upto is None or mark.upto <= upto else log.batch(upto)
    if last is not None:
        gaps = spans_of(number for number in numbers(mark.gaps) if number <= last.batch)
        base = replace(stream_facts(last, log.location), gaps=gaps)
        undone = UndoneRows(last.batch, (), undone.queries if undone else (), base)
    if undone is not None:
        _forget_rows(table, fence, undone.condition(str(mark.query)), replace(facts, stream=undone.base))
    return mark


def _forget_rows(table: TableHandle, fence: str, condition: str, facts: CommitFacts) -> None:
    """Take the rows that meet ``condition`` out of a table of kept rows, and commit what ``facts`` say with that.

    Raises:
        FencedError: another run committed to the table; nothing was taken out.
        TableError: Delta or the store refuses.
    """
    with table.reads("reading kept rows"):
        is_empty = not len(table.table.scan(columns=["batch"], predicate=condition).read_all())
    if is_empty:
        # A deletion of no row makes no commit.
        move_mark(table, fence, facts)
        return
    stamp = Stamp.next_on(table, fence, facts.to_json())
    properties = stamp.properties({}, max_retries=0)
    settled(table, stamp, lambda: table.table.delete(condition, commit_properties=properties))


def _late_rows(
    spark: SparkSession,
    facts: StreamFacts,
    inputs: Sequence[StreamedSource],
    log: ProgressLog,
    times: Mapping[str, str],
) -> Iterator[GivenUp]:
    """The rows of a batch whose time, or the end of whose window, is not after the watermark of the batch before: Spark
    drops these as late."""
    inputs = [streamed for streamed in inputs if times.get(streamed.name) != ""]
    before = log.batch(facts.batch - 1) if facts.batch else None
    if before is None:
        return
    starts = log.ends(before.batch, [source.name for source in inputs])
    for source in inputs:
        watermark = source.settings.watermark
        start = starts.get(source.name)
        end = (facts.offsets.get(source.name) or {}).get("end")
        rows = source.batch(spark, log, start, end) if watermark is not None else None
        if rows is None or watermark is None:
            continue
        time = F.col(quoted(watermark.column)).cast("timestamp")
        if source.name in times:
            late = rows.alias(source.name).where(f"{times[source.name]} <= {before.watermark_ms * 1000}")
        else:
            late = rows.where(time <= moment(before.watermark_ms))
        row = F.struct(*[F.col(quoted(column)) for column in rows.columns])
        yield GivenUp(
            source.name,
            late.select(
                time.alias("event_time"),
                F.lit(facts.batch).cast("bigint").alias("batch"),
                moment(before.watermark_ms).alias("watermark"),
                row.alias("row"),
            ),
        )
