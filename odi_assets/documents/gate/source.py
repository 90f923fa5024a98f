"""A source that is driven by a cursor document: it is read when a stream of another tool has moved forward.

What is read is another source, files mostly, which the tool writes. Its mark and the stream's position are one mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from odi_assets.config.models import DrivingCursor, Increment
from odi_assets.config.models.ddl import column_types
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.documents.codec import of_value, text_of, to_value
from odi_assets.documents.gate.look import DocumentLook, ReadDecision, judge, keep, look, with_numbers
from odi_assets.documents.gate.marks import DrivenMark
from odi_assets.errors import CursorDocumentError, IncrementError
from odi_assets.sources.copies import fields_of
from odi_assets.sources.marks import UNRESOLVED, Identity, Mark, Unresolved
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.documents import CursorStream
    from odi_assets.sources.losses import Loss

_NUMBERS = (
    *("byte", "short", "int", "integer", "long", "float", "double", "decimal", "dec", "numeric"),
    *("tinyint", "smallint", "bigint", "real"),
)
"""Types of numbers, by their names in Delta's log and in Spark's DDL."""
CURSOR = "cursor"
"""The key of the stream's position in the position of the source."""

R = TypeVar("R", bound=PlannedRead)


def driven(
    rows: Source, cursor: DrivingCursor, locate: Callable[[str | None, str], Location], schema: str | None = None
) -> DrivenSource:
    """``rows``, read when the stream of a cursor document has moved forward.

    Args:
        schema: the columns of ``rows``, in Spark's DDL, if the project file names them.
        locate: where a path of a connection is, or of the project's folder if there is no connection.
    """
    return DrivenSource(
        **fields_of(Source, rows),
        rows=rows,
        by=cursor,
        document=locate(cursor.connection, cursor.document),
        catalog=None if cursor.catalog is None else locate(cursor.connection, cursor.catalog),
        types={} if schema is None else column_types(schema),
    )


@dataclass(frozen=True, kw_only=True)
class DrivenSource(Source):
    """A source whose reads wait for a stream of a cursor document.

    Attributes:
        rows: what is read.
        by: which stream drives it.
        document, catalog: where these are.
        types: by column of the rows, its type, as far as the project file names it.
    """

    rows: Source
    by: DrivingCursor
    document: Location
    catalog: Location | None = None
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        return self.rows.identity

    @property
    def uri(self) -> str:
        return self.rows.uri

    @property
    def watchable(self) -> bool:
        return True

    @property
    def unwaited(self) -> Source:
        return self.rows

    def followed_by(self, increment: Increment) -> DrivenSource:
        return replace(self, increment=increment, rows=self.rows.followed_by(increment))

    def unmarked(self, value: Any) -> Any:
        return value["rows"] if isinstance(value, Mapping) and DrivenMark.is_value(value) else value

    def wrapped_mark(self, mark: Mark | None, value: Any) -> Mark | None:
        position = value["cursor"] if isinstance(value, Mapping) and DrivenMark.is_value(value) else None
        return None if mark is None else DrivenMark(position, mark, measures=self.identity)

    @property
    def settles_within(self) -> timedelta:
        return self.rows.settles_within

    @property
    def cursor(self) -> str | None:
        return self.rows.cursor

    @property
    def follows(self) -> bool:
        return True

    def snapshot(self) -> SourceSnapshot:
        return self.rows.snapshot()

    def position(self) -> Position:
        """The position of the rows and, as ``cursor``, the position of the stream.

        Raises:
            CursorDocumentError: the document cannot be read.
        """
        return {**self.rows.position(), CURSOR: self._shown(self._look().stream)}

    @property
    def knows_changes(self) -> bool:
        return self.rows.knows_changes

    def change_since(self, then: Position | None) -> str | None:
        before, now = (then or {}).get(CURSOR), self._shown(self._look().stream)
        if then is not None and before != now:
            return f"{self.by.stream} was at {before}, and is at {now}"
        return self.rows.change_since(None if then is None else {k: v for k, v in then.items() if k != CURSOR})

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        if not isinstance(value, Mapping) or not DrivenMark.is_value(value):
            # It was set before the node was driven, or by hand: of the rows alone.
            return DrivenMark(None, self.rows.mark(value, remembered, typed=typed))
        rows = value["rows"]
        return DrivenMark(value["cursor"], None if rows is None else self.rows.mark(rows, remembered, typed=typed))

    def with_ties(self, mark: Mark, spark: SparkSession) -> Mark:
        if not isinstance(mark, DrivenMark) or mark.rows is None:
            return mark
        return replace(mark, rows=self.rows.with_ties(mark.rows, spark))

    def why_waiting(self, mark: Mark) -> str | None:
        """Why nothing is read until somebody has looked at it: the stream went back or is gone; None if it did not.

        Raises:
            CursorDocumentError: the document cannot be read.
        """
        before = mark if isinstance(mark, DrivenMark) else DrivenMark(None, mark)
        _, _, verdict = self._judged(before)
        return verdict.text if verdict.warns else None

    def plan(self, mark: Mark | None) -> PlannedRead:
        before = mark if isinstance(mark, DrivenMark) else DrivenMark(None, mark)
        then, now, verdict = self._judged(before)
        if verdict.unordered:
            raise self._without_order(verdict)
        rows = self.rows.plan(_rows_of(before))
        read = self._driven(rows, mark, now, verdict)
        # Chunks that are left belong to a read that has begun.
        has_begun = isinstance(rows, Read) and rows.goes_on and then is not None and not verdict.warns
        if (verdict.starts or has_begun) and not rows.nothing_new:
            return read
        summary = f"{verdict.text}; {rows.summary}" if verdict.starts else verdict.text
        after = self._after(rows.after, now) if verdict.starts else mark
        nothing = NothingNew.of(read, summary, None if isinstance(after, Unresolved) else after)
        waits = None if verdict.starts or rows.nothing_new else verdict.text
        return replace(nothing, warning=self._warning(verdict), waits_for=waits)

    def whole(self) -> Read:
        return self.rows.whole()

    def between(self, start: datetime, end: datetime) -> Read:
        return self.rows.between(start, end)

    def why_unreachable(self, mark: Mark) -> str | None:
        rows = _rows_of(mark)
        return None if rows is None else self.rows.why_unreachable(rows)

    def other_history(self, mark: Mark) -> str | None:
        rows = _rows_of(mark)
        return None if rows is None else self.rows.other_history(rows)

    def why_ahead(self, mark: Mark, now: datetime) -> str | None:
        rows = _rows_of(mark)
        return None if rows is None else self.rows.why_ahead(rows, now)

    def rewritten(self, mark: Mark) -> str | None:
        rows = _rows_of(mark)
        return None if rows is None else self.rows.rewritten(rows)

    def corrections(self, mark: Mark, spark: SparkSession) -> str | None:
        rows = _rows_of(mark)
        return None if rows is None else self.rows.corrections(rows, spark)

    def as_it_is(self, mark: Mark) -> Mark:
        rows = _rows_of(mark)
        if not isinstance(mark, DrivenMark) or rows is None:
            return mark if rows is None else self.rows.as_it_is(rows)
        rows = self.rows.as_it_is(rows)
        return replace(mark, rows=rows, measures=rows.measures)

    def moved_here(self, mark: Mark, then: Identity) -> Read | None:
        rows = _rows_of(mark)
        return None if rows is None else self.rows.moved_here(rows, then)

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        return self.rows.losses(_rows_of(mark), then, since)

    def loaded(self, mark: Mark) -> PlannedRead:
        rows = _rows_of(mark)
        return self.rows.whole() if rows is None else self.rows.loaded(rows)

    # -- the stream ----------------------------------------------------------------------------------------------------

    def _look(self) -> DocumentLook:
        return look(self.by, self.document, self.catalog, self.target.location)

    def _judged(self, mark: DrivenMark) -> tuple[CursorStream | None, DocumentLook, ReadDecision]:
        """The stream in a mark, what the document says now, and whether that is a reason to read."""
        then, now = self._stream_of(mark), self._look()
        verdict = judge(self.by, then, now, self.document.uri)
        numbers = self._numbers(now.stream) if now.stream is not None and _has_text(now.stream) else ()
        if not numbers or now.stream is None:
            return then, now, verdict
        then = then and with_numbers(then, numbers)
        now = replace(now, stream=with_numbers(now.stream, numbers))
        return then, now, judge(self.by, then, now, self.document.uri)

    def _numbers(self, stream: CursorStream) -> list[str]:
        """The cursor columns that are numbers: the project file says so, or they are in the rows or in the table."""
        handle = TableHandle.open(self.target.location)
        stored = handle.columns if handle.exists else {}
        types = {name.lower(): str(kind) for name, kind in [*stored.items(), *self.types.items()]}
        declared = {name.lower() for name in self.by.numbers}
        return [
            column
            for column in stream.cursors
            if column.lower() in declared or _is_number(types.get(column.lower(), ""))
        ]

    def _without_order(self, verdict: ReadDecision) -> CursorDocumentError:
        node, names = self.target.node, ", ".join(verdict.unordered)
        pipeline, _, name = node.partition(".")
        return CursorDocumentError(
            f"{node} is not started, and would not be again: {verdict.text}",
            fix=f"if the values are numbers, say so: `cursor: {{numbers: [{names}]}}`, or give the column that type in "
            f"`read.schema`; if the tool follows the stream in another way now, load it again: odi run {pipeline} "
            f"--node {name} --full-refresh",
            node=node,
            path=self.document.uri,
        )

    def _stream_of(self, mark: DrivenMark) -> CursorStream | None:
        """The stream's position in a mark; None if the mark has none, or the position of another stream.

        Raises:
            IncrementError: it is no position.
        """
        position = mark.position
        if position is None or (isinstance(position, Mapping) and position.get("stream") != self.by.stream):
            return None
        try:
            return of_value(position)
        except (KeyError, TypeError, ValueError) as error:
            raise IncrementError(
                f"{self.target.node}: its HWM has {str(position)[:200]} for the position of {self.by.stream}",
                fix="set `cursor` in it to null with odi state set: then the stream's next position counts as new",
                node=self.target.node,
            ) from error

    def _shown(self, stream: CursorStream | None) -> str | None:
        return None if stream is None else text_of(stream)

    def _warning(self, verdict: ReadDecision) -> str | None:
        if not verdict.warns:
            return None
        pipeline, _, node = self.target.node.partition(".")
        return (
            f"{self.target.node} is not started: {verdict.text}. If that is meant, load it again: "
            f"odi run {pipeline} --node {node} --full-refresh"
        )

    def _after(self, rows: Mark | Unresolved | None, now: DocumentLook) -> DrivenMark | Unresolved:
        if isinstance(rows, Unresolved):
            return rows
        return DrivenMark(None if now.stream is None else to_value(now.stream), rows, measures=self.identity)

    def _driven(self, rows: PlannedRead, before: Mark | None, now: DocumentLook, verdict: ReadDecision) -> PlannedRead:
        """A read of the rows that moves both marks, and whose commit says the position of the stream."""

        def wrapped(read: R) -> R:
            return replace(
                read,
                before=before,
                after=self._after(read.after, now),
                follows=True,
                under=self._shown(now.stream),
                summary=f"{read.summary}; {verdict.text}",
                keep=lambda: keep(self.target.location, self.by, now.text),
            )

        if not isinstance(rows, UnresolvedRead):
            return wrapped(rows)
        own = {
            "summary": f"{rows.summary}; {verdict.text}",
            "before": before,
            "after": UNRESOLVED,
            "follows": True,
            "under": self._shown(now.stream),
        }
        return DrivenUnresolved(**{**fields_of(PlannedRead, rows), **own}, rows=rows, wrapped=wrapped)


@dataclass(frozen=True, kw_only=True)
class DrivenUnresolved(UnresolvedRead):
    """A driven read whose upper bound only a pass of Spark can find.

    Attributes:
        rows: what is read.
        wrapped: makes a read of the rows a driven one.
    """

    rows: UnresolvedRead
    wrapped: Callable[[Any], Any]

    @property
    def bytes(self) -> int | None:
        return self.rows.bytes

    def resolve(self, spark: SparkSession) -> Read:
        read: Read = self.wrapped(self.rows.resolve(spark))
        return read

    def whole(self) -> PlannedRead:
        return self._again(self.rows.whole())

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        return self._again(self.rows.in_partitions(wanted))

    def affected(self, column: str, node: str) -> AffectedPartitions:
        return self.rows.affected(column, node)

    def _again(self, rows: PlannedRead) -> PlannedRead:
        if isinstance(rows, UnresolvedRead):
            return replace(self, rows=rows, summary=rows.summary)
        wrapped: PlannedRead = self.wrapped(rows)
        return wrapped


def _has_text(stream: CursorStream) -> bool:
    return any(isinstance(value, str) for value in stream.cursors.values())


def _is_number(kind: str) -> bool:
    """Whether a type, as Spark's DDL or a Delta log names it, is of numbers."""
    return kind.lower().partition("(")[0] in _NUMBERS


def _rows_of(mark: Mark | None) -> Mark | None:
    """The mark of the rows in a driven mark, which measures what that does."""
    if not isinstance(mark, DrivenMark):
        return mark
    return None if mark.rows is None else replace(mark.rows, measures=mark.measures or mark.rows.measures)
