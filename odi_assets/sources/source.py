"""Sources: where a node's rows come from. A folder per kind, each behind this one protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import (
    ClockGuard,
    Connection,
    CursorIncrement,
    Increment,
    ReadConfig,
    RollingWindowIncrement,
    SchemaPolicy,
    StatefulIncrement,
)
from odi_assets.config.write_modes import WriteTraits
from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError
from odi_assets.sources.cursor.ahead import ahead_text, is_beyond, kind_of_time, limit_of
from odi_assets.sources.cursor_reads import plan_loaded, plan_range, plan_window, reads_again, remembering_ties
from odi_assets.sources.marks import CursorMark, Identity, Mark, hwm_text
from odi_assets.sources.reading import LEFT_OUT, Reading, Settings
from odi_assets.sources.reads import PlannedRead, Read, Whole
from odi_assets.sources.snapshot import Position, SourceSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.sources.losses import Loss


@dataclass(frozen=True)
class Target:
    """The table that rows of a source go to, as far as reading depends on it.

    Attributes:
        node: who reads, for messages: ``pipeline.node``.
        location: the table; sources keep lists of what is loaded beside it.
        traits: the traits of the node's write mode.
        keys: the node's ``write.keys``.
        schema_policy: what happens to rows with other columns than the table.
        partition_by: the columns of its partitions.
        known_by: has the columns of the node's ``read`` that say which row of the table a row is, in lower case; each
            with whether texts are made of it.
    """

    node: str
    location: Location
    traits: WriteTraits
    keys: tuple[str, ...]
    schema_policy: SchemaPolicy = "fail"
    partition_by: tuple[str, ...] = ()
    known_by: Callable[[], Mapping[str, bool]] = field(default=dict, compare=False, repr=False)

    @property
    def rows_are_known(self) -> bool:
        """Whether the write recognizes rows that are read again."""
        return self.traits.takes_rows_again or bool(self.keys)

    @property
    def parted_by(self) -> str:
        """The column whose partitions are computed again as a whole where they gain rows; empty if none are."""
        return self.partition_by[0] if self.traits.increment == "partitions" and self.partition_by else ""


@dataclass(frozen=True)
class SourceContext:
    """What a source is made of beside its settings; ``SourceKind.source`` names a function that gets it.

    Attributes:
        name: the view that SQL sees, the argument that a function gets.
        label: the source in words: ``landing:flights/*.csv``.
        target: where its rows go.
        connection: the connection that the settings name, as the project file has it.
        locate: a path on that connection → where it is.
    """

    name: str
    label: str
    target: Target
    connection: Connection
    locate: Callable[[str], Location]

    def common(self, read: ReadConfig) -> dict[str, Any]:
        """What every source is made with, by the names of its fields."""
        return {
            "name": self.name,
            "label": self.label,
            "target": self.target,
            "increment": read.incremental,
            "connection": read.connection,
        }


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """One source of a node. Kinds that are followed by more than a cursor column override the methods about marks.

    Attributes:
        name: the view that SQL sees, the argument that a function gets.
        label: the source in words: ``landing:flights/*.csv``, ``flights.raw_flights``.
        target: where its rows go.
        increment: how the source is followed; None reads all of it each time.
        connection: the name of its connection; empty for the table of an upstream node.
    """

    name: str
    label: str
    target: Target
    increment: Increment | None = None
    connection: str = ""

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """What a mark of this source measures."""

    def identified(self, kind: str, source: str, otherwise: str, place: str) -> Identity:
        """The identity of a source at ``place``.

        Args:
            otherwise: what orders the source if it is followed by no cursor column.
        """
        increment = self.increment
        cursor = increment.column if isinstance(increment, CursorIncrement) else otherwise
        if isinstance(increment, StatefulIncrement) and increment.fallback_column:
            cursor = f"{cursor}, else {increment.fallback_column}"
        mode = "" if increment is None else increment.mode
        return Identity(kind, source, cursor, mode, self.connection, place, reading=self.reading)

    @property
    def reading(self) -> Reading | None:
        """How its rows are read, as far as a mark depends on it; None if it does not."""
        increment, by_partitions = self.increment, self.target.traits.increment == "partitions"
        if not isinstance(increment, StatefulIncrement):
            # A partition is computed from all of its rows: what was read of them is read again.
            rows = {"rows": self.settings(())} if by_partitions and self.follows else {}
            return rows | self.left_out or None
        cursor = tuple(name for name in (increment.column, increment.fallback_column) if name is not None)
        ties = increment.boundary == "closed" and not self.target.rows_are_known
        reading: dict[str, Any] = {"date_format": increment.date_format, "ties": ties, "cursor": self.settings(cursor)}
        if ties or by_partitions or reads_again(increment):
            reading["rows"] = self.settings(None if ties else ())
        return reading | self.left_out

    @property
    def left_out(self) -> dict[str, Any]:
        """What a :data:`Reading` says of rows that are never read."""
        settings = {name: getattr(self.increment, name, None) for name in LEFT_OUT}
        stated = {name: value for name, value in settings.items() if value is not None}
        return {"left_out": stated} if stated else {}

    def settings(self, columns: tuple[str, ...] | None) -> Settings:
        """The settings that values of these columns depend on, as the project file names them.

        Args:
            columns: empty: any column, whatever it is asked for by; None: all of them.
        """
        del columns
        return {}

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where it is, without secrets."""

    @property
    def knows_changes(self) -> bool:
        """Whether :meth:`change_since` can tell, without reading the source, that no row of it changed."""
        return True

    @property
    def watchable(self) -> bool:
        """Whether the source can say, without being read, that it is ahead of its mark."""
        return False

    @property
    def shows_changes(self) -> bool:
        """Whether :meth:`position` shows, without the source being read, that it has changed."""
        return self.watchable or self.knows_changes

    def bounded(self, until: Any) -> Source:
        """The same source, of which nothing is read above ``until``; None: no bound.

        Args:
            until: what one of its reads gave.
        """
        del until
        return self

    def followed_by(self, increment: Increment) -> Source:
        """The same source, followed in another way."""
        return replace(self, increment=increment)

    @property
    def unwaited(self) -> Source:
        """What is read, if the source waits for something else before it is read; otherwise the source itself."""
        return self

    def wrapped_mark(self, mark: Mark | None, value: Any) -> Mark | None:
        """``mark``, which is one of :attr:`unwaited`, as the source keeps it.

        Args:
            value: the stored value of the mark before it.
        """
        del value
        return mark

    def unmarked(self, value: Any) -> Any:
        """What is of :attr:`unwaited` in the stored value of a mark."""
        return value

    @property
    def settles_within(self) -> timedelta:
        """How long after its position changed, at most, a plan may find more though the position stays."""
        return timedelta()

    @property
    def cursor(self) -> str | None:
        """The cursor column, if the source is followed by one or takes ranges of one."""
        return self.increment.column if isinstance(self.increment, CursorIncrement) else None

    @property
    def follows(self) -> bool:
        """Whether the source keeps a mark."""
        return self.increment is not None and not isinstance(self.increment, RollingWindowIncrement)

    @abstractmethod
    def snapshot(self) -> SourceSnapshot:
        """The source as it is now, found without Spark and without reading a row.

        Raises:
            SourceError: it does not exist or cannot be examined.
            TableError: it is a table that cannot be opened.
        """

    @abstractmethod
    def position(self) -> Position:
        """Where the source stands now: cheap, without Spark. A source that does not exist yet has a position too.

        Raises:
            SourceError, TableError: it cannot be examined.
        """

    @abstractmethod
    def change_since(self, then: Position | None) -> str | None:
        """How the source differs from a recorded position, in words; None if no row of it changed."""

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        """The mark that ``value`` stores.

        Args:
            remembered: what the commit of the mark stored beside its value.
            typed: False for a value that another tool stored without its type.

        Raises:
            IncrementError: it is no mark of such a source.
        """
        return CursorMark.of(value, remembered, typed=typed)

    def plan(self, mark: Mark | None) -> PlannedRead:
        """What to read above ``mark``; all rows, if the source keeps none. The upper bound is fixed, unless only Spark
        can find it: then the read is an ``UnresolvedRead``.

        Raises:
            SourceError: the source does not exist or cannot be examined.
            IncrementError: the mark does not fit the source.
            TableError: a table cannot be read as asked.
        """
        if not isinstance(self.increment, CursorIncrement):
            return self.whole()
        return self._window(self.snapshot(), mark if isinstance(mark, CursorMark) else None)

    def _window(self, snapshot: SourceSnapshot, above: CursorMark | None, *, rechecked: bool = False) -> PlannedRead:
        assert isinstance(self.increment, CursorIncrement)
        known, keys = self.target.rows_are_known, self.target.keys
        return plan_window(snapshot, self.increment, above, rows_are_known=known, keys=keys, rechecked=rechecked)

    def whole(self) -> Read:
        """All rows, whatever was loaded. Moves no mark. Raises what :meth:`snapshot` raises."""
        snapshot = self.snapshot()
        return Whole(snapshot=snapshot, summary=snapshot.summary)

    def between(self, start: datetime, end: datetime) -> Read:
        """The rows whose cursor lies in ``start <= cursor < end``, whatever was loaded. Moves no mark.

        Raises:
            ConfigError: the source has no cursor column, or it is not one of dates or times.
        """
        if not isinstance(self.increment, CursorIncrement):
            raise ConfigError(f"{self.label} has no cursor column to take a range of", node=self.target.node)
        return plan_range(self.snapshot(), self.increment, start, end, self.target.node)

    def why_unreachable(self, mark: Mark) -> str | None:
        """Why ``mark`` cannot be one of this source, in words; None if it can."""
        del mark
        return None

    def why_soon_unreachable(self, mark: Mark) -> str | None:
        """What will make ``mark`` one that the source cannot go on from, in words; None if nothing is seen."""
        del mark
        return None

    def other_history(self, mark: Mark) -> str | None:
        """How the history of the source differs from the history of ``mark``, in words; None if it is the same.

        Raises:
            TableError: the log of a table cannot be read.
        """
        del mark
        return None

    def rewritten(self, mark: Mark) -> str | None:
        """How rows that were read up to ``mark`` were rewritten since, in words: they may be other ones now. None if
        they were not, or that is not looked at.

        Raises:
            TableError: the log of a table cannot be read.
        """
        del mark
        return None

    @property
    def only_plans_look(self) -> bool:
        """Whether an examination leaves it out, and only a plan asks it."""
        return False

    def corrections(self, mark: Mark, spark: SparkSession) -> str | None:
        """How rows that were read up to ``mark`` are other ones now, in words; None if they are not, or that is not
        looked at."""
        del mark, spark
        return None

    def as_it_is(self, mark: Mark) -> Mark:
        """``mark``, taken for one of the source as it is now, whatever happened to that."""
        return mark

    def why_ahead(self, mark: Mark, now: datetime) -> str | None:
        """How ``mark`` is ahead of the clock, in words; None if it is not."""
        if not isinstance(self.increment, ClockGuard):
            return None
        for column, value in self._cursors_of(mark).items():
            if is_beyond(value, limit_of(self.increment, kind_of_time(value), now)):
                return (
                    f"its HWM, `{column}` {hwm_text(value)}, is ahead of now by more than {ahead_text(self.increment)}"
                )
        return None

    def _cursors_of(self, mark: Mark) -> Mapping[str, Any]:
        """The values of a mark, by cursor column."""
        return {str(self.cursor): mark.value} if isinstance(mark, CursorMark) else {}

    def with_ties(self, mark: Mark, spark: SparkSession) -> Mark:
        """``mark``, with the rows that are tied with it now counted as loaded, where the mark remembers such rows.

        Raises:
            IncrementError: the mark does not fit the source, or there are too many such rows; or not all of them are
                loaded, and it is not known which.
        """
        if not isinstance(self.increment, StatefulIncrement) or not isinstance(mark, CursorMark):
            return mark
        return remembering_ties(self.snapshot(), self.increment, mark, spark)

    def why_waiting(self, mark: Mark) -> str | None:
        """Why it is not read until somebody has looked at what it waits for, in words; None if nothing is wrong."""
        del mark
        return None

    def moved_here(self, mark: Mark, then: Identity) -> Read | None:
        """A read of nothing, which knows in its place of now what ``mark`` names as loaded; None if nothing of that is
        there.

        Args:
            then: what the mark measured.

        Raises:
            IncrementError: what was loaded gives other rows now.
        """
        del mark, then
        return None

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        """Rows up to ``mark`` that are in the target, and that the source no longer gives, as far as it can tell.

        Args:
            mark: None if it is not known.
            then: the source's position in the node's last commit; None if it is not known.
            since: of a table, the version of it that the target was last made of as a whole; None if it is not known.
        """
        del mark, then, since
        return ()

    def loaded(self, mark: Mark) -> PlannedRead:
        """The rows that runs up to ``mark`` have read. Moves no mark.

        Raises:
            ConfigError: some of them are gone.
        """
        if isinstance(self.increment, StatefulIncrement) and isinstance(mark, CursorMark):
            return plan_loaded(self.snapshot(), self.increment, mark)
        return self.whole()
