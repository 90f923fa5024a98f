"""Windows over a cursor column: ``lower < cursor <= upper``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from odi_assets.config.models import DateFormat, RollingWindowIncrement, StatefulIncrement
from odi_assets.config.models.durations import Lag
from odi_assets.errors import ConfigError, IncrementError
from odi_assets.sources.cursor.types import TypeName, less_lag, parse
from odi_assets.sources.marks import CursorMark

_TIMES = ("date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Window:
    """``lower < cursor <= upper``, where cursor is ``column``, or ``fallback`` where column is NULL.

    Attributes:
        lower: exclusive; None reads from the beginning.
        upper: inclusive; None reads to the end.
        lower_inclusive: initial values, ranges, rolling windows and closed boundaries include their lower bound.
        upper_inclusive: False for ranges.
        nulls: rows without a cursor are in the window too.
        date_format: how dates are written, if the cursor is text.
        ties: rows at ``lower`` that are in the target already: a count for each row hash.
        tied_by: the columns that these hashes are of; None: all.
    """

    column: str
    fallback: str | None = None
    lower: Any = None
    upper: Any = None
    lower_inclusive: bool = False
    upper_inclusive: bool = True
    nulls: bool = False
    date_format: DateFormat | None = None
    ties: Mapping[str, int] = field(default_factory=dict)
    tied_by: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.fallback) if self.fallback else (self.column,)

    def at(self, value: Any) -> Window:
        """The rows whose cursor is ``value``."""
        return replace(self, lower=value, upper=value, lower_inclusive=True, upper_inclusive=True, nulls=False, ties={})

    def __str__(self) -> str:
        name = f"coalesce({self.column}, {self.fallback})" if self.fallback else self.column
        low = "" if self.lower is None else f"{shown(self.lower)} {'<=' if self.lower_inclusive else '<'} "
        high = "" if self.upper is None else f" {'<=' if self.upper_inclusive else '<'} {shown(self.upper)}"
        return f"{low}{name}{high}{' or without a cursor' if self.nulls else ''}"


@dataclass(frozen=True)
class Overlap:
    """Rows of a read that may be in the target already: what identifies a row beside its keys, and where to look.

    Attributes:
        columns: the cursor, and its fallback.
        lower: no row of the read has a lower value in the first of ``columns``; None: look everywhere.
    """

    columns: tuple[str, ...]
    lower: Any = None


def untyped_window(increment: StatefulIncrement, mark: CursorMark | None, from_start: bool) -> Window:
    """The window above ``mark`` as far as it can be shown where only the rows say which type the cursor has."""
    window = Window(increment.column, increment.fallback_column)
    if mark is None or from_start or increment.watermark_lag:
        return window
    return replace(window, lower=mark.value, lower_inclusive=increment.boundary == "closed")


def window_above(
    increment: StatefulIncrement, mark: CursorMark | None, kind: str, label: str, *, rows_are_known: bool
) -> Window:
    """The window above ``mark``, without an upper bound yet.

    Args:
        kind: the type of the cursor.
        rows_are_known: the write recognizes rows that are read again, so those tied with the mark need not be known
            here.

    Raises:
        IncrementError: the initial value or the lag does not fit the cursor's type.
    """
    window = Window(
        increment.column,
        increment.fallback_column,
        nulls=increment.on_null == "include",
        date_format=increment.date_format,
    )
    start = start_under(increment, mark, kind, label)
    if mark is None:
        return replace(window, lower=start, lower_inclusive=True)
    lower = less_lag_of(increment.watermark_lag, mark.value, increment.column, label)
    if start is not None and (mark.value is None or start <= mark.value) and (lower is None or lower < start):
        # What the first run left out, a lag does not bring.
        return replace(window, lower=start, lower_inclusive=True)
    # If nothing says which rows at the mark were loaded, all of them count as loaded, as the mark says.
    closed = increment.boundary == "closed" and (rows_are_known or mark.ties is not None)
    ties = {} if rows_are_known else mark.ties or {}
    tied_by = tuple(mark.tied_by) if ties and mark.tied_by is not None else None
    return replace(window, lower=lower, lower_inclusive=closed, ties=ties, tied_by=tied_by)


def start_under(increment: StatefulIncrement, mark: CursorMark | None, kind: str, label: str) -> Any:
    """Where a read of the whole source begins, inclusive; None: at the beginning.

    Without a mark, that is the initial value. Under a mark, it is where the rows begin that are in the target, whatever
    the project file says since.

    Raises:
        IncrementError: the initial value is none of the cursor's type.
    """
    start = None if increment.initial_value is None else parse(increment.initial_value, kind, increment, label)
    if mark is None:
        return start
    if mark.began_at is not None:
        return parse(mark.began_at, kind, increment, label) if mark.began_at else None
    # Who set the mark did not say. One below the initial value was set before that was.
    return start if start is not None and (mark.value is None or start <= mark.value) else None


def less_lag_of(lag: Lag | None, value: Any, column: str, label: str) -> Any:
    """A mark's value less the lag; None if that is before all values.

    Raises:
        IncrementError: the lag does not fit the cursor's type.
    """
    try:
        return less_lag(value, lag)
    except TypeError as error:
        raise IncrementError(
            f"watermark_lag {lag} does not subtract from {value!r}, a `{column}` of {label}",
            fix="use a duration (2h) for times and dates, a number for numbers; text takes no lag",
            column=column,
        ) from error


def range_window(increment: StatefulIncrement | RollingWindowIncrement, start: datetime, end: datetime) -> Window:
    """The rows whose cursor lies in ``start <= cursor < end``."""
    stateful = increment if isinstance(increment, StatefulIncrement) else None
    return Window(
        increment.column,
        stateful.fallback_column if stateful else None,
        lower=start,
        upper=end,
        lower_inclusive=True,
        upper_inclusive=False,
        date_format=stateful.date_format if stateful else None,
    )


def require_time_cursor(window: Window, columns: Mapping[str, TypeName], label: str, node: str) -> None:
    """Raises ConfigError unless the cursor of a range is a date or a time.

    Args:
        columns: the types of the source's columns, as Delta and Spark write them in JSON.
    """
    if window.date_format is not None:
        return
    for name in window.columns:
        kind = columns.get(name)
        if kind is None or kind in _TIMES:
            continue
        shown_kind = kind if isinstance(kind, str) else kind["type"]
        text = "say how with `incremental.date_format`, if it holds dates as text; or " if kind == "string" else ""
        raise ConfigError(
            f"{node} takes ranges of its cursor `{name}`, which is {shown_kind} in {label}, "
            "and a range is one of dates or times",
            fix=f"{text}add `partition: {{column: …, start: …}}` to the node; or load all of it with --full-refresh",
            node=node,
            column=name,
        )


def shown(value: Any) -> str:
    """A cursor value in a message."""
    return value.hex() if isinstance(value, bytes) else str(value)
