"""Rows that a stream gives up, kept in tables of their own: those that came too late, and those a join never matched.

Both tables have one shape, whatever the inputs look like: which input the row is of, when its event happened, query and
batch that gave it up, the watermark that decided it, and the row itself as JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.planning.stream_marks import stream_stamps
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.streaming.inputs.input import StreamedInput
from odi_assets.streaming.query.progress_log import ProgressLog
from odi_assets.tables.columns import quoted
from odi_assets.tables.embedded import write_computed_once
from odi_assets.tables.engine import WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = logging.getLogger(__name__)

_APPEND = WriteSpec(WriteMode.APPEND)
_PREFIX = "odi_assets.kept:"
LATE, UNMATCHED = "late_rows", "unmatched_rows"
_MOST_BEHIND = 50
"""After so many batches, unmatched rows are looked for although the run goes on."""


def kept_app_id(node: str, which: str) -> str:
    """The fence of a table of kept rows; ``which`` is its key in the project file."""
    return f"{_PREFIX}{node}:{which}"


@dataclass
class KeptRows:
    """The tables of one node. It can be pickled.

    Attributes:
        facts: what each commit says of the run.
        late, unmatched: the tables; None where the node keeps none.
        retained: how many batches the checkpoint keeps.
        late_times: by input, SQL of what Spark compares with the watermark (microseconds; columns are
            ``input.column``), empty where it drops no row; of others it is the watermark's column.
        unmatched_upto: the last batch of the query whose unmatched rows are kept; found when it is first asked for.
    """

    facts: CommitFacts
    late: Location | None
    unmatched: Location | None
    retained: int
    late_times: Mapping[str, str] = field(default_factory=dict)
    unmatched_upto: int | None = field(default=None, init=False)

    def keep(
        self,
        spark: SparkSession,
        facts: StreamFacts,
        inputs: Sequence[StreamedInput],
        log: ProgressLog,
        dropped: tuple[int, ...] | None,
    ) -> None:
        """Keep the rows that a batch gave up, whose own rows are in the node's table already.

        Args:
            dropped: how many rows came too late, by operator; None if nobody can tell.
        """
        if self.late is not None and (dropped is None or any(dropped)):
            self._keep_late(spark, self.late, facts, inputs, log)
        # What a batch changed in the state can be read once Spark has committed it.
        behind = facts.batch - 1 - self.upto(facts.query)
        if self.unmatched is not None and behind >= min(self.retained - 1, _MOST_BEHIND):
            self.keep_unmatched(spark, facts.query, inputs, log)

    def _keep_late(
        self,
        spark: SparkSession,
        table: Location,
        facts: StreamFacts,
        inputs: Sequence[StreamedInput],
        log: ProgressLog,
    ) -> None:
        handle = TableHandle.open(table)
        if _kept_upto(handle, kept_app_id(self.facts.node, LATE), facts.query) >= facts.batch:
            return
        rows = _union(_late_rows(spark, facts, inputs, log, self.late_times))
        if rows is not None:
            self._commit(rows, handle, LATE, facts)

    def keep_unmatched(
        self, spark: SparkSession, query: str, inputs: Sequence[StreamedInput], log: ProgressLog
    ) -> None:
        """Keep the rows that joins gave up in the batches that Spark has committed since this was last done."""
        committed = log.committed()
        if self.unmatched is None or not committed:
            return
        upto, last = self.upto(query), committed[-1]
        if upto >= last:
            return
        if upto >= 0 and upto not in committed:
            _log.warning(
                "%s: its unmatched rows of batches %s to %s are not known any more: the checkpoint keeps %s batches",
                self.facts.node,
                upto + 1,
                committed[0],
                self.retained,
            )
            upto = committed[0]
        from odi_assets.nodes.execution.unmatched_rows import unmatched_rows

        rows = _union(unmatched_rows(spark, log, upto, last, inputs))
        batch = log.batch(last)
        if rows is not None and batch is not None:
            from odi_assets.nodes.planning.stream_marks import stream_facts

            self._commit(rows, TableHandle.open(self.unmatched), UNMATCHED, stream_facts(batch, log.location))
        self.unmatched_upto = last

    def upto(self, query: str) -> int:
        """The last batch of ``query`` whose unmatched rows are kept; -1 if there is none."""
        if self.unmatched is None:
            return -1
        if self.unmatched_upto is None:
            handle = TableHandle.open(self.unmatched)
            self.unmatched_upto = _kept_upto(handle, kept_app_id(self.facts.node, UNMATCHED), query)
        return self.unmatched_upto

    def _commit(self, rows: DataFrame, handle: TableHandle, which: str, facts: StreamFacts) -> None:
        fence = kept_app_id(self.facts.node, which)
        said = replace(self.facts, mode=which, stream=facts).to_json()
        from pyspark.sql import functions as F

        rows = rows.withColumn("query", F.lit(facts.query))
        write_computed_once(rows, handle, _APPEND, Stamp(fence, handle.transaction_number(fence) + 1, said))


def _kept_upto(handle: TableHandle, fence: str, query: str) -> int:
    """The last batch of ``query`` whose rows the table has; -1 if it has none."""
    if not handle.transaction_number(fence):
        return -1
    for _, facts in stream_stamps(handle, fence):
        if facts is not None:
            return facts.batch if facts.query == query else -1
    return -1


def _late_rows(
    spark: SparkSession,
    facts: StreamFacts,
    inputs: Sequence[StreamedInput],
    log: ProgressLog,
    times: Mapping[str, str],
) -> Iterator[DataFrame]:
    """The rows of a batch whose time, or the end of whose window, is not after the watermark of the batch before: Spark
    drops these as late."""
    from pyspark.sql import functions as F

    inputs = [one for one in inputs if times.get(one.name) != ""]
    before = log.batch(facts.batch - 1) if facts.batch else None
    if before is None:
        return
    for one in inputs:
        watermark = one.settings.watermark
        start = (before.offsets.get(one.name) or {}).get("end")
        end = (facts.offsets.get(one.name) or {}).get("end")
        rows = one.batch(spark, log, start, end) if watermark is not None else None
        if rows is None or watermark is None:
            continue
        time = F.col(quoted(watermark.column)).cast("timestamp")
        if one.name in times:
            late = rows.alias(one.name).where(f"{times[one.name]} <= {before.watermark_ms * 1000}")
        else:
            late = rows.where(time <= moment(before.watermark_ms))
        row = F.to_json(F.struct(*[F.col(quoted(column)) for column in rows.columns]))
        yield late.select(
            F.lit(one.name).alias("input"),
            time.alias("event_time"),
            F.lit(facts.batch).cast("bigint").alias("batch"),
            moment(before.watermark_ms).alias("watermark"),
            row.alias("row"),
        )


def moment(ms: int) -> Column:
    """Milliseconds since 1970 as a column of a TIMESTAMP."""
    from pyspark.sql import functions as F

    return F.timestamp_millis(F.lit(ms).cast("bigint"))


def _union(frames: Iterator[DataFrame]) -> DataFrame | None:
    found = list(frames)
    return reduce(lambda left, right: left.unionByName(right), found) if found else None
