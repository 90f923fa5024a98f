"""Reading a table in chunks first, and by its cursor columns then: what a run takes, above a mark of such a source.

The maxima of the cursors are taken before the table is cut, and the chunks are cut once. Both are in the mark of every
commit, so a run goes on with the chunks that are left, whenever the one before it ended. What came or changed since the
maxima were taken is read by the increments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from odi_assets.config.models import CTID, CursorsIncrement
from odi_assets.errors import ConfigError, IdentityMismatchError, IncrementError
from odi_assets.sources.cursor.ahead import described, held_text, rows_ahead
from odi_assets.sources.cursor.bounds import gone_back, is_ahead
from odi_assets.sources.cursor.late import NONE_LATE, Late
from odi_assets.sources.cursor.types import kept_of, require_kept
from odi_assets.sources.cursor.window import Overlap
from odi_assets.sources.cursor.window import shown as shown_value
from odi_assets.sources.marks import UNRESOLVED, hwm_text
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Partitions, Position
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.chunks import LEAST_ROWS, Cutter, key_columns, key_orders, storage_of
from odi_assets.sources.sql.cursors import Cursors, Maxima, Types, Values
from odi_assets.sources.sql.keys import KeyColumn
from odi_assets.sources.sql.marks import Chunks, SnapshotMark, TableChunk
from odi_assets.sources.sql.snapshot import SqlSnapshot
from odi_assets.sources.sql.statements import Ask
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.sources.sql.reader import RelationReader

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class CursorTable(SqlSnapshot):
    """A table that is followed by cursors, and what was known of it when the run was planned.

    Attributes:
        keys: the columns that identify a row of the node, for messages.
        seen: its columns' types and the maxima of its cursors; None if nobody looked.
    """

    increment: CursorsIncrement
    keys: tuple[str, ...]
    seen: tuple[Types, Maxima] | None = None

    @property
    def cursors(self) -> Cursors:
        return Cursors(self.relation, self.increment)

    @property
    def position(self) -> Position:
        if self.seen is None:
            return {}
        maxima = self.seen[1]
        shown = {name: None if value is None else shown_value(value) for name, value in maxima.values.items()}
        return {"cursors": shown, "without_cursor": maxima.without_cursor}

    def looked_at(self, mark: SnapshotMark | None = None) -> CursorTable:
        """This table with the maxima of its cursors, if a plain driver can query them.

        Args:
            mark: rows that came below it are counted.
        """
        driver = plain.driver_of(self.relation.dialect)
        if driver is None:
            return self

        def question(session: plain.Session) -> tuple[Types, Maxima] | None:
            types = session.columns(self.relation.sql)
            return _look(self.cursors, types, session.rows, mark) if _are_known(types, self.cursors) else None

        return replace(self, seen=plain.ask(self.relation.dialect, driver, self.label, question))

    def looked_at_by(self, spark: SparkSession, mark: SnapshotMark | None = None) -> CursorTable:
        """It with the maxima of its cursors; rows that came below ``mark`` are counted."""
        reader = self.reader(spark)
        return replace(self, seen=_look(self.cursors, reader.cursor_types, reader.texts, mark))

    def begun(self, spark: SparkSession) -> tuple[CursorTable, SnapshotMark]:
        """It with its maxima, and the mark of a snapshot of which nothing is read yet; without rows, it has no chunks.

        Raises:
            IncrementError: its cursors, or what it is to be cut by, do not fit it; or rows are ahead of the clock.
            SourceError: the database does not answer.
        """
        # The types by which the chunks are cut are those by which they are read.
        reader = self.reader(spark)
        begun = self._asked(spark, lambda ask: self._begun(reader.types, reader.cursor_types, ask))
        begun[0].require_within_clock(spark)
        return begun

    def _begun(self, types: Types, as_cursors: Types, ask: Ask) -> tuple[CursorTable, SnapshotMark]:
        # In this order: what comes after the maxima were taken is above them, wherever the chunks are cut.
        seen = _look(self.cursors, as_cursors, ask)
        for name, value in seen[1].values.items():
            # A lag that does not fit is an error now, and not once the snapshot is read.
            self.cursors.less_lag(name, value)
        chunks = Cutter(self.relation, self.increment.snapshot, types, ask).chunks()
        digits, known_by = self.cursors.digits(as_cursors), kept_of(as_cursors, self.known_columns())
        return replace(self, seen=seen), SnapshotMark(
            seen[1].values, chunks, measures=self.identity, digits=digits, known_by=known_by
        )

    def require_within_clock(self, spark: SparkSession) -> None:
        """Raises IncrementError if there are rows ahead of the clock, and ``on_ahead`` is ``stop``."""
        if self.seen is None or not self.stops:
            return
        reader = self.reader(spark)
        rows = reader.rows(self.cursors.ahead(self.seen[1].limits, reader.cursor_types))
        raise self._stop(self.seen[1], described(rows, None, self.cursors.columns, self.keys))

    def _stop(self, maxima: Maxima, rows: Sequence[str] = ()) -> IncrementError:
        limit = next(iter(maxima.limits.values()))
        return rows_ahead(self.increment, maxima.ahead, limit, rows, self.label, ", ".join(maxima.limits))

    @property
    def stop(self) -> IncrementError | None:
        """The error that a run ends with, as far as was looked; it does not name the rows."""
        return self._stop(self.seen[1]) if self.seen is not None and self.stops else None

    @property
    def held(self) -> int:
        """Rows ahead of the clock, which are left for later."""
        return 0 if self.seen is None else self.seen[1].ahead

    @property
    def came_late(self) -> Late:
        """Rows that came below the mark."""
        return NONE_LATE if self.seen is None else Late(self.seen[1].late)

    @property
    def stops(self) -> bool:
        """Whether rows ahead of the clock stop the run."""
        return self.held > 0 and self.increment.on_ahead == "stop"

    def side_by_side(
        self, by: tuple[str, ...], chunks: Sequence[TableChunk], types: Types, spark: SparkSession
    ) -> Sequence[TableChunk]:
        """The parts of ``chunks`` that are read at the same time: the chunks themselves, or parts of large ones."""
        config = self.increment.snapshot
        count = min(-(-config.pieces // len(chunks)), config.rows // LEAST_ROWS)
        if count <= 1:
            return chunks

        def parts(ask: Ask) -> list[TableChunk]:
            cutter = Cutter(self.relation, config, types, ask)
            return [part for chunk in chunks for part in cutter.pieces(by, chunk, count)]

        return self._asked(spark, parts)

    def _asked(self, spark: SparkSession, question: Callable[[Ask], _Answer]) -> _Answer:
        """The answer to a question over the plain driver or, without one, over Spark."""
        driver = plain.driver_of(self.relation.dialect)
        if driver is None:
            return question(self.reader(spark).texts)
        answer: _Answer = plain.ask(self.relation.dialect, driver, self.label, lambda session: question(session.rows))
        return answer

    def key_columns(self, chunks: Chunks, reader: RelationReader) -> Sequence[KeyColumn]:
        """The columns that chunks are ranges of.

        Raises:
            IncrementError: there is no such column.
            IdentityMismatchError: its values are in another order now.
        """
        keys = self._asked(reader.spark, lambda ask: key_columns(self.relation, chunks.by, reader.types, ask))
        self._require_same_order(chunks, [key.order for key in keys])
        return keys

    def in_order(self, chunks: Chunks) -> Chunks:
        """``chunks`` with what puts their keys in order now, if a plain driver can ask for it.

        Raises:
            IdentityMismatchError: they were cut in another order.
        """
        driver = plain.driver_of(self.relation.dialect)
        if driver is None or chunks.storage is not None or not chunks.by:
            return chunks
        now: tuple[str, ...] = plain.ask(
            self.relation.dialect,
            driver,
            self.label,
            lambda session: key_orders(self.relation, chunks.by, session.columns(self.relation.sql), session.rows),
        )
        self._require_same_order(chunks, now)
        return replace(chunks, order=now)

    def _require_same_order(self, chunks: Chunks, now: Sequence[str]) -> None:
        other = chunks.reordered(now)
        if other:
            raise IdentityMismatchError(
                f"the key of {self.label} is in another order than when its snapshot was cut into chunks: "
                f"{'; '.join(other)} now. {counted(len(chunks.left), 'chunk')} of them would lose rows or repeat them",
                fix="read it again with odi run --full-refresh; or put the column back, values "
                "included, until the snapshot is complete",
                label=self.label,
            )

    def require_same_storage(self, chunks: Chunks, spark: SparkSession) -> None:
        """Raises IncrementError if the table was rewritten since its chunks were cut by the places of rows."""
        if chunks.by != (CTID,) or chunks.storage is None:
            return
        now, *_ = self._asked(spark, lambda ask: storage_of(self.relation, ask))
        if not set(chunks.storage.split(",")) <= set(now.split(",")):
            raise IncrementError(
                f"{self.label} was rewritten in the middle of its snapshot (by VACUUM FULL, CLUSTER, TRUNCATE or ALTER "
                "TABLE): its rows are in other places, and it is not known which of them are left to read",
                fix="read it again with odi run --full-refresh; chunks by a key (`incremental.snapshot.by`) stay valid",
                label=self.label,
            )


def _look(cursors: Cursors, types: Types, ask: Ask, mark: SnapshotMark | None = None) -> tuple[Types, Maxima]:
    limits = cursors.limits(types, ask)
    late = None if mark is None else cursors.late(cursors.fitting(mark, types), limits, types)
    return types, cursors.found(ask(cursors.question(types, limits, late))[0], types, limits, late)


def _are_known(types: Types, cursors: Cursors) -> bool:
    """Whether a plain driver knows the types of all cursors; Spark knows more types."""
    return all(types.get(name, "") is not None for name in cursors.columns)


def plan_snapshot(table: CursorTable, mark: SnapshotMark | None) -> PlannedRead:
    """What to read of ``table`` above ``mark``: a snapshot, the chunks that are left of one, or rows that are new.

    Raises:
        IdentityMismatchError: the chunks that are left were cut by other columns than the configuration names.
        IncrementError: the cursors or the mark do not fit the table.
        SourceError: the database does not answer.
    """
    if mark is None:
        return NewSnapshot(snapshot=table, summary=_of_new(table), follows=True)
    if mark.chunks is not None:
        _require_same_key(table, mark.chunks)
        return next_chunks(table, mark, table.in_order(mark.chunks), before=mark)
    looked = table.looked_at(mark)
    summary = f"what is above {hwm_text(mark.value)}, {UNRESOLVED}"
    read = UnresolvedRows(snapshot=looked, summary=summary, before=mark, follows=True)
    if looked.stop is not None:
        return replace(read, summary=f"{summary}; what is ahead of the clock stops the run", stop=looked.stop)
    return read if looked.seen is None else read.bounded(looked)


def _of_new(table: CursorTable) -> str:
    config = table.increment.snapshot
    by = "its key" if config.by is None else ", ".join(config.by)
    return f"a snapshot in chunks of about {counted(config.rows, 'row')} by {by}"


def _require_same_key(table: CursorTable, chunks: Chunks) -> None:
    wanted = table.increment.snapshot.by
    if wanted is None or wanted == chunks.by:
        return
    raise IdentityMismatchError(
        f"the snapshot of {table.label} is being read in chunks by {', '.join(chunks.by)}, {len(chunks.left):,} of "
        f"them are left, and `incremental.snapshot.by` is {', '.join(wanted)} now",
        fix="put `by` back until the snapshot is complete; or start it over with odi run --full-refresh",
        label=table.label,
    )


def next_chunks(table: CursorTable, mark: SnapshotMark, chunks: Chunks, before: SnapshotMark | None = None) -> Read:
    """The read of the next chunks of a snapshot.

    Args:
        mark: the snapshot, with ``chunks`` left.
        before: the mark that the run starts from; None for a new snapshot.
    """
    taken = chunks.left[: table.increment.snapshot.chunks_per_commit]
    first = chunks.count - len(chunks.left) + 1
    which = f"chunk {first:,}" if len(taken) == 1 else f"chunks {first:,} to {first + len(taken) - 1:,}"
    upto = table.cursors.text({}, mark.cursors)
    return SnapshotChunks(
        snapshot=table,
        summary=f"{which} of {chunks.count:,} by {', '.join(chunks.by)}{f', {upto}' if upto else ''}"
        if chunks.by
        else "the whole of a table without rows",
        before=before,
        after=replace(mark, chunks=chunks.without(taken), measures=table.identity),
        follows=True,
        chunks=chunks,
        taken=taken,
        mark=mark,
    )


class _OfCursorTable(PlannedRead):
    """What all reads of such a table have in common."""

    @property
    def table(self) -> CursorTable:
        if not isinstance(self.snapshot, CursorTable):
            raise AssertionError("a read of another source")
        return self.snapshot

    def whole(self) -> PlannedRead:
        return self

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        del wanted
        raise ConfigError(
            f"{self.label} is written in parts, and a partition is computed from all of its rows",
            fix="write it with append, append_once or upsert",
        )

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column, node
        return AffectedPartitions(by_rows=True)


@dataclass(frozen=True, kw_only=True)
class NewSnapshot(_OfCursorTable, UnresolvedRead):
    """A snapshot that begins: its maxima are not taken, and its chunks not cut yet.

    Attributes:
        replaces: it replaces what is in the target, even if the source has no row.
    """

    replaces: bool = False

    def whole(self) -> PlannedRead:
        return replace(self, replaces=True)

    def resolve(self, spark: SparkSession) -> Read:
        looked, mark = self.table.begun(spark)
        if mark.chunks is not None:
            return replace(next_chunks(looked, mark, mark.chunks), held=looked.held)
        if self.replaces:
            return next_chunks(looked, mark, Chunks((), (TableChunk(None, None),), 1))
        nothing = NothingNew.of(replace(self, snapshot=looked), f"nothing to read{held_text(looked.held)}", None)
        return replace(nothing, held=looked.held)


@dataclass(frozen=True, kw_only=True)
class SnapshotChunks(_OfCursorTable, Read):
    """Some chunks of a snapshot.

    Attributes:
        mark: the snapshot as it was planned, with ``chunks`` left.
        taken: the chunks of ``chunks`` to read.
    """

    mark: SnapshotMark
    chunks: Chunks
    taken: tuple[TableChunk, ...]

    @property
    def goes_on(self) -> bool:
        return True

    def load(self, spark: SparkSession) -> DataFrame:
        reader, cursors = self.table.reader(spark), self.table.cursors
        self.table.require_same_storage(self.chunks, spark)
        require_kept(self.mark.known_by, kept_of(reader.cursor_types, self.table.known_columns()), self.label)
        upto = cursors.upto(cursors.fitting(self.mark, reader.cursor_types), reader.cursor_types)
        parts = self.table.side_by_side(self.chunks.by, self.taken, reader.types, spark)
        return reader.chunks(upto, self.table.key_columns(self.chunks, reader), parts)

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        return [self.load(spark)]


@dataclass(frozen=True, kw_only=True)
class NewRows(_OfCursorTable, Read):
    """The rows above the maxima ``lower``, up to the maxima ``upper``."""

    lower: Values
    upper: Values

    def load(self, spark: SparkSession) -> DataFrame:
        reader, cursors = self.table.reader(spark), self.table.cursors
        types = reader.cursor_types
        above, upto = cursors.above(self.lower, types), cursors.upto(self.upper, types)
        return reader.rows(f"({above}) AND ({upto})")

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        return [self.load(spark)]

    @property
    def overlap(self) -> Overlap | None:
        increment = self.table.increment
        if not increment.watermark_lag:
            return None
        low = self.table.cursors.less_lag(increment.columns[0], self.lower[increment.columns[0]])
        return Overlap(increment.columns, low if len(increment.columns) == 1 else None)


@dataclass(frozen=True, kw_only=True)
class UnresolvedRows(_OfCursorTable, UnresolvedRead):
    """The rows above the maxima of a mark, whose upper bounds are not known yet."""

    before: SnapshotMark | None = None

    def resolve(self, spark: SparkSession) -> Read:
        looked = self.table.looked_at_by(spark, self.before)
        looked.require_within_clock(spark)
        return self.bounded(looked)

    def bounded(self, looked: CursorTable) -> Read:
        """The read, once the maxima are known.

        Raises:
            IncrementError: the mark does not fit the table.
        """
        if self.before is None or looked.seen is None:
            raise AssertionError("the maxima of a mark and of the table are known")
        types, maxima = looked.seen
        lower = looked.cursors.fitting(self.before, types)
        looked.cursors.require_marks_within(lower, maxima.limits)
        upper = looked.cursors.moved(lower, maxima)
        excluded = maxima.without_cursor or 0
        ahead = any(is_ahead(upper[name], lower[name]) for name in upper)
        digits, known_by = looked.cursors.digits(types), kept_of(types, looked.known_columns())
        require_kept(self.before.known_by, known_by, looked.label)
        after = replace(
            self.before, cursors=upper, typed=True, measures=looked.identity, digits=digits, known_by=known_by
        )
        if not ahead and not looked.increment.watermark_lag:
            back = None if looked.held else gone_back(maxima.values, lower)
            text = f"nothing above {hwm_text(after.value)}{held_text(looked.held)}{looked.came_late}"
            nothing = NothingNew.of(replace(self, snapshot=looked), f"{text}{f'; {back}' if back else ''}", after)
            return replace(nothing, excluded=excluded, held=looked.held, late=looked.came_late, warning=back)
        left_out = f"; {excluded:,} rows without a cursor left out" if excluded else ""
        return NewRows(
            snapshot=looked,
            summary=f"{looked.cursors.text(lower, upper) or f'again up to {looked.cursors.text({}, upper)}'}{left_out}"
            f"{held_text(looked.held)}{looked.came_late}",
            before=self.before,
            after=after,
            follows=True,
            excluded=excluded,
            held=looked.held,
            late=looked.came_late,
            lower=lower,
            upper=upper,
        )


@dataclass(frozen=True, kw_only=True)
class Loaded(_OfCursorTable, Read):
    """The rows that runs up to ``mark``, whose snapshot is complete, have read. Moves no mark."""

    mark: SnapshotMark
    only: Partitions | None = None

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        return replace(self, only=wanted)

    def load(self, spark: SparkSession) -> DataFrame:
        reader, cursors = self.table.reader(spark), self.table.cursors
        rows = reader.rows(cursors.upto(cursors.fitting(self.mark, reader.cursor_types), reader.cursor_types))
        return rows if self.only is None else rows.where(self.only.condition(rows))
