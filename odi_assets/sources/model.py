"""What a run will read, decided before it reads: plain values, no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from odi_assets.config.models import DateFormat, StatefulIncrement
from odi_assets.connections.location import Location
from odi_assets.delta.changes import TableChanges
from odi_assets.delta.table import TableHandle
from odi_assets.sources.files.ledger import NewPart
from odi_assets.sources.files.listing import SourceFile


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
        upper_inclusive: ranges do not include their upper bound.
        lower_inclusive: ranges, rolling windows, closed boundaries and first values include their lower bound.
        start: where a read of the whole source begins, inclusive; None at the beginning.
        nulls: rows without a cursor are in the window too.
        date_format: how dates are written where the cursor is text.
        ties: rows at ``lower`` that are in the target already: how many of each row hash.
    """

    column: str
    fallback: str | None = None
    lower: Any = None
    upper: Any = None
    lower_inclusive: bool = False
    upper_inclusive: bool = True
    start: Any = None
    nulls: bool = False
    date_format: DateFormat | None = None
    ties: Mapping[str, int] = field(default_factory=dict)

    def whole(self) -> Window:
        """The same window from its very start."""
        return replace(self, lower=self.start, lower_inclusive=True, ties={})


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
        position: where the whole source stood when this was planned (see ``position``).
        summary: what will be read, in words.
        every_file: of a files increment, all files that the target will stand for.
        ledger: the part of the ledger of loaded files that ``hwm_after`` needs, to be written before the commit.
        lost_files: loaded files that are not there any more, so that nothing can be computed from them anew.
        reloads: some of ``files`` were loaded before, with other content.
        stateful: the increment behind ``window``, if it is of that kind.
        seen: stands for the state of the source; a source that is in the same state has nothing new.
        typed: False for an HWM that another tool stored without its type.
        excluded: rows without a cursor that are left out.
        from_start: the source is read whole, up to its bound, and not only above the HWM.
        ties_after: of rows at ``hwm_after``, how many there are of each row hash.
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
    every_file: tuple[SourceFile, ...] | None = None
    ledger: NewPart | None = None
    lost_files: tuple[str, ...] = ()
    reloads: bool = False
    stateful: StatefulIncrement | None = None
    seen: str | None = None
    typed: bool = True
    excluded: int | None = None
    from_start: bool = False
    ties_after: Mapping[str, int] = field(default_factory=dict)
    position: Mapping[str, Any] | None = None

    @property
    def known_rows(self) -> int | None:
        """Rows to be read where the log tells, else None."""
        if self.handle is None or self.window is not None or self.partitions is not None:
            return None
        return self.changes.rows if self.changes is not None else self.handle.rows

    def whole(self) -> ReadPlan:
        """The same source, all of it, up to the same bound."""
        window = self.window.whole() if self.window else None
        summary = self.summary if self.summary.startswith("whole") else "whole"
        whole = replace(self, changes=None, partitions=None, from_start=True)
        return replace(whole, window=window, nothing_new=False, summary=summary)
