"""Rows that arrive at or below a mark: no increment reads them, so they are counted where the source shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from odi_assets.delta.files.pruning import uncut
from odi_assets.sources.cursor.columns import window_condition
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.marks import LoadedRange
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Late:
    """Rows that arrived since a mark was set, at or below it.

    Attributes:
        rows: how many are known.
        is_exact: there are no more of them.
        by_reading: more of them are found by reading what arrived.
        moved: partitions that such rows left or joined, as the names of folders have them; None stands for NULL. They
            are computed again, so the rows in them are read.
    """

    rows: int = 0
    is_exact: bool = True
    by_reading: bool = False
    moved: frozenset[str | None] = frozenset()

    def __str__(self) -> str:
        """In words; empty for none."""
        moved = f"; files moved between {len(self.moved):,} of its partitions" if self.moved else ""
        if not self.rows:
            return moved
        least = "" if self.is_exact else "at least "
        return f"{moved}; {least}{counted(self.rows, 'row')} arrived at or below the HWM, not read"

    def partitions_in(self, rows: DataFrame, column: str) -> list[DataFrame]:
        """The partitions that rows ``moved`` between, as rows of ``column`` alone; none if no row did.

        Args:
            rows: of the source; they say what type the column has.
        """
        if not self.moved or column not in rows.columns:
            return []
        kind = rows.schema[column].dataType
        texts = rows.sparkSession.createDataFrame([(value,) for value in sorted(self.moved, key=str)], "text STRING")
        typed = texts.select(F.col("text").try_cast(kind).alias(column), "text")
        # What is none of the type has never been a partition.
        return [typed.where(F.col(quoted(column)).isNotNull() | F.col("text").isNull()).drop("text")]


NONE_LATE = Late()


def rows_below(rows: DataFrame, window: Window, start: Any, loaded: Sequence[LoadedRange] = ()) -> int:
    """How many of ``rows`` are below ``window``, and neither below ``start`` nor in a range that was ``loaded``."""
    # Rows of the window, and those above it, are read in this run or in a later one.
    read = replace(window, upper=None, nulls=False, ties={})
    wanted = replace(read, lower=start, lower_inclusive=True)
    below = ~F.coalesce(window_condition(rows, read), F.lit(False))
    for loaded_range in loaded:
        within = replace(wanted, lower=loaded_range.start, upper=loaded_range.end, upper_inclusive=False)
        below &= ~F.coalesce(window_condition(rows, within), F.lit(False))
    return rows.where(window_condition(rows, wanted) & below).count()


def place_of(low: Any, high: Any, bound: Any, *, inclusive: bool) -> str | None:
    """Where a file's cursors lie; None if that is not known. Writers may cut times to milliseconds."""
    try:
        if low is not None and (low >= bound if inclusive else low > bound):
            return "above"
        is_cut = isinstance(high, datetime) and high.microsecond % 1000 == 0
        highest = uncut(high) if is_cut else high
        if highest is not None and (highest < bound if inclusive else highest <= bound):
            return "below"
    except TypeError:
        return None
    return None
