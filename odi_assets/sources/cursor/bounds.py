"""The upper bound of a cursor: the greatest value that a source has, and whether it is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.window import shown


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

    def gone_back(self, column: str, hwm: Any) -> str | None:
        """What :func:`gone_back` says of the mark of a column; files come and go, so it is for databases."""
        return None if self.ahead else gone_back({column: self.upper}, {column: hwm})


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


def gone_back(uppers: Mapping[str, Any], marks: Mapping[str, Any]) -> str | None:
    """What somebody should look at if a database has no row any more at or above a mark, in words; None if it has.

    Args:
        uppers, marks: by cursor column, the greatest value, and the one that was read.
    """
    back = [name for name, mark in marks.items() if mark is not None and is_ahead(mark, uppers.get(name))]
    if not back or len(back) < sum(mark is not None for mark in marks.values()):
        return None
    name = back[0]
    if uppers.get(name) is None:
        return f"the source has no row with a value of `{name}` any more, and the mark is {shown(marks[name])}"
    return (
        f"the newest row of the source lies below the mark: `{name}` is {shown(uppers[name])}, and was "
        f"{shown(marks[name])}. If it was restored, or its values are given out again, rows up to the mark are never "
        "read: odi audit compares both, and odi state rewind goes back"
    )


def is_ahead(upper: Any, hwm: Any) -> bool:
    """Whether ``upper`` is greater than the HWM, which has the same type."""
    return upper is not None and (hwm is None or bool(upper > hwm))
