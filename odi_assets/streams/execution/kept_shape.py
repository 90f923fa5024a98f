"""The shape of a table of kept rows, whatever its inputs look like, and whatever they looked like before.

``row`` has a struct for each input, under the input's name: two inputs may have a column of one name and two types. A
column that an input gains joins the struct. If a column gets another type, the input goes on under the next name:
``orders_2``. Tables that were begun before ``row`` was a struct keep it as text, whole from now on, and have the struct
beside it as ``row_struct``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, count
from typing import TYPE_CHECKING

from odi_assets.delta.schema_evolution import plan_schema
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted
from odi_assets.tables.schema import is_storable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

ROW, BESIDE_TEXT = "row", "row_struct"
_COLUMNS = {"input": "string", "event_time": "timestamp", "batch": "long", "watermark": "timestamp", "query": "string"}
EMPTY_TABLE = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()],
    }
)
"""The schema of a table before the first row: the rows bring ``row``."""

_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class GivenUp:
    """Rows of one input that were given up: ``event_time``, ``batch``, ``watermark`` and the whole ``row``."""

    input: str
    rows: DataFrame


def moment(ms: int) -> Column:
    """Milliseconds since 1970 as a column of a TIMESTAMP."""
    return F.timestamp_millis(F.lit(ms).cast("bigint"))


def shaped(table: TableHandle, rows: Sequence[GivenUp], query: str) -> DataFrame | None:
    """The rows as the table takes them; None if there are no frames of rows."""
    if not rows:
        return None

    is_text = table.exists and table.columns.get(ROW) == "string"
    column, frames = BESIDE_TEXT if is_text else ROW, []
    names: dict[str, object] = {}
    for given_up in rows:
        whole = given_up.rows.withColumn("row", F.struct(*_storable(given_up.rows.schema["row"].dataType)))
        kind = whole.schema["row"].dataType.jsonValue()
        name = next(name for name in _names(given_up.input) if _fits(table, column, name, kind, names))
        names[name] = kind
        text = [F.to_json("row", _EXACT).alias(ROW)] if is_text else []
        row = F.struct(F.col("row").alias(name)).alias(column)
        frames.append(
            whole.select(F.lit(given_up.input).alias("input"), "event_time", "batch", "watermark", *text, row)
        )
    union = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    return union.withColumn("query", F.lit(query))


def _storable(kind: DataType) -> Iterator[Column]:
    """The columns of a row; those that Delta cannot store, as text."""
    for item in kind.fields:  # type: ignore[attr-defined]
        value = F.col(f"row.{quoted(item.name)}")
        kept = value if is_storable(item.dataType.jsonValue()) else value.cast("string")
        yield kept.alias(item.name)


def _names(name: str) -> Iterator[str]:
    """The names that the struct of an input may have, in order."""
    return chain([name], (f"{name}_{number}" for number in count(2)))


def _fits(table: TableHandle, column: str, name: str, row: object, taken: Mapping[str, object]) -> bool:
    """Whether the struct ``name`` of the table, and of frames that have ``taken`` it, has the types of a row."""

    def struct(field: str, kind: object) -> dict[str, object]:
        return {"type": "struct", "fields": [{"name": field, "type": kind, "nullable": True, "metadata": {}}]}

    if taken.get(name, row) != row:
        return False
    if not table.exists:
        return True
    try:
        plan_schema(table, json.dumps(struct(column, struct(name, row))), "evolve")
    except TableError:
        return False
    return True
