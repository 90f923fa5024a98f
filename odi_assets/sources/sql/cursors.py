"""Several cursor columns at once, each with a maximum of its own: the first that is not NULL says whether a row is new.

The meaning is OLake's: of two cursors, a row is new if ``c1 > a OR (c1 IS NULL AND c2 > b)``. What a snapshot reads is
exactly the rest, so that no row is in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from odi_assets.config.models import CursorsIncrement, StatefulIncrement
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.ahead import is_beyond, is_guarded, limit_of, mark_ahead
from odi_assets.sources.cursor.bounds import is_ahead
from odi_assets.sources.cursor.digits import digits_of
from odi_assets.sources.cursor.types import TypeName, fitting
from odi_assets.sources.cursor.window import Window, less_lag_of, shown
from odi_assets.sources.sql.dialects import constant
from odi_assets.sources.sql.marks import SnapshotMark
from odi_assets.sources.sql.statements import Ask, Relation

Types = Mapping[str, TypeName | None]
Values = Mapping[str, Any]
"""By cursor column, its greatest value; None where there is none."""


@dataclass(frozen=True)
class Maxima:
    """What one look at the cursors found.

    Attributes:
        values: by column, the greatest value.
        without_cursor: rows in which all cursors are NULL; None if nobody asked.
        limits: by column of dates or times, the greatest value that may become a mark.
        ahead: rows beyond the limits: with ``on_ahead: stop`` in any cursor, else in the one that counts.
        late: rows below a mark whose other cursors say that they came or changed since.
    """

    values: Values
    without_cursor: int | None = None
    limits: Values = field(default_factory=dict)
    ahead: int = 0
    late: int = 0


@dataclass(frozen=True)
class Cursors:
    """The cursor columns of a relation."""

    relation: Relation
    increment: CursorsIncrement

    @property
    def columns(self) -> tuple[str, ...]:
        return self.increment.columns

    def digits(self, types: Types) -> Mapping[str, Sequence[int | None]]:
        """By column, how many digits it keeps (see ``cursor.digits.digits_of``)."""
        return {name: digits_of(types[name]) for name in self.columns}

    def limits(self, types: Types, ask: Ask) -> Values:
        """By column of dates or times, the greatest value that may become a mark, by the clock of the database."""
        kinds = {name: types.get(name) for name in self.columns if is_guarded(self.increment, types.get(name))}
        now = (self.relation.now(ask) if kinds else None) or datetime.now(UTC)
        limits = {name: limit_of(self.increment, kind, now) for name, kind in kinds.items()}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def ahead(self, limits: Values, types: Types) -> str:
        """Whether a row is beyond ``limits``: in any cursor if that stops the run, else in the cursor that counts."""
        tests = [
            (sql, f"{sql} > {self._literal(limits[name], kind)}" if name in limits else "1 = 0")
            for name, (sql, kind) in zip(self.columns, self._in_sql(types), strict=True)
        ]
        if self.increment.on_ahead == "stop":
            return f"({' OR '.join(test for _, test in tests)})"
        return _first_decides(tests, None)

    def late(self, after: Values, limits: Values, types: Types) -> str | None:
        """Whether a row is below the maxima ``after`` though another cursor of it is above; None if none can be."""
        others = []
        for name, (sql, kind) in list(zip(self.columns, self._in_sql(types), strict=True))[1:]:
            if after.get(name) is not None:
                within = f" AND {sql} <= {self._literal(limits[name], kind)}" if name in limits else ""
                others.append(f"({sql} > {self._literal(after[name], kind)}{within})")
        return f"NOT {self.above(after, types)} AND ({' OR '.join(others)})" if others else None

    def _literal(self, value: Any, kind: str) -> str:
        return self.relation.dialect.literal(constant(value, kind), kind)

    def question(self, types: Types, limits: Values, late: str | None = None) -> str:
        """One query for the maximum of each column within ``limits``, and the numbers of rows beyond them, of rows that
        are ``late``, and of rows without a cursor.

        Raises:
            IncrementError: there is no such column, or the database does not order its values as state does.
        """
        cursors, source = self._in_sql(types), self.relation.sql
        # Each by itself, so that its index serves it.
        asked = [
            self.relation.greatest(
                sql, kind, f" WHERE {sql} <= {self._literal(limits[name], kind)}" if name in limits else ""
            )
            for name, (sql, kind) in zip(self.columns, cursors, strict=True)
        ]
        if limits:
            asked.append(f"SELECT COUNT(*) FROM {source} odi WHERE {self.ahead(limits, types)}")
        if late is not None:
            asked.append(f"SELECT COUNT(*) FROM {source} odi WHERE {late}")
        if self.increment.on_null != "snapshot":
            missing = " AND ".join(f"{sql} IS NULL" for sql, _ in cursors)
            asked.append(f"SELECT COUNT(*) FROM {source} odi WHERE {missing}")
        return "SELECT " + ", ".join(f"({query}) AS odi_{number}" for number, query in enumerate(asked))

    def found(self, row: Sequence[Any], types: Types, limits: Values, late: str | None = None) -> Maxima:
        """What the row of :meth:`question` says.

        Raises:
            IncrementError: a maximum is none that an HWM can hold; or there are rows without a cursor, and ``on_null``
                is ``raise``.
        """
        values = {
            name: self.relation.found((text, 0), Window(name), types).upper
            for name, text in zip(self.columns, row, strict=False)
        }
        others = [int(count) for count in row[len(self.columns) :]]
        ahead = others.pop(0) if limits else 0
        came_late = others.pop(0) if late is not None else 0
        without = others[0] if self.increment.on_null != "snapshot" else None
        if without and self.increment.on_null == "raise":
            names = " and ".join(f"`{name}`" for name in self.columns)
            has_floats = any(types[name] in ("float", "double") for name in self.columns)
            what = "NULL, NaN or infinity" if has_floats else "NULL"
            raise IncrementError(
                f"{without:,} rows of {self.relation.label} have {what} in {names}; no increment would ever read them",
                fix="set `incremental.on_null` to `snapshot` (those that are there now are read in the snapshot, later "
                "ones never) or `exclude` (they are dropped and counted), or add a column that is filled there to "
                "`incremental.columns`",
                column=self.columns[0],
                count=without,
            )
        return Maxima(values, without, limits, ahead, came_late)

    def require_marks_within(self, values: Values, limits: Values) -> None:
        """Raises IncrementError if the mark of a column is ahead of the clock."""
        for name, value in values.items():
            if is_beyond(value, limits.get(name)):
                raise mark_ahead(self.increment, value, self.relation.label, name)

    def above(self, after: Values, types: Types) -> str:
        """Whether a row is new: above the maxima ``after``, less the lag."""
        tests = []
        for name, (sql, kind) in zip(self.columns, self._in_sql(types), strict=True):
            low = self.less_lag(name, after.get(name))
            value = None if low is None else self._literal(low, kind)
            tests.append((sql, f"{sql} IS NOT NULL" if value is None else f"{sql} > {value}"))
        return _first_decides(tests, None)

    def upto(self, upper: Values, types: Types) -> str:
        """Whether a row is not above the maxima ``upper``. Rows without a cursor are not, if they are read at all."""
        tests = []
        for name, (sql, kind) in zip(self.columns, self._in_sql(types), strict=True):
            high = upper.get(name)
            value = None if high is None else self._literal(high, kind)
            tests.append((sql, "1 = 0" if value is None else f"{sql} <= {value}"))
        return _first_decides(tests, "1 = 1" if self.increment.on_null == "snapshot" else None)

    def fitting(self, mark: SnapshotMark, types: Types) -> Values:
        """The values of a mark as values of the columns' types.

        Raises:
            IncrementError: they are of other columns or types, or there is no such column.
        """
        self._in_sql(types)
        if set(mark.cursors) != set(self.columns):
            raise IncrementError(
                f"the HWM of {self.relation.label} has values of {', '.join(mark.cursors) or 'no column'}, and its "
                f"cursors are {', '.join(self.columns)}",
                fix="set it right with odi state set, or read everything once with odi run --full-refresh",
                column=self.columns[0],
            )
        values, misfit = {}, None
        for name in self.columns:
            single = StatefulIncrement(mode="stateful", column=name)
            try:
                values[name] = fitting(
                    mark.cursors.get(name),
                    types[name] or "",
                    single,
                    self.relation.label,
                    typed=mark.typed,
                    digits=mark.digits.get(name),
                )
            except IncrementError as error:
                if error.fields.get("hwm") is None:
                    raise
                misfit, values[name] = misfit or error, error.fields["hwm"]
        if misfit is not None:
            # The whole mark, as somebody has to set it.
            misfit.fields["hwm"] = replace(mark, cursors=values).value
            raise misfit
        return values

    def moved(self, before: Values, maxima: Maxima) -> Values:
        """The maxima after rows up to ``maxima`` were read: none goes back."""
        return {
            name: maxima.values[name] if is_ahead(maxima.values[name], before.get(name)) else before.get(name)
            for name in self.columns
        }

    def text(self, lower: Values, upper: Values) -> str:
        """The rows between two maxima, in words."""
        parts = []
        for name in self.columns:
            low, high = lower.get(name), upper.get(name)
            if high is not None and high != low:
                parts.append(f"{'' if low is None else f'{shown(low)} < '}{name} <= {shown(high)}")
        return ", else ".join(parts)

    def less_lag(self, name: str, value: Any) -> Any:
        """The maximum of a column, less the lag.

        Raises:
            IncrementError: the lag does not fit the column's type.
        """
        return less_lag_of(self.increment.watermark_lag, value, name, self.relation.label)

    def _in_sql(self, types: Types) -> list[tuple[str, str]]:
        return [self.relation.cursor(Window(name), types) for name in self.columns]


def _first_decides(tests: Sequence[tuple[str, str]], otherwise: str | None) -> str:
    """The test of the first cursor that is not NULL; ``otherwise`` if all of them are."""
    condition = otherwise
    for cursor, test in reversed(tests):
        condition = test if condition is None else f"({test} OR ({cursor} IS NULL AND {condition}))"
    return condition or "1 = 1"
