"""The statements that a database is sent: the same ones by Spark and by a plain driver; and the pieces of a table that
are read side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

from odi_assets.errors import IncrementError, NoCursorColumnError, SourceError
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.types import TypeName, kind_of
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.sql.dialects import DATE, INSTANT, INT, LOCAL_TIME, Dialect, Unordered, constant, parsed
from odi_assets.sources.sql.errors import no_order, of_spark

BELOW_ALL = "-infinity"
"""What stands for the greatest cursor where a row is below all values."""

KEY = "odi_piece_key"
"""The column that pieces are cut by, as the query of all pieces calls it."""
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)

Ask = Callable[[str], Sequence[tuple[Any, ...]]]
"""Has the rows of a small query."""


@dataclass(frozen=True)
class Relation:
    """What is read of a database.

    Attributes:
        sql: a table's name, or a query in brackets: what stands after FROM.
        label: it in words, for messages.
        table: the table's name in the project file; None for a query.
        columns: SQL that is asked for in the place of a column, by the column's name.
        ordered_by: the columns that its rows are ordered or cut by; nothing else is asked for in their places.
    """

    dialect: Dialect
    sql: str
    label: str
    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    ordered_by: frozenset[str] = frozenset()

    def read_error(self, text: str) -> SourceError | None:
        """What an error of Spark means, if it is about a database."""
        return of_spark(text, self.dialect, self.label, self.ordered_by)

    def cursor(self, window: Window, types: Mapping[str, TypeName | None]) -> tuple[str, str]:
        """The cursor of a window in SQL, and its kind.

        Raises:
            IncrementError: there is no such column, or the database does not order its values as we do.
        """
        kinds = [self._kind(name, types) for name in window.columns]
        columns = [self.dialect.cursor(self.dialect.quoted(name), kinds[0]) for name in window.columns]
        return (columns[0] if len(columns) == 1 else f"COALESCE({', '.join(columns)})"), kinds[0]

    def _kind(self, column: str, types: Mapping[str, TypeName | None]) -> str:
        if column not in types:
            raise NoCursorColumnError(
                f"{self.label} has no column `{column}`; it has {', '.join(types)}",
                fix="correct the name of the column in `read`; if it was renamed in the database, odi state adopt "
                "NODE goes on with the mark then",
                column=column,
            )
        name = types[column]
        if isinstance(name, Unordered):
            raise no_order(column, name, self.dialect, self.label)
        kind = kind_of(name) if isinstance(name, str) else None
        if kind is None or kind not in self.dialect.kinds:
            shown = name if isinstance(name, str) else "of another type"
            raise IncrementError(
                f"`{column}` of {self.label} is {shown}, and no cursor: nobody vouches that the database orders it as "
                "state does",
                fix="choose a column of numbers, dates or times",
                column=column,
            )
        return kind

    def condition(self, window: Window, types: Mapping[str, TypeName | None]) -> str:
        """Whether a row is in a window."""
        cursor, kind = self.cursor(window, types)
        bounds = []
        if window.lower is not None:
            low = self.dialect.literal(constant(window.lower, kind), kind)
            bounds.append(f"{cursor} {'>=' if window.lower_inclusive else '>'} {low}")
        if window.upper is not None:
            high = self.dialect.literal(constant(window.upper, kind, is_upper=True), kind)
            bounds.append(f"{cursor} {'<=' if window.upper_inclusive else '<'} {high}")
        inside = " AND ".join(bounds) or f"{cursor} IS NOT NULL"
        return f"(({inside}) OR {cursor} IS NULL)" if window.nulls else f"({inside})"

    def bound(self, window: Window, types: Mapping[str, TypeName | None]) -> str:
        """One query for the greatest cursor and the number of rows without one; of a window with an upper bound, for
        the greatest in it, and also for the number of rows above it."""
        cursor, kind = self.cursor(window, types)
        high = None if window.upper is None else self.dialect.literal(constant(window.upper, kind), kind)
        if not self.dialect.selects_without_from:
            within = cursor if high is None else f"CASE WHEN {cursor} <= {high} THEN {cursor} END"
            asked = [self.dialect.greatest(within, kind), f"COUNT(*) - COUNT({cursor})"]
            asked += [] if high is None else [f"COUNT(CASE WHEN {cursor} > {high} THEN 1 END)"]
            names = ("odi_upper", "odi_without", "odi_ahead")
            selected = ", ".join(f"{sql} AS {name}" for sql, name in zip(asked, names, strict=False))
            return f"SELECT {selected} FROM {self.sql} odi"
        # Each by itself, so that an index of the cursor serves all.
        within = "" if high is None else f" WHERE {cursor} <= {high}"
        greatest = self.greatest(cursor, kind, within)
        without = f"SELECT COUNT(*) FROM {self.sql} odi WHERE {cursor} IS NULL"
        ahead = "" if high is None else f", (SELECT COUNT(*) FROM {self.sql} odi WHERE {cursor} > {high}) AS odi_ahead"
        return f"SELECT ({greatest}) AS odi_upper, ({without}) AS odi_without{ahead}"

    def greatest(self, cursor: str, kind: str, within: str) -> str:
        """A query for the greatest cursor of the rows ``within`` a condition; for a value that no HWM holds and no
        increment would read, if a row has one."""
        greatest = f"SELECT {self.dialect.greatest(cursor, kind)} FROM {self.sql} odi{within}"
        unread = self.dialect.below_all(cursor, kind)
        if unread is None:
            return greatest
        exists = f"EXISTS (SELECT 1 FROM {self.sql} odi WHERE {unread})"
        return f"SELECT CASE WHEN {exists} THEN '{BELOW_ALL}' ELSE ({greatest}) END"

    def now(self, ask: Ask) -> datetime | None:
        """What the clock of the database says; None if it is not asked."""
        if self.dialect.clock is None:
            return None
        ((text,),) = ask(f"SELECT {self.dialect.clock} AS odi_now")
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    def found(self, row: tuple[Any, ...], window: Window, types: Mapping[str, TypeName | None]) -> Bound:
        """The bound that the row of :meth:`bound` says.

        Raises:
            IncrementError: the greatest cursor is none that an HWM can hold.
        """
        _, kind = self.cursor(window, types)
        upper, without, *ahead = row
        try:
            return Bound(parsed(None if upper is None else str(upper), kind), int(without), *map(int, ahead))
        except (ValueError, ArithmeticError) as error:
            which = "least" if upper == BELOW_ALL else "greatest"
            raise IncrementError(
                f"the {which} `{window.column}` of {self.label} is {upper}, and no HWM holds a value like that",
                fix="correct it at the source, or choose another cursor: an HWM that stands for `never` would end the "
                "increments, and no increment would read what is below all others",
                column=window.column,
            ) from error


# Pieces of a table that are read side by side: ranges of a column, each row in exactly one of them.


def predicates(relation: Relation, key: str, kind: str, where: str, count: int, ask: Ask) -> list[str]:
    """A condition on :data:`KEY` per piece; none if there is no more than one piece to make.

    Numbers, dates and times are cut into ranges of equal length between the least and the greatest; text, bytes and
    fractions by keys that have equally many rows between them.

    Args:
        key: the column in SQL, of ``kind``.
        where: the condition of the rows that will be read.
    """
    if kind in (INT, DATE, INSTANT, LOCAL_TIME):
        least, greatest = (relation.dialect.greatest(key, kind, function) for function in ("MIN", "MAX"))
        row = ask(f"SELECT {least} AS a, {greatest} AS b FROM {relation.sql} odi WHERE {where}")[0]
        low, high = (parsed(None if text is None else str(text), kind) for text in row)
        cuts = [] if low is None else even_cuts(low, high, count)
    else:
        numbered = f"SELECT {key} AS odi_key, NTILE({count}) OVER (ORDER BY {key}) AS odi_piece FROM {relation.sql} odi"
        greatest = relation.dialect.greatest("odi_key", kind)
        rows = ask(
            f"SELECT {greatest} AS a FROM ({numbered} WHERE ({where}) AND {key} IS NOT NULL) odi GROUP BY odi_piece"
        )
        # Above the greatest key of the last piece there is nothing to cut off.
        cuts = sorted({parsed(str(row[0]), kind) for row in rows})[:-1]
    return _between(cuts, kind, relation.dialect)


def even_cuts(low: Any, high: Any, count: int) -> list[Any]:
    """At most ``count - 1`` values above ``low`` that cut the range up to ``high`` evenly."""
    first, last = _ordinal(low), _ordinal(high)
    cuts = (first + (last + 1 - first) * number // count for number in range(1, count))
    return [_value(cut, low) for cut in sorted({cut for cut in cuts if cut > first})]


def _between(cuts: Sequence[Any], kind: str, dialect: Dialect) -> list[str]:
    if not cuts:
        return []
    name, at = dialect.quoted(KEY), [dialect.literal(cut, kind) for cut in cuts]
    middle = [f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(at)]
    return [f"{name} < {at[0]} OR {name} IS NULL", *middle, f"{name} >= {at[-1]}"]


def _ordinal(value: Any) -> int:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return value.toordinal() if isinstance(value, date) else int(value)


def _value(ordinal: int, like: Any) -> Any:
    if isinstance(like, datetime):
        moment = _EPOCH + ordinal * _MICROSECOND
        return moment if like.tzinfo is None else moment.replace(tzinfo=UTC)
    return date.fromordinal(ordinal) if isinstance(like, date) else ordinal
