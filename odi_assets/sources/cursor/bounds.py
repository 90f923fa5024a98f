"""The upper bound of a cursor column, found without Spark where statistics tell it exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from odi_assets.config.models import StatefulIncrement
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.parquet_bounds import ColumnBounds, column_bounds
from odi_assets.sources.model import UNKNOWN, Unknown

_MILLISECOND = timedelta(milliseconds=1)
_FEW_FILES = 200
_EXACT_DIGITS = 15


@dataclass(frozen=True)
class Bound:
    """The greatest cursor of a source (None: there is none), and how many of its rows have no cursor."""

    upper: Any
    without_cursor: int


def table_bound(handle: TableHandle, increment: StatefulIncrement, name: str) -> Bound | Unknown:
    """The bound of a Delta table by its file statistics; UNKNOWN if they cannot tell.

    Args:
        name: the type of the cursor. Bounds of text and bytes may be cut, those of floats know no NaN, and those of
            long decimals are rounded, so they are not asked.
    """
    if not handle.live_files:
        return Bound(None, 0)
    if increment.date_format or increment.column in handle.partition_columns or not _is_exact(name):
        return UNKNOWN
    actions = handle.add_actions
    names = [f"{kind}.{increment.column}" for kind in ("max", "null_count")]
    if any(column not in actions.column_names for column in names):
        return UNKNOWN
    try:
        highs, nulls, rows = (actions[column].to_pylist() for column in (*names, "num_records"))
    except OverflowError:
        # A time beyond the years of Python; Spark reads it next, and it is said then.
        return UNKNOWN
    if any(count is None for count in (*nulls, *rows)):
        return UNKNOWN
    without = sum(nulls)
    if without and increment.fallback_column:
        return UNKNOWN
    filled = [i for i, count in enumerate(rows) if count > nulls[i]]
    if any(highs[i] is None for i in filled):
        return UNKNOWN
    if not filled:
        return Bound(None, without)
    upper = max(highs[i] for i in filled)
    if isinstance(upper, datetime):
        upper = upper.astimezone(UTC) if upper.tzinfo else upper
        upper = _untruncated(handle, increment.column, upper, [(i, highs[i]) for i in filled], name)
    return UNKNOWN if upper is UNKNOWN else Bound(upper, without)


def _is_exact(name: str) -> bool:
    if name.startswith("decimal"):
        return int(name[len("decimal(") :].partition(",")[0]) <= _EXACT_DIGITS
    return name not in {"string", "binary", "float", "double"}


def _untruncated(
    handle: TableHandle, column: str, upper: datetime, highs: Sequence[tuple[int, datetime]], name: str
) -> datetime | Unknown:
    """The greatest time, where writers may have cut theirs to milliseconds (protocol, "Per-file Statistics").

    A bound that was cut would leave rows above it unread until a later one comes, and one that was rounded up would
    lose rows that come later below it. So files whose bound looks cut, and may lie above, are asked by their footers.
    """
    cut = [i for i, high in highs if high.microsecond % 1000 == 0 and high + _MILLISECOND > upper]
    if not cut:
        return upper
    if len(cut) > _FEW_FILES:
        return UNKNOWN
    found = column_bounds(handle.location, [handle.live_files[i].path for i in cut], column)
    if found is None or (found.type_name is not None and found.type_name != name) or found.upper is None:
        return UNKNOWN
    exact = [high for i, high in highs if i not in set(cut)]
    greatest: datetime = max([found.upper, *exact])
    return greatest


def files_bound(bounds: ColumnBounds | None, increment: StatefulIncrement) -> Bound | Unknown:
    """The bound of Parquet files by their footers; UNKNOWN if they cannot tell."""
    if bounds is None or increment.date_format:
        return UNKNOWN
    if bounds.nulls and increment.fallback_column:
        return UNKNOWN
    return Bound(bounds.upper, bounds.nulls)


def null_cursors(column: str, count: int, label: str) -> IncrementError:
    """The error for rows that have no cursor and would never be read."""
    return IncrementError(
        f"{count:,} rows of {label} have NULL in the cursor column `{column}`; no increment would ever read them",
        fix="set `incremental.on_null` to `include` (each is loaded once) or `exclude` (they are dropped and counted), "
        "or `incremental.fallback_column` to a column that is filled there, or choose another cursor",
        column=column,
        count=count,
    )


def is_ahead(upper: Any, hwm: Any) -> bool:
    """Whether ``upper`` lies above the HWM, which is of its type."""
    return upper is not None and (hwm is None or bool(upper > hwm))
