"""Rows as text that tells them apart, whatever types they have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odi_assets.tables.reader import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_EXACT_TIMES = {
    # Spark's JSON has milliseconds by itself.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def row_text(names: Iterable[str]) -> Column:
    """The named columns as JSON: values by name, in the order of the names, NULL where a name is missing.

    So a row stays what it is when it gains a column that is NULL, and when columns come in another order.
    """
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*[F.col(quoted(name)) for name in sorted(names)]), _EXACT_TIMES)
