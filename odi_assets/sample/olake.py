"""From the changes that OLake writes as Parquet to the rows of the table: a transform for a project of your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odi_assets.errors import ConfigError
from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNAVAILABLE = "__olake_unavailable_value__"
"""What PostgreSQL's log does not repeat of an updated row: a large value that did not change."""
DELETED = "_deleted"
"""The column that marks keys to delete: name it in `write.delete_when`."""

_LSN, _TIMESTAMP, _OPERATION, _ID = "_cdc_lsn", "_olake_timestamp", "_op_type", "_olake_id"
_BINLOG = ("_cdc_binlog_file_name", "_cdc_binlog_file_pos")


def current_rows(
    changes: DataFrame, history: DataFrame, keys: Sequence[str], types: Mapping[str, str] | None = None
) -> DataFrame:
    """The present row of each key that ``changes`` names, from all changes of these keys.

    A change that OLake wrote twice counts once, one that comes late does not go before a later one, and a deleted row
    stays deleted. Changes have the order of the database's log: of ``_cdc_lsn`` as the 64-bit number that it is, or of
    MySQL's file and offset. Rows of the first snapshot come before all changes. ``_cdc_timestamp`` has no part in it:
    all changes of a transaction have the same.

    Args:
        changes: the new changes, as OLake wrote them.
        history: all changes, these among them: a large value that did not change is in an older one alone.
        keys: the columns of the primary key.
        types: by column, the type that it has in the database: OLake writes ``numeric`` as double.

    Returns:
        One row for each key, with ``_deleted`` where the last change was a deletion: all but the keys is NULL there.

    Raises:
        ConfigError: there are no keys, or ``_olake_id`` is one of them.
    """
    if not keys or _ID in keys:
        raise ConfigError(
            f"{'there are no keys' if not keys else f'`{_ID}` is no key'}: in a table without a primary key, OLake "
            "gives different rows one id, so it is not known which row a change belongs to",
            fix="name the columns of the primary key in `params.keys`; without one, append the changes as they are",
        )
    affected = changes.select(*keys).distinct()
    of_keys = history.join(affected, [history[key].eqNullSafe(affected[key]) for key in keys], "left_semi")
    ordered = of_keys.withColumn("_order", _order(of_keys))
    texts = [
        name for name, kind in ordered.dtypes if kind == "string" and name not in keys and not name.startswith("_")
    ]
    is_row = F.col(_OPERATION) != "d"
    known = [
        F.max_by(name, F.when((F.col(name) != UNAVAILABLE) & is_row, F.col("_order"))).alias(f"_known_{index}")
        for index, name in enumerate(texts)
    ]
    last = ordered.groupBy(*keys).agg(F.max_by(F.struct("*"), "_order").alias("_last"), *known)
    columns = []
    for name in history.columns:
        value = F.col("_last").getField(name)
        if name in texts:
            text_index = texts.index(name)
            value = F.when(value == UNAVAILABLE, F.col(f"_known_{text_index}")).otherwise(value)
        columns.append((value.cast(types[name]) if types and name in types else value).alias(name))
    deleted = (F.col("_last").getField(_OPERATION) == "d").alias(DELETED)
    return last.select(*columns, deleted)


def _order(changes: DataFrame) -> Column:
    """What orders the changes of a key: the place in the log, then when OLake read the row."""
    position = F.lit(None).cast("decimal(20,0)")
    if _LSN in changes.columns:
        high, low = (F.conv(F.split_part(_LSN, F.lit("/"), F.lit(part)), 16, 10) for part in (1, 2))
        position = high.cast("decimal(20,0)") * F.lit(2**32).cast("decimal(10,0)") + low.cast("decimal(20,0)")
    elif _BINLOG[0] in changes.columns:
        number = F.substring_index(_BINLOG[0], ".", -1).cast("decimal(20,0)")
        position = number * F.lit(2**32).cast("decimal(10,0)") + F.col(_BINLOG[1]).cast("decimal(20,0)")
    first = F.when(F.col(_OPERATION) == "r", F.lit(-1)).otherwise(F.coalesce(position, F.lit(0)))
    moment = F.col(_TIMESTAMP) if _TIMESTAMP in changes.columns else F.lit(None)
    return F.struct(first.cast("decimal(38,0)").alias("place"), moment.alias("moment"))
