"""Column expressions that several rooms build: quoted names, equality of keys, a row as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXACT_TIMES = {
    # Spark's own formats cut times to milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` that keep whole times."""


def quoted(name: str) -> str:
    """``name`` as a part of a column expression, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def same_keys(keys: Iterable[str]) -> Column:
    """Rows of the aliases ``t`` and ``b`` have equal keys. NULL equals NULL, so a NULL key is not inserted twice."""
    terms = (F.col(f"t.{name}").eqNullSafe(F.col(f"b.{name}")) for name in map(quoted, keys))
    return reduce(lambda left, right: left & right, terms)


def row_text(names: Iterable[str]) -> Column:
    """The named columns as JSON text that differs for different rows, whatever types they have.

    Columns are in the order of their names, and NULLs are left out. So the text of a row stays the same when columns
    come in another order, and when the row gains a column that is NULL.
    """
    return text_of({name: F.col(quoted(name)) for name in names})


def text_of(values: Mapping[str, Column]) -> Column:
    """Values by name as JSON text, as :func:`row_text` has them."""
    return F.to_json(F.struct(*[values[name].alias(name) for name in sorted(values)]), EXACT_TIMES)


def rows_digest(rows: DataFrame) -> tuple[Any, ...]:
    """A digest of these rows that does not depend on their order: computed by one pass over them."""
    hashed = F.xxhash64(row_text(rows.columns)).cast("decimal(38,0)")
    return tuple(rows.agg(F.count(F.lit(1)), F.sum(hashed)).collect()[0])
