"""The upper bound of a cursor: the greatest value that a source has, and whether it is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odi_assets.errors import IncrementError


@dataclass(frozen=True)
class Bound:
    """What is known of a source's cursor after one look.

    Attributes:
        upper: the greatest cursor; None if there is none.
        without_cursor: rows whose cursor is NULL, NaN or infinite.
        ahead: rows whose cursor is above the window that was looked at: too far ahead of the clock.
    """

    upper: Any
    without_cursor: int
    ahead: int = 0


def null_cursors(column: str, kind: str, count: int, label: str) -> IncrementError:
    """The error for rows that have no cursor of type ``kind`` and would never be read."""
    what = "NULL, NaN or infinity" if kind in ("float", "double") else "NULL"
    return IncrementError(
        f"{count:,} rows of {label} have {what} in the cursor column `{column}`; no increment would ever read them",
        fix="set `incremental.on_null` to `include` (each is loaded once) or `exclude` (they are dropped and counted), "
        "or `incremental.fallback_column` to a column that is filled there, or choose another cursor",
        column=column,
        count=count,
    )


def is_ahead(upper: Any, hwm: Any) -> bool:
    """Whether ``upper`` is greater than the HWM, which has the same type."""
    return upper is not None and (hwm is None or bool(upper > hwm))
