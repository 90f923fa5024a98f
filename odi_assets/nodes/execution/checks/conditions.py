"""What is true of a row that fails a check by itself, as a column of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odi_assets.config.compared_values import TIMES, Exact, exact, family, floor, is_reversed, sql_type
from odi_assets.config.models.checks import Check
from odi_assets.errors import ConfigError
from odi_assets.spark.lazy import F, T
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def kind_of(rows: DataFrame, columns: Sequence[str]) -> str:
    """The type of the first of some columns, as Delta's log names it; empty if there is none."""
    for field in rows.schema:
        if columns and field.name.casefold() == columns[0].casefold():
            kind = field.dataType
            return kind.simpleString() if isinstance(kind, T.DecimalType) else kind.typeName()
    return ""


def require_comparable(check: Check, rows: DataFrame, label: str) -> None:
    """Raises ConfigError if a bound or a value of ``check`` cannot be compared with its column of ``rows``.

    Args:
        label: whose the check is, for messages.
    """
    column, kind = (*check.columns, "")[0], kind_of(rows, check.columns)
    config, bounds = check.config, {}
    fix = "correct the check in the project file, or give the column another type; nothing was committed"
    for key, value in config.compared:
        try:
            bounds[key] = exact(value, kind, ordered=config.range is not None)
        except ValueError as error:
            raise ConfigError(
                f"{label}: its check `{check.name}` cannot compare `{value}` with `{column}`, which is "
                f"{sql_type(kind)}: {error}",
                fix=fix,
                node=label,
            ) from error
    if config.freshness is not None and kind not in TIMES:
        text = f"{label}: its check `{check.name}` looks at `{column}`, which is {sql_type(kind)}: no date and no time"
        raise ConfigError(text, fix=fix, node=label)
    if config.range is not None and is_reversed(bounds.get("min"), bounds.get("max")):
        ends = f"`max` is {config.range.max}, which is less than `min`, {config.range.min}"
        raise ConfigError(f"{label}: no value passes its check `{check.name}`: {ends}", fix=fix, node=label)


def require_same_family(check: Check, kind: str, known: str, label: str) -> None:
    """Raises ConfigError if a column is text and its foreign key a number, or the like: ``01`` is no key ``1``.

    Args:
        kind, known: the types of the column and of the key.
    """
    if family(kind) == family(known):
        return
    reference = check.config.references
    assert reference is not None
    key = reference.key or reference.column
    raise ConfigError(
        f"{label}: its check `{check.name}` looks `{reference.column}`, which is {sql_type(kind)}, up in `{key}` of "
        f"{reference.node}, which is {sql_type(known)}: these are not compared",
        fix="give both one type, in a `transform` or a `schema`; nothing was committed",
        node=label,
    )


def condition_of(check: Check, rows: DataFrame) -> Column | None:
    """What is true of a row that fails by itself, and of another one false or NULL: Spark pushes it down to the files
    as it stands. None for a check that looks at more than the row."""
    config = check.config
    if config.not_null is not None:
        return F.col(quoted(check.columns[0])).isNull()
    if config.accepted_values is not None:
        return ~_is_among(check, rows)
    if config.range is not None:
        ends, kind = config.range, kind_of(rows, check.columns)
        failing = F.lit(False)
        if ends.min is not None:
            failing = failing | _is_below(check, exact(ends.min, kind, ordered=True), rows)
        if ends.max is not None:
            failing = failing | _is_above(check, exact(ends.max, kind, ordered=True), rows)
        return failing
    if config.expression is not None:
        # A comment may end the condition: the bracket is on a line of its own.
        return ~F.expr(f"({config.expression}\n)")
    return None


def _is_among(check: Check, rows: DataFrame) -> Column:
    column, kind = F.col(quoted(check.columns[0])), kind_of(rows, check.columns)
    floors = [floor(exact(value, kind, ordered=False), kind) for _, value in check.config.compared]
    # No value of the column equals one that its type does not hold.
    values = [
        _literal(value_floor.text, check, rows)
        for value_floor in floors
        if value_floor.same and value_floor.text is not None
    ]
    return column.isin(*values) if values else column.isNull()


def _is_below(check: Check, bound: Exact, rows: DataFrame) -> Column:
    column, bound_floor = F.col(quoted(check.columns[0])), floor(bound, kind_of(rows, check.columns))
    if bound_floor.text is None:
        return F.lit(False)
    value = _literal(bound_floor.text, check, rows)
    return column < value if bound_floor.same else column <= value


def _is_above(check: Check, bound: Exact, rows: DataFrame) -> Column:
    column, bound_floor = F.col(quoted(check.columns[0])), floor(bound, kind_of(rows, check.columns))
    return column.isNotNull() if bound_floor.text is None else column > _literal(bound_floor.text, check, rows)


def _literal(text: str, check: Check, rows: DataFrame) -> Column:
    """A value of the type of the check's column."""
    name = check.columns[0].casefold()
    return F.lit(text).cast(next(field.dataType for field in rows.schema if field.name.casefold() == name))
