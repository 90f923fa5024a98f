"""Following a cursor column: reads of the rows above a mark, up to a bound that is fixed before they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import CursorIncrement, RollingWindowIncrement, StatefulIncrement
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.ahead import (
    described,
    held_text,
    is_beyond,
    is_guarded,
    limit_of,
    require_mark_within,
    rows_ahead,
)
from odi_assets.sources.cursor.bounds import Bound, is_ahead, null_cursors
from odi_assets.sources.cursor.columns import (
    counted_rows,
    has_times,
    require_times,
    window_condition,
    without_later_ties,
    without_ties,
)
from odi_assets.sources.cursor.digits import digits_of
from odi_assets.sources.cursor.late import NONE_LATE, Late
from odi_assets.sources.cursor.rolling_window import rolling_window
from odi_assets.sources.cursor.ties import require_comparable, tied_by
from odi_assets.sources.cursor.types import cursor_type, fitting, require_kept
from odi_assets.sources.cursor.window import (
    Overlap,
    Window,
    less_lag_of,
    range_window,
    require_time_cursor,
    shown,
    start_under,
    untyped_window,
    window_above,
)
from odi_assets.sources.marks import UNRESOLVED, CursorMark, Unresolved
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Partitions, SourceSnapshot
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_TIES = 1_000
"""Distinct rows that one mark remembers as tied with it."""


def plan_window(
    snapshot: SourceSnapshot,
    increment: CursorIncrement,
    mark: CursorMark | None,
    *,
    rows_are_known: bool,
    keys: Sequence[str] = (),
    rechecked: bool = False,
) -> PlannedRead:
    """The read of ``snapshot`` above ``mark``, as far as it is known without Spark.

    Args:
        rows_are_known: the write recognizes rows that are read again, so the rows tied with the mark need not be
            remembered.
        keys: the columns that identify a row of the node, for messages.
        rechecked: rows below the mark may be other ones now: nothing is decided before Spark has looked.

    Raises:
        IncrementError: the cursor, the mark or the configuration do not fit the source, or rows have no cursor.
    """
    if isinstance(increment, RollingWindowIncrement):
        window = rolling_window(increment)
        text = f"{increment.column} >= {window.lower:%Y-%m-%d %H:%M:%S} UTC (last {_units(increment)})"
        return CursorWindow(snapshot=snapshot, summary=text, window=window)
    if mark is not None:
        require_mark_within(increment, mark.value, snapshot.now(), snapshot.label, increment.column)
    fingerprint = _fingerprint(snapshot, increment)
    read = UnresolvedWindow(
        snapshot=snapshot,
        summary="",
        before=mark,
        follows=True,
        increment=increment,
        seen=fingerprint,
        rows_are_known=rows_are_known,
        keys=tuple(keys),
    )
    if rechecked:
        return replace(read, rechecked=True, summary=f"{read.text()}, once the rows below it are compared")
    if mark is not None and fingerprint is not None and mark.seen == fingerprint:
        return read.nothing("the source is as it was")
    if snapshot.is_empty:
        return read.nothing("no file with content")
    kind, bound = snapshot.bound_by_statistics(increment)
    read = replace(read, kind=kind, bound=bound)
    read = replace(read, summary=read.text())
    if kind is None or isinstance(bound, Unresolved):
        return read
    limit = limit_of(increment, kind, snapshot.now())
    if is_beyond(bound.upper, limit) or (bound.ahead and increment.on_ahead == "stop"):
        return read.beyond(limit, bound)
    bounded = read.bounded(kind, bound)
    if bounded.late.by_reading:
        return replace(read, late=bounded.late, summary=f"{read.text()}{bounded.late}")
    if read.keeps_ties and not bounded.nothing_new:
        return replace(read, after=bounded.after, summary=bounded.summary)
    return bounded


def plan_range(snapshot: SourceSnapshot, increment: CursorIncrement, start: datetime, end: datetime, node: str) -> Read:
    """The rows whose cursor lies in ``start <= cursor < end``, whatever was loaded. Moves no mark.

    Raises:
        ConfigError: the cursor is not a date or a time.
    """
    window = range_window(increment, start, end)
    if snapshot.columns is not None:
        require_time_cursor(window, snapshot.columns, snapshot.label, node)
    return CursorWindow(snapshot=snapshot, summary=str(window), window=window, range_of=node)


def plan_loaded(snapshot: SourceSnapshot, increment: StatefulIncrement, mark: CursorMark) -> UnresolvedWindow:
    """The rows that runs up to ``mark`` have read. Moves no mark."""
    return UnresolvedWindow(
        snapshot=snapshot, summary=f"up to {shown(mark.value)}", increment=increment, upto=mark, rows_are_known=True
    )


@dataclass(frozen=True, kw_only=True)
class CursorWindow(Read):
    """The rows of a source in a window of its cursor.

    Attributes:
        increment: the increment that moves the mark; None for ranges and rolling windows, which move none.
        start: where a read of the whole source begins, inclusive; None: at the beginning.
        only: the partitions to read; None: all.
        loaded: a mark that remembers the rows at it; others there are not read.
    """

    window: Window
    increment: StatefulIncrement | None = None
    start: Any = None
    only: Partitions | None = None
    loaded: CursorMark | None = None

    def load(self, spark: SparkSession) -> DataFrame:
        if self.range_of is not None:
            require_time_cursor(self.window, _types(self.snapshot.rows(spark)), self.label, self.range_of)
        elif self.increment is None and self.window.upper is None:
            require_times(self.snapshot.rows(spark), self.window.column, self.label)
        rows = without_ties(self.snapshot.rows_in_window(spark, self.window, self.only), self.window)
        return rows if self.loaded is None else without_later_ties(rows, self.window, self.loaded)

    def whole(self) -> Read:
        window = replace(self.window, lower=self.start, lower_inclusive=True, ties={})
        return replace(self, window=window, summary=f"whole: {window}")

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        window = replace(self.window, lower=self.start, lower_inclusive=True, ties={})
        return replace(self, window=window, only=wanted)

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column, node
        return AffectedPartitions(by_rows=True)

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        return [self.load(spark), *self.snapshot.moved_partitions(spark, self.late)]

    def affected_stored(self, stored: Callable[[], DataFrame]) -> Iterable[DataFrame]:
        # A rolling window has no mark: nothing says of a row that it was there.
        if self.increment is not None or self.range_of is not None or self.window.upper is not None:
            return ()
        rows = stored()
        if not has_times(rows, self.window.column):
            return ()
        return [rows.where(window_condition(rows, self.window))]

    @property
    def overlap(self) -> Overlap | None:
        if self.increment is None or not reads_again(self.increment):
            return None
        window = self.window
        bounded = not (window.nulls or window.fallback or window.date_format)
        return Overlap(window.columns, window.lower if bounded else None)

    def with_ties(self, spark: SparkSession) -> CursorWindow:
        """The read with the rows that are tied with its mark, which the commit has to remember.

        Raises:
            IncrementError: there are too many.
        """
        after = self.after
        if not isinstance(after, CursorMark):
            return self
        stays, rows = after == self.before, self.snapshot.rows_in_window(spark, self.window.at(after.value))
        columns = self.window.tied_by if stays else None
        ties = counted_rows(rows, MOST_TIES, columns)
        if ties is None:
            raise IncrementError(
                f"more than {MOST_TIES:,} different rows of {self.label} are tied with its HWM {after.value}, and "
                "a closed boundary has to remember them",
                fix="name `write.keys`: tied rows are then looked up in the target, however many there are; or choose "
                "a finer cursor, or `boundary: open`",
                column=self.window.column,
            )
        if stays:
            # A loaded row stays known if the source drops it and brings it back.
            known_ties = self.window.ties
            ties = {row: max(ties.get(row, 0), known_ties.get(row, 0)) for row in {*ties, *known_ties}}
        types = {name: kind for name, kind in _types(rows).items() if columns is None or name in columns}
        declared = {name: kept for name, kept in self.snapshot.declared(spark).items() if name in types}
        return replace(self, after=replace(after, ties=ties, tied_by=tied_by(types), declared=declared))


@dataclass(frozen=True, kw_only=True)
class UnresolvedWindow(UnresolvedRead):
    """A window of a cursor whose type, upper bound or tied rows only Spark can find.

    Attributes:
        kind: the type of the cursor; None: not known yet.
        bound: the upper bound, if that is known.
        seen: a fingerprint of the state of the source.
        rows_are_known: see :func:`plan_window`.
        from_start: read from the initial value on, not from the mark.
        only: the partitions to read; None: all.
        upto: read what runs up to this mark have read, and move no mark.
        keys: the columns that identify a row of the node, for messages.
    """

    increment: StatefulIncrement
    before: CursorMark | None = None
    kind: str | None = None
    bound: Bound | Unresolved = UNRESOLVED
    seen: str | None = None
    rows_are_known: bool = True
    from_start: bool = False
    only: Partitions | None = None
    upto: CursorMark | None = None
    keys: tuple[str, ...] = ()

    @property
    def keeps_ties(self) -> bool:
        """Whether the commit has to remember the rows at the mark, because nothing else says that they are loaded."""
        return self.increment.boundary == "closed" and not self.rows_are_known

    def whole(self) -> PlannedRead:
        return replace(self, from_start=True, summary="whole")

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        return replace(self, from_start=True, only=wanted)

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column, node
        return AffectedPartitions(by_rows=True)

    def resolve(self, spark: SparkSession) -> Read:
        kind = self.kind or cursor_type(self.increment, self.snapshot.cursor_types(spark), self.label)
        self._require_typed(kind)
        if self.keeps_ties and self.before is not None and self.before.ties and self.before.tied_by is not None:
            self._require_comparable(self.before, spark)
        window = self._window(kind)
        if self.upto is not None:
            return self._loaded(self.upto, spark, kind, window)
        bound = self._within_clock(spark, kind, window) if isinstance(self.bound, Unresolved) else self.bound
        read = self.bounded(kind, bound, spark)
        return read.with_ties(spark) if self.keeps_ties and isinstance(read, CursorWindow) else read

    def _loaded(self, upto: CursorMark, spark: SparkSession, kind: str, window: Window) -> Read:
        """What runs up to a mark have read. With a closed boundary, the next one reads what came to the mark later."""
        read = self._read(kind, replace(window, upper=self._fitting(upto, kind)), None)
        if self.increment.boundary != "closed" or upto.ties is None:
            return read
        self._require_comparable(upto, spark)
        return replace(read, loaded=upto)

    def _within_clock(self, spark: SparkSession, kind: str, window: Window) -> Bound:
        """The upper bound of ``window``, not ahead of the clock.

        Raises:
            IncrementError: there are rows ahead of it, and ``on_ahead`` is ``stop``.
        """
        increment = self.increment
        limit = limit_of(increment, kind, self.snapshot.now(spark)) if is_guarded(increment, kind) else None
        bound = self.snapshot.bound(spark, replace(window, upper=limit))
        if not bound.ahead or increment.on_ahead == "hold":
            return bound
        beyond = self.snapshot.rows_in_window(spark, replace(window, lower=limit, lower_inclusive=False, nulls=False))
        rows = described(beyond, self.snapshot.place_of_rows(), window.columns, self.keys)
        raise rows_ahead(increment, bound.ahead, limit, rows, self.label, increment.column)

    def _require_typed(self, kind: str) -> None:
        increment = self.increment
        if kind != "string" or not self.snapshot.guesses_types or increment.date_format or increment.type == "text":
            return
        raise IncrementError(
            f"the cursor `{increment.column}` of {self.label} is text, in which `10` comes before `9`; nobody said so",
            fix="give it a type in `read.schema`; or set `incremental.date_format` for dates; or say that it is "
            "compared as text: `incremental.type: text`",
            column=increment.column,
        )

    def _require_comparable(self, mark: CursorMark, spark: SparkSession) -> None:
        snapshot = self.snapshot
        types, declared = _types(snapshot.rows(spark)), snapshot.declared(spark)
        require_comparable(mark, types, declared, snapshot.kept_aside, self.label)

    def _nothing_after(self, hwm: Any, bound: Bound, excluded: int, late: Late) -> NothingNew:
        text = f"nothing after {shown(hwm)}" if hwm is not None else "nothing to read"
        back = bound.gone_back(self.increment.column, hwm) if self.snapshot.format == "sql" else None
        nothing = self.nothing(f"{text}{held_text(bound.ahead)}{late}{f'; {back}' if back else ''}")
        return replace(nothing, excluded=excluded, held=bound.ahead, late=late, warning=back)

    def bounded(self, kind: str, bound: Bound, spark: SparkSession | None = None) -> CursorWindow | NothingNew:
        """The read, once the type of the cursor and its upper bound are known.

        Args:
            spark: reads rows that arrived below the window, to count them.

        Raises:
            IncrementError: the mark or the initial value has another type, the lag does not fit it, or rows have no
                cursor and ``on_null`` is ``raise``.
        """
        increment, upper = self.increment, bound.upper
        hwm, window, start = self._fitting(self.before, kind), self._window(kind), self._start(kind)
        known_by = self.snapshot.known_by(spark)
        if self.before is not None:
            require_kept(self.before.known_by, known_by, self.label)
        # Rows that are held come due though the source stays as it is.
        seen = None if bound.ahead else self.seen
        late = NONE_LATE if self.before is None else self.snapshot.late(self.before, window, start, spark)
        if bound.without_cursor and increment.on_null == "raise":
            raise null_cursors(increment.column, kind, bound.without_cursor, self.label)
        excluded = bound.without_cursor if increment.on_null == "exclude" else 0
        # If the source lost its newest rows, the mark is the upper bound, so that there is one.
        window = replace(window, upper=upper if upper is not None else hwm)
        ahead = is_ahead(upper, hwm)
        in_window = upper is not None and (window.lower is None or upper >= window.lower)
        repeated = in_window and (bool(increment.watermark_lag) or increment.boundary == "closed" or hwm is None)
        before_start = hwm is None and upper is not None and start is not None and upper < start
        needed = (self._nulls and bound.without_cursor > 0) or bool(late.moved) or (self.from_start and hwm is not None)
        if not needed and (before_start or not (ahead or repeated)):
            return replace(self, kind=kind, bound=bound, seen=seen)._nothing_after(hwm, bound, excluded, late)
        after = upper if ahead and not before_start else hwm
        # A lag that does not fit is an error now: else the mark would be committed, and stop the next run.
        less_lag_of(increment.watermark_lag, after, increment.column, self.label)
        mark = None
        if after is not None:
            held, began_at = self.snapshot.noted(self.before), self._began_at(start)
            mark = CursorMark(
                after,
                seen,
                measures=self.snapshot.identity,
                digits=digits_of(kind),
                known_by=known_by,
                held_then=held,
                began_at=began_at,
            )
        return self._read(kind, window, mark, excluded, bound.ahead, late)

    def beyond(self, limit: Any, bound: Bound) -> UnresolvedWindow:
        """The read, if there are rows ahead of the clock: only the rows tell which they are, and what is below them."""
        increment, stop = self.increment, None
        if increment.on_ahead == "stop":
            greatest = () if bound.ahead else (f"the greatest is {shown(bound.upper)}",)
            stop = rows_ahead(increment, bound.ahead, limit, greatest, self.label, increment.column)
        what = "is left for later" if stop is None else "stops the run"
        summary = f"{self.text()}; what is after {shown(limit)} {what}"
        return replace(self, bound=UNRESOLVED, summary=summary, stop=stop)

    def nothing(self, why: str) -> NothingNew:
        """The read of nothing, for the reason ``why``."""
        return NothingNew.of(
            self, why, replace(self.before, seen=self.seen, measures=self.snapshot.identity) if self.before else None
        )

    def text(self) -> str:
        """What will be read, in words, as far as it is known."""
        window = self._window(self.kind) if self.kind else untyped_window(self.increment, self.before, self.from_start)
        nulls = " or without a cursor" if self._nulls else ""
        return f"{replace(window, nulls=False)} <= its maximum, {UNRESOLVED}{nulls}"

    @property
    def _nulls(self) -> bool:
        return self.increment.on_null == "include"

    def _read(
        self,
        kind: str,
        window: Window,
        after: CursorMark | None,
        excluded: int = 0,
        held: int = 0,
        late: Late = NONE_LATE,
    ) -> CursorWindow:
        left_out = f"; {excluded:,} rows without a cursor left out" if excluded else ""
        before = self._mark(self.before, kind)
        return CursorWindow(
            snapshot=self.snapshot,
            summary=f"{window}{left_out}{held_text(held)}{late}",
            before=before,
            after=after,
            follows=self.follows,
            excluded=excluded,
            held=held,
            late=late,
            window=window,
            increment=self.increment if self.follows else None,
            start=self._start(kind),
            only=self.only,
        )

    def _fitting(self, mark: CursorMark | None, kind: str) -> Any:
        return (
            None
            if mark is None
            else fitting(mark.value, kind, self.increment, self.label, typed=mark.typed, digits=mark.digits)
        )

    def _window(self, kind: str) -> Window:
        # A mark of another type is an error even if the read does not begin at it.
        mark, start = self._mark(self.before, kind), self._start(kind)
        if self.from_start or mark is None:
            mark = None
        window = window_above(self.increment, mark, kind, self.label, rows_are_known=self.rows_are_known)
        return window if mark is not None else replace(window, lower=start)

    def _start(self, kind: str) -> Any:
        return start_under(self.increment, self._mark(self.before or self.upto, kind), kind, self.label)

    def _mark(self, mark: CursorMark | None, kind: str) -> CursorMark | None:
        return None if mark is None else replace(mark, value=self._fitting(mark, kind))

    def _began_at(self, start: Any) -> str:
        """The initial value that the rows begin at, once the read is in the target; empty if there is none."""
        if self.before is not None and self.before.began_at is not None:
            return self.before.began_at
        return "" if start is None else self.increment.initial_value or ""


def _types(rows: DataFrame) -> dict[str, Any]:
    return {field.name: field.dataType.jsonValue() for field in rows.schema.fields}


def remembering_ties(
    snapshot: SourceSnapshot, increment: StatefulIncrement, mark: CursorMark, spark: SparkSession
) -> CursorMark:
    """``mark``, with the rows that are tied with it now counted as loaded; where it remembers which are, only those.

    Raises:
        IncrementError: the mark does not fit the source, or there are too many such rows; or not all of them are
            loaded, and it is not known which.
    """
    kind = cursor_type(increment, snapshot.cursor_types(spark), snapshot.label)
    value = fitting(mark.value, kind, increment, snapshot.label, typed=mark.typed, digits=mark.digits)
    window = window_above(increment, None, kind, snapshot.label, rows_are_known=False)
    read = CursorWindow(snapshot=snapshot, summary="", after=replace(mark, value=value), window=window)
    after = read.with_ties(spark).after
    if not isinstance(after, CursorMark):
        return mark
    loaded, tied = mark.ties, after.ties or {}
    if loaded is None or sum(tied.values()) <= sum(loaded.values()):
        return after
    if mark.tied_by == after.tied_by and all(tied.get(row, 0) >= count for row, count in loaded.items()):
        # The others came since, and are read by the next run.
        return replace(after, ties=loaded)
    raise IncrementError(
        f"{counted(sum(tied.values()), 'row')} of {snapshot.label} are tied with the HWM {shown(value)}, and "
        f"{sum(loaded.values()):,} of them are loaded; they are read in another way now, so it is not known which",
        fix="put the former definition back, run the node once, change it again and adopt; or rebuild the table from "
        "its sources: odi run --full-refresh",
        label=snapshot.label,
    )


def reads_again(increment: StatefulIncrement) -> bool:
    """Whether rows that are in the target may be read again."""
    lag, closed = bool(increment.watermark_lag), increment.boundary == "closed"
    return lag or closed or increment.on_null == "include"


def _fingerprint(snapshot: SourceSnapshot, increment: StatefulIncrement) -> str | None:
    """A hash of the state of the source and of how it is followed; None if the state is not known."""
    if snapshot.fingerprint is None:
        return None
    parts = [increment.model_dump_json(), *snapshot.fingerprint]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


def _units(increment: RollingWindowIncrement) -> str:
    return counted(increment.lookback, increment.unit)
