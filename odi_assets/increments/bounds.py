"""The upper bound of a cursor column, found without Spark where statistics tell it exactly."""

from __future__ import annotations

from typing import Any

from odi_assets.config.models import StatefulIncrement
from odi_assets.errors import IncrementError
from odi_assets.increments.model import UNKNOWN, Unknown, Window, lower_with_lag
from odi_assets.tables.handle import TableHandle


def stateful_window(increment: StatefulIncrement, hwm: Any, upper: Any, label: str) -> Window:
    """The window above ``hwm``, less the lag.

    Raises:
        IncrementError: the lag does not fit the type of the HWM.
    """
    try:
        lower = lower_with_lag(hwm, increment.watermark_lag)
    except TypeError as error:
        raise IncrementError(
            f"watermark_lag {increment.watermark_lag} does not subtract from the HWM {hwm!r} of {label}",
            fix="use a duration (2h) for times and dates, a number for numbers",
            column=increment.column,
        ) from error
    return Window(increment.column, increment.fallback_column, lower, upper)


def table_upper_bound(handle: TableHandle, increment: StatefulIncrement, label: str) -> Any | Unknown | None:
    """The greatest cursor of a Delta table by its file statistics; None if it is empty, UNKNOWN if they cannot tell.

    Raises:
        IncrementError: the table has no such column, or rows whose cursor is NULL.
    """
    for column in filter(None, (increment.column, increment.fallback_column)):
        if column not in handle.columns:
            raise IncrementError(
                f"{label} has no column `{column}`; it has {', '.join(handle.columns)}",
                fix="correct `incremental.column` in the project file",
                column=column,
            )
    # A writer may cut the bound of a string, and then it is not a value of the column.
    if not handle.live_files:
        return None
    if handle.columns[increment.column] == "string" or increment.column in handle.partition_columns:
        return UNKNOWN
    actions = handle.add_actions
    names = [f"{kind}.{increment.column}" for kind in ("max", "null_count")]
    if any(name not in actions.column_names for name in names):
        return UNKNOWN
    highs, nulls, rows = (actions[name].to_pylist() for name in (*names, "num_records"))
    if any(count is None for count in (*nulls, *rows)):
        return UNKNOWN
    if sum(nulls):
        if increment.fallback_column:
            return UNKNOWN
        raise null_cursors(increment.column, sum(nulls), label)
    filled = [high for high, count in zip(highs, rows, strict=True) if count]
    if any(high is None for high in filled):
        return UNKNOWN
    return max(filled, default=None)


def null_cursors(column: str, count: int, label: str) -> IncrementError:
    """The error for rows that have no cursor and would never be read."""
    return IncrementError(
        f"{count:,} rows of {label} have NULL in the cursor column `{column}`; no increment would ever read them",
        fix="set `incremental.fallback_column` to a column that is filled there, or choose another cursor",
        column=column,
        count=count,
    )


def is_ahead(upper: Any, hwm: Any, label: str, column: str) -> bool:
    """Whether ``upper`` lies above the HWM.

    Raises:
        IncrementError: they are of types that do not compare.
    """
    if upper is None:
        return False
    if hwm is None:
        return True
    try:
        return bool(upper > hwm)
    except TypeError as error:
        raise IncrementError(
            f"the cursor `{column}` of {label} is {type(upper).__name__} now, "
            f"and its HWM {hwm!r} is {type(hwm).__name__}",
            fix="if the column was changed on purpose, reset the HWM: odi state set, or odi run --full-refresh",
            column=column,
        ) from error
