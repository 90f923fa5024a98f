"""Cursors ahead of the clock: as a mark, one date far from now would keep out all rows that come until then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from odi_assets.config.models import ClockGuard
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.window import shown
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FEW = 3
"""Rows that a message names."""
_WIDEST = 40
_TIMES = ("date", "timestamp", "timestamp_ntz")


def limit_of(guard: ClockGuard, kind: Any, now: datetime) -> Any:
    """The greatest value of a cursor that may become a mark; None where any may.

    Args:
        kind: the type of the cursor. Dates and times without a zone are compared in UTC.
        now: the clock of the source, with a zone.
    """
    if not is_guarded(guard, kind):
        return None
    assert guard.max_ahead is not None
    try:
        limit = now.astimezone(UTC) + guard.max_ahead
    except OverflowError:
        return None
    if kind == "date":
        return limit.date()
    return limit if kind == "timestamp" else limit.replace(tzinfo=None)


def is_guarded(guard: ClockGuard, kind: Any) -> bool:
    """Whether marks of cursors of a type are compared with the clock."""
    return guard.max_ahead is not None and kind in _TIMES


def is_beyond(value: Any, limit: Any) -> bool:
    """Whether a mark's value is greater than a limit of :func:`limit_of`; False for values of another type."""
    return limit is not None and kind_of_time(value) == kind_of_time(limit) and bool(value > limit)


def kind_of_time(value: Any) -> str | None:
    """The type of the cursors that a date or a time is a value of; None for other values."""
    if isinstance(value, datetime):
        return "timestamp_ntz" if value.tzinfo is None else "timestamp"
    return "date" if isinstance(value, date) else None


def require_mark_within(guard: ClockGuard, value: Any, now: datetime, label: str, column: str) -> None:
    """Raises IncrementError if a mark is ahead of the clock."""
    if is_beyond(value, limit_of(guard, kind_of_time(value), now)):
        raise mark_ahead(guard, value, label, column)


def mark_ahead(guard: ClockGuard, value: Any, label: str, column: str) -> IncrementError:
    """The error for a mark that is ahead of the clock."""
    return IncrementError(
        f"the HWM of {label}, `{column}` {shown(value)}, is ahead of now by more than {ahead_text(guard)}: rows that "
        "come until then would never be read",
        fix="odi doctor names the way back; or, if such dates are meant, set `incremental.max_ahead` to more, or to "
        "`none`",
        column=column,
    )


def rows_ahead(
    guard: ClockGuard, count: int, limit: Any, rows: Sequence[str], label: str, column: str
) -> IncrementError:
    """The error for rows whose cursor would become a mark ahead of the clock.

    Args:
        count: how many there are; 0 where that is not known.
        rows: some of them, in words.
    """
    rows_have = f"{counted(count, 'row') if count else 'rows'} of {label} {'has' if count == 1 else 'have'}"
    return IncrementError(
        f"{rows_have} a `{column}` after {shown(limit)}, which is now + {ahead_text(guard)}: as "
        f"the HWM, it would keep out all rows that come until then{''.join(f'; {row}' for row in rows)}",
        fix="correct them at the source; or set `incremental.on_ahead: hold` (each is loaded once its time has come); "
        "or, if such dates are meant, `incremental.max_ahead` to more, or to `none`",
        column=column,
        count=count,
    )


def held_text(count: int) -> str:
    """That rows are left for later, in words; empty for none."""
    return f"; {counted(count, 'row')} ahead of the clock left for later" if count else ""


def ahead_text(guard: ClockGuard) -> str:
    """``max_ahead`` in words: ``1 day``, ``1:30:00``."""
    return str(guard.max_ahead).removesuffix(", 0:00:00")


def described(rows: DataFrame, row_file: Column | None, columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """A few of the rows in words: their keys, their cursors, and the file that each is in, where that is known.

    Args:
        row_file: the file that a row is in; None if that is not known.
        columns: the cursors.
        keys: the columns that identify a row of the node; without one, the first columns stand for them.
    """
    names = [name for name in keys if name in rows.columns]
    names = names or [name for name in rows.columns if name not in columns][:2]
    asked = [F.col(quoted(name)).cast("string").alias(str(i)) for i, name in enumerate((*names, *columns))]
    examples = rows.select(*asked, *([] if row_file is None else [row_file.alias("place")])).limit(FEW).collect()
    return [_described((*names, *columns), tuple(row), row_file is not None) for row in examples]


def _described(names: Sequence[str], values: Sequence[Any], has_place: bool) -> str:
    text = ", ".join(f"{name} {_cut(value)}" for name, value in zip(names, values, strict=False))
    return f"{text} in {unquote(values[-1])}" if has_place and values[-1] else text


def _cut(value: str | None) -> str:
    if value is None:
        return "NULL"
    return value if len(value) <= _WIDEST else f"{value[:_WIDEST]}…"
