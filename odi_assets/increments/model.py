"""What a run will read, decided before it reads: plain values, no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from odi_assets.connections.location import Location
from odi_assets.increments.files import SourceFile
from odi_assets.tables.handle import TableHandle
from odi_assets.tables.log import TableChanges


class Unknown(Enum):
    """A bound that only a Spark pass over the source can tell; it is fixed before the source is read."""

    UNTIL_READ = "known when the source is read"


UNKNOWN = Unknown.UNTIL_READ


@dataclass(frozen=True)
class Window:
    """``lower < cursor <= upper``, where cursor is ``column``, or ``fallback`` where column is NULL.

    Attributes:
        lower: exclusive; None reads from the beginning.
        upper: inclusive; None reads to the end (rolling windows); UNKNOWN until the source was looked at.
        lower_inclusive: rolling windows include their lower bound.
    """

    column: str
    fallback: str | None = None
    lower: Any = None
    upper: Any = None
    lower_inclusive: bool = False


@dataclass(frozen=True)
class PartitionFilter:
    """Whole partitions of one column.

    Attributes:
        values: partition values as Delta writes them; None stands for NULL.
        pending: values that only Spark can tell: the distinct values of ``column`` among the changed rows.
    """

    column: str
    values: tuple[str | None, ...] = ()
    pending: bool = False


@dataclass(frozen=True)
class ReadPlan:
    """One source of a node and the part of it that is read.

    Attributes:
        name: the view the node's SQL sees, the argument its function gets.
        label: the source in words, ``landing:flights/*.csv`` or ``flights.raw_flights``.
        files: the files to read, for file formats.
        handle: the table to read, at the version to read it at, for Delta.
        changes: read only the rows these commits brought.
        gained: the commits since the HWM, whether or not only their rows are read.
        window: read only rows in this window.
        partitions: read only these partitions.
        incremental: whether the source remembers how far it was read.
        hwm_before: the HWM the plan started from; None on a first read.
        hwm_after: the HWM once this read is safely in the target; UNKNOWN until Spark looked.
        nothing_new: the source is not ahead of the HWM.
        summary: what will be read, in words.
    """

    name: str
    label: str
    format: str
    location: Location
    summary: str
    files: tuple[SourceFile, ...] | None = None
    handle: TableHandle | None = None
    changes: TableChanges | None = None
    gained: TableChanges | None = None
    window: Window | None = None
    partitions: PartitionFilter | None = None
    schema_ddl: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    incremental: bool = False
    hwm_before: Any = None
    hwm_after: Any = None
    nothing_new: bool = False

    @property
    def known_rows(self) -> int | None:
        """Rows to be read where the log tells, else None."""
        if self.handle is None or self.window is not None or self.partitions is not None:
            return None
        return self.changes.rows if self.changes is not None else self.handle.rows

    def whole(self) -> ReadPlan:
        """The same source, all of it, up to the same bound."""
        window = replace(self.window, lower=None) if self.window else None
        summary = self.summary if self.summary.startswith("whole") else "whole"
        return replace(self, changes=None, window=window, partitions=None, nothing_new=False, summary=summary)


def lower_with_lag(hwm: Any, lag: timedelta | int | float | Decimal | None) -> Any:
    """The lower bound that re-reads ``lag`` below the HWM. The HWM itself stays where it is.

    Raises:
        TypeError: the lag does not subtract from a cursor of this type.
    """
    if hwm is None or lag is None:
        return hwm
    return hwm - (Decimal(str(lag)) if isinstance(hwm, Decimal) and isinstance(lag, int | float) else lag)
