"""Values that the column's type in Spark does not hold: a run would stop at them, and names them one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from odi_assets.scaffold.catalog import CatalogTable, TableColumn
from odi_assets.sources.sql.dialects import Dialect, Mysql
from odi_assets.sources.sql.position import Session

_DIGITS, _MADE_UP = 38, 18
"""The most digits of a decimal in Spark, and how many of them stand after the point where a database does not say."""
_LONGEST = 60
_NUMBER = re.compile(r"(?:numeric|decimal)(?:\((\d+)(?:,(-?\d+))?\))?( unsigned)?( zerofill)?")
_TIMES = re.compile(r"date|datetime(\(\d\))?|timestamp(\(\d\))?( with(out)? time zone)?")


@dataclass(frozen=True)
class OddValue:
    """A column with values that its type in Spark does not hold.

    Attributes:
        example: one of them, as the database writes it.
    """

    column: str
    example: str


def odd_values(session: Session, dialect: Dialect, table: CatalogTable, *, arrays: bool) -> list[OddValue]:
    """The columns of a table with such values, each with one of them. It reads the whole table, once.

    Args:
        arrays: whether arrays of the database become arrays of Spark.
    """
    types = session.columns(table.in_sql(dialect)) if arrays else {}
    conditions = {
        column.name: condition
        for column in table.columns
        if (condition := _condition(column, dialect, types)) is not None
    }
    if not conditions:
        return []
    asked = [
        f"MAX(CASE WHEN {condition} THEN {dialect.written(dialect.quoted(name))} END)"
        for name, condition in conditions.items()
    ]
    (row,) = session.rows(f"SELECT {', '.join(asked)} FROM {table.in_sql(dialect)}")
    examples = zip(conditions, row, strict=True)
    return [OddValue(name, str(example)[:_LONGEST]) for name, example in examples if example is not None]


def _condition(column: TableColumn, dialect: Dialect, types: Mapping[str, object]) -> str | None:
    """The condition of values of a column that Spark's type does not hold; None if it holds all."""
    name, declared = dialect.quoted(column.name), column.declared
    if declared.endswith("[]"):
        element = declared.removesuffix("[]")
        if column.name not in types or _TIMES.fullmatch(element) or element in ("bit", "money"):
            # These come over as texts.
            return None
        of = _spark_number(element)
        return dialect.no_plain_array(name, max(column.dimensions, 1), of or element)
    if _TIMES.fullmatch(declared):
        if isinstance(dialect, Mysql):
            return f"(YEAR({name}) = 0 OR MONTH({name}) = 0 OR DAY({name}) = 0)"
        return f"(NOT isfinite({name}) OR {name} < '0001-01-01')"
    number = _NUMBER.fullmatch(declared)
    if number is None:
        return None
    of_postgres = not isinstance(dialect, Mysql)
    precision, scale = _digits(number)
    if precision <= _DIGITS and number[1]:
        return f"{name} = 'NaN'" if of_postgres else None
    kept = min(max(scale, 0), _MADE_UP)
    beyond = f"abs({name}) >= 1e{_DIGITS - kept} OR {name} <> round({name}, {kept})"
    return f"({name} = 'NaN' OR {beyond})" if of_postgres else f"({beyond})"


def _digits(number: re.Match[str]) -> tuple[int, int]:
    if number[1] is None:
        return _DIGITS, _MADE_UP
    scale = int(number[2] or 0)
    return int(number[1]) + max(-scale, 0), scale


def _spark_number(element: str) -> str | None:
    number = _NUMBER.fullmatch(element)
    if number is None:
        return None
    precision, scale = _digits(number)
    return f"decimal({min(precision, _DIGITS)},{max(scale, 0)})"
