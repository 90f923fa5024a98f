"""Pieces of a table that are read side by side: ranges of a column, each row in exactly one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

from odi_assets.sources.sql.dialects import DATE, INSTANT, INT, LOCAL_TIME, Dialect, parsed
from odi_assets.sources.sql.statements import Relation

KEY = "odi_piece_key"
"""The column that pieces are cut by, as the query of all pieces calls it."""
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)

Rows = Callable[[str], Sequence[tuple[Any, ...]]]
"""The rows of a query, as text."""


def predicates(relation: Relation, key: str, kind: str, where: str, count: int, ask: Rows) -> list[str]:
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
        found = ask(
            f"SELECT {greatest} AS a FROM ({numbered} WHERE ({where}) AND {key} IS NOT NULL) odi GROUP BY odi_piece"
        )
        # Above the greatest key of the last piece there is nothing to cut off.
        cuts = sorted({parsed(str(row[0]), kind) for row in found})[:-1]
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
