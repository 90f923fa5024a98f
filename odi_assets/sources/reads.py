"""Reads: what a run takes of one source, fixed before it reads.

``Read`` is one of seven: :class:`Whole` and :class:`NothingNew` here, ``files.source.NewFiles``,
``delta.source.NewVersions``, ``cursor_reads.CursorWindow``, ``sql.snapshots.SnapshotChunks`` and
``sql.snapshots.NewRows``. An :class:`UnresolvedRead` becomes one of them in a pass of Spark. Callers use the methods of
the base class, and never ask which one they have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from odi_assets.errors import OdiError
from odi_assets.sources.cursor.late import NONE_LATE, Late
from odi_assets.sources.marks import UNRESOLVED, Mark, Unresolved, history_of, hwm_text
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.sources.cursor.window import Overlap
    from odi_assets.tables.parts import TableParts


@dataclass(frozen=True)
class AffectedPartitions:
    """The partitions of the rows that a source gained or changed.

    Attributes:
        values: those that are known.
        by_rows: there may be more, to be found in the rows themselves.
        everything: all partitions may be affected.
    """

    values: frozenset[str | None] = frozenset()
    by_rows: bool = False
    everything: bool = False

    def __or__(self, other: AffectedPartitions) -> AffectedPartitions:
        return AffectedPartitions(
            self.values | other.values, self.by_rows or other.by_rows, self.everything or other.everything
        )


@dataclass(frozen=True, kw_only=True)
class PlannedRead(ABC):
    """What a run will take of one source, as far as planning needs to know.

    Attributes:
        snapshot: the source as it was when it was planned.
        summary: what will be read, in words.
        before: the mark that the plan started from; None for a first read, or a source that keeps none.
        after: the mark once this read is safely in the target; None if there is none.
        follows: the source keeps a mark.
        rewrites: rows of the source were changed or removed, so that reading the gained rows is not enough.
        excluded: rows without a cursor that are left out.
        held: rows ahead of the clock that are left for later.
        unsettled: files that are left for later, for they may still be written.
        late: rows that arrived at or below the mark since it was set, which no increment reads.
        under: where the stream of a cursor document is that the read was planned under; None if none drives it.
        warning: what somebody should look at, in words.
        stop: the error that a run ends with at this read; None if it does not, as far as planning can see.
        rechecked: rows that were read before may be other ones now (:meth:`Source.corrections`); it is looked at before
            this is read.
        keep: writes to storage what goes with ``under``, before the commit.
    """

    snapshot: SourceSnapshot
    summary: str
    before: Mark | None = None
    after: Mark | Unresolved | None = None
    follows: bool = False
    rewrites: bool = False
    excluded: int = 0
    held: int = 0
    unsettled: int = 0
    late: Late = NONE_LATE
    under: str | None = None
    warning: str | None = None
    stop: OdiError | None = None
    rechecked: bool = False
    keep: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    nothing_new: ClassVar[bool] = False
    """The source is not ahead of its mark."""
    is_part: ClassVar[bool] = True
    """Only a part of the source is read: what it gained, or a window."""

    def without_spark(self) -> tuple[Read, pa.Table | TableParts] | None:
        """The read with its bounds, and its rows; None if only Spark can read them."""
        return None

    @property
    def goes_on(self) -> bool:
        """Once it is in the target, the same run reads on: it is a step of several."""
        return False

    @property
    def until(self) -> Any:
        """Where the source ended when the run began, for the next steps of the run; None if that does not matter."""
        return None

    @property
    def stands_at(self) -> Position | None:
        """What another run would meet again, where the source moves without anything new for the node; None: the
        source's position says it."""
        return None

    @property
    def name(self) -> str:
        return self.snapshot.name

    @property
    def label(self) -> str:
        return self.snapshot.label

    @property
    def moves(self) -> bool:
        """Whether the mark changes."""
        return self.follows and self.after != self.before

    @property
    def leaves_rows(self) -> bool:
        """Whether rows that are there already are left for a later increment."""
        return bool(self.held or self.unsettled)

    @property
    def is_to_be_noted(self) -> bool:
        """Whether the mark changes, or names a later commit of a table."""
        return self.moves or (self.follows and history_of(self.after) != history_of(self.before))

    @property
    def rows_known(self) -> int | None:
        """How many rows will be read; None if that is not known without reading."""
        return None

    @property
    def file_count(self) -> int | None:
        """How many files will be read; None for sources that are not files."""
        return self.snapshot.file_count

    @property
    def bytes(self) -> int | None:
        """Size of the files that will be read; an upper bound if they have to be read to know. None for sources that
        are not files."""
        return self.snapshot.bytes

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Figures of the source that the history of runs keeps."""
        return {}

    @property
    def overlap(self) -> Overlap | None:
        """The rows of this read that may be in the target already; None: all are new, or that is not known yet."""
        return None

    @abstractmethod
    def whole(self) -> PlannedRead:
        """All rows of the source, up to the same mark."""

    @abstractmethod
    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        """All rows of the source that are in ``wanted``, up to the same mark."""

    def affected(self, column: str, node: str) -> AffectedPartitions:
        """The partitions, by ``column``, of the rows that the source gained or changed.

        Args:
            node: whose table is partitioned by ``column``; for messages.

        Raises:
            ConfigError: the source has no such column.
            IncrementError: rows of the affected partitions cannot be read any more.
        """
        del column, node
        return AffectedPartitions()

    def before_commit(self) -> None:
        """Write to storage what the mark will name. Without the commit, it means nothing."""
        return

    def once_read(self) -> None:
        """Called once all rows are written, and not committed yet. Raises SourceError if what was read may not be what
        the mark will name."""
        return

    def after_commit(self) -> None:
        """Let the source know that the read is safely in the target. A run that dies before leaves it to the next."""
        return

    def to_json(self) -> dict[str, Any]:
        """The read as JSON-ready values, for ``odi plan --json``."""
        return {
            "name": self.name,
            "source": self.label,
            "format": self.snapshot.format,
            "incremental": self.follows,
            "summary": self.summary,
            "files": self.file_count,
            "rows": self.rows_known,
            "rows_held": self.held,
            "rows_below_hwm": self.late.rows,
            "rows_below_hwm_is_exact": self.late.is_exact,
            "hwm_before": hwm_text(self.before.value if self.before else None),
            "hwm_after": mark_text(self.after),
            **self.metrics,
        }


@dataclass(frozen=True, kw_only=True)
class UnresolvedRead(PlannedRead):
    """A read whose upper bound only a pass of Spark over the source can find."""

    after: Mark | Unresolved | None = UNRESOLVED

    @abstractmethod
    def resolve(self, spark: SparkSession) -> Read:
        """The read, once the source was looked at.

        Raises:
            IncrementError: a cursor, a mark or a row does not fit the configuration.
        """


@dataclass(frozen=True, kw_only=True)
class Read(PlannedRead):
    """A read whose bounds are fixed.

    Attributes:
        range_of: the node whose range of a cursor this is; its cursor has to be a date or a time.
    """

    after: Mark | None = None
    range_of: str | None = None

    @abstractmethod
    def load(self, spark: SparkSession) -> DataFrame:
        """The rows, lazily."""

    def numbered(self, rows: DataFrame, column: str) -> DataFrame:
        """``rows`` of :meth:`load` with the number of the delivery that each came in, an INT; as they are, if there is
        one delivery, or their order is not known."""
        del column
        return rows

    @property
    def others(self) -> Sequence[str]:
        """Of a read that knows again what is loaded: the files beside it, which are not."""
        return ()

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        return replace(Whole.instead_of(self), summary=self.summary, only=wanted)

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        """Rows that the source gained, and changed rows as they were before: their partitions are affected."""
        del spark
        return ()

    def affected_stored(self, stored: Callable[[], DataFrame]) -> Iterable[DataFrame]:
        """Rows of the node's table that the source may have lost, or have in another partition, without a trace.

        Args:
            stored: gives the rows of the table.
        """
        del stored
        return ()

    @property
    def range_held(self) -> Any:
        """What the source of a range of its cursor consists of, as :class:`LoadedRange` has it; None if the read is no
        such range, or that is not known."""
        if self.range_of is None:
            return None
        version = self.snapshot.table_version
        return self.snapshot.noted(None) if version is None else version

    def remembered(self) -> Mapping[str, Any]:
        """What the commit has to store beside the mark's value, JSON-ready."""
        # Marks of files and versions have nothing beside their value.
        remembered = getattr(self.after, "remembered", None)
        return {} if remembered is None else remembered()


@dataclass(frozen=True, kw_only=True)
class Whole(Read):
    """All rows of a source, or all rows of some partitions.

    Attributes:
        increment: the read that this one replaces and whose mark it moves; None: it moves no mark.
        only: the partitions to read; None: all.
    """

    increment: Read | None = None
    only: Partitions | None = None

    is_part: ClassVar[bool] = False

    @classmethod
    def instead_of(cls, increment: Read) -> Whole:
        """All rows of the source, instead of ``increment``."""
        return cls(
            snapshot=increment.snapshot,
            summary=increment.snapshot.summary,
            before=increment.before,
            after=increment.after,
            follows=increment.follows,
            held=increment.held,
            unsettled=increment.unsettled,
            under=increment.under,
            keep=increment.keep,
            increment=increment,
        )

    @property
    def rows_known(self) -> int | None:
        return None if self.only else self.snapshot.rows_known

    def load(self, spark: SparkSession) -> DataFrame:
        return self.snapshot.rows(spark, self.only)

    def numbered(self, rows: DataFrame, column: str) -> DataFrame:
        return self.snapshot.numbered(rows, column)

    def whole(self) -> PlannedRead:
        return self

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        return replace(self, only=wanted)

    def before_commit(self) -> None:
        if self.increment is not None:
            self.increment.before_commit()

    def once_read(self) -> None:
        if self.increment is not None:
            self.increment.once_read()


@dataclass(frozen=True, kw_only=True)
class NothingNew(Read):
    """A source that is not ahead of its mark.

    The mark may change nevertheless: files were renamed, commits changed no row. State stores it.

    Attributes:
        increment: the read that found nothing; it is used if another source of the node makes that necessary.
        waits_for: why ``increment``, which has rows, is not read yet; None if it has none.
    """

    increment: PlannedRead
    waits_for: str | None = None

    nothing_new: ClassVar[bool] = True

    @classmethod
    def of(cls, increment: PlannedRead, summary: str, after: Mark | None) -> NothingNew:
        """``increment`` turned out to hold no row."""
        return cls(
            snapshot=increment.snapshot,
            summary=summary,
            before=increment.before,
            after=after,
            follows=increment.follows,
            under=increment.under,
            keep=increment.keep,
            increment=increment,
        )

    @property
    def file_count(self) -> int | None:
        return None if self.increment.file_count is None else 0

    @property
    def bytes(self) -> int:
        return 0

    @property
    def metrics(self) -> Mapping[str, Any]:
        return self.increment.metrics

    def load(self, spark: SparkSession) -> DataFrame:
        return self.snapshot.rows(spark).limit(0)

    def affected(self, column: str, node: str) -> AffectedPartitions:
        # It affects no partition, but raises if its rows of the partitions that others affect are gone.
        self.increment.affected(column, node)
        return AffectedPartitions()

    def whole(self) -> PlannedRead:
        return self.increment.whole()

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        return self.increment.in_partitions(wanted)

    def before_commit(self) -> None:
        self.increment.before_commit()

    def once_read(self) -> None:
        self.increment.once_read()


def mark_text(mark: Mark | Unresolved | None) -> str | None:
    """A mark in a few words; None for none."""
    return str(mark) if isinstance(mark, Unresolved) else hwm_text(mark.value if mark else None)
