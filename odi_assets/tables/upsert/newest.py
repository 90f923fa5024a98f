"""Which rows of an upsert's batch count: one for each key, the newest, and only if it is newer than what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window

from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, row_text, same_keys
from odi_assets.tables.reader import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_RANK, _TEXT, _COUNT = "__odi_rank", "__odi_text", "__odi_count"
STORED, PRESENT = "__odi_stored", "__odi_present"
"""Of a key: the greatest value that is stored, and whether a row is."""


class RepeatedKeysError(TableError):
    """Several rows of one key are left, and which of them counts is not for us to guess.

    Fields: example, by column what such rows have in common.
    """


def one_per_key(
    batch: DataFrame, keys: Sequence[str], column: str | None, uri: str, delivery: str | None = None
) -> DataFrame:
    """The rows of ``batch``, one for each key, or one for each key and ``delivery``: by ``column`` the newest, if it is
    given.

    Raises:
        RepeatedKeysError: several rows are left of one.
    """
    known_by = [*keys, *([delivery] if delivery else [])]
    if column is not None:
        batch = _newest(batch, known_by, column)
    row = _repeated(batch, known_by)
    if row is None:
        return batch
    example = ", ".join(f"{key}={row[key]!r}" for key in keys)
    within = "rows of one file" if delivery else "rows of one increment"
    if column is None:
        raise RepeatedKeysError(
            f"{row[_COUNT]} {within} for {uri} have the same keys ({example})",
            fix=f"leave one row of a key in the transform, for example by row_number() over (partition by "
            f"{', '.join(keys)} order by …); or say in `write.only_if_newer` which row is the newest",
            uri=uri,
            example={name: row[name] for name in known_by},
        )
    raise RepeatedKeysError(
        f"{row[_COUNT]} different {within} for {uri} have the same keys ({example}) "
        f"and the same `{column}`; none is the newest",
        fix="order by a column in which they differ, or leave one row per key in the transform",
        uri=uri,
        example={name: row[name] for name in known_by},
    )


def one_of_equal(batch: DataFrame, keys: Sequence[str], uri: str) -> DataFrame:
    """The rows of ``batch``, one for each key; rows that are equal count once.

    Raises:
        RepeatedKeysError: rows with the same keys differ.
    """
    rows = batch.withColumn(_TEXT, row_text(batch.columns)).dropDuplicates([*keys, _TEXT]).drop(_TEXT)
    row = _repeated(rows, keys)
    if row is None:
        return rows
    example = ", ".join(f"{key}={row[key]!r}" for key in keys)
    raise RepeatedKeysError(
        f"{row[_COUNT]} different rows of several files for {uri} have the same keys ({example}); the first counts, "
        "and no row says which file it is of",
        fix=f"leave one row of a key in the transform, for example by row_number() over (partition by "
        f"{', '.join(keys)} order by …)",
        uri=uri,
        example={key: row[key] for key in keys},
    )


def _newest(batch: DataFrame, keys: Sequence[str], column: str) -> DataFrame:
    """Of each key, the rows with the greatest ``column``; NULL is less than any value. Equal rows count once."""
    order = Window.partitionBy(*map(quoted, keys)).orderBy(F.col(quoted(column)).desc_nulls_last())
    best = batch.withColumn(_RANK, F.rank().over(order)).where(f"{_RANK} = 1").drop(_RANK)
    # As text, because a row with a map in it does not compare.
    return best.withColumn(_TEXT, row_text(batch.columns)).dropDuplicates([*keys, _TEXT]).drop(_TEXT)


def _repeated(batch: DataFrame, keys: Sequence[str]) -> Row | None:
    """Keys that several rows have, with the number of these rows; None if there are none."""
    groups = batch.groupBy(*map(quoted, keys)).agg(F.count(F.lit(1)).alias(_COUNT))
    return next(iter(groups.where(f"{_COUNT} > 1").limit(1).collect()), None)


def newer_than_stored(
    batch: DataFrame, handle: TableHandle, among: Sequence[LiveFile], keys: Sequence[str], column: str
) -> DataFrame:
    """Rows of ``batch`` whose keys are in none of the files ``among``, or there with a lesser ``column``.

    An equal value is not newer. A stored NULL is less than any value.
    """
    if not among:
        return batch
    stored = stored_values(batch, handle, among, keys, column)
    joined = batch.alias("t").join(stored.alias("b"), same_keys(keys), "left")
    value, there = F.col(f"t.{quoted(column)}"), F.col(f"b.{STORED}")
    newer = F.col(f"b.{PRESENT}").isNull() | (there.isNull() & value.isNotNull()) | (value > there)
    return joined.where(newer).select(*[F.col(f"t.{quoted(name)}") for name in batch.columns])


def stored_values(
    batch: DataFrame, handle: TableHandle, among: Sequence[LiveFile], keys: Sequence[str], column: str
) -> DataFrame:
    """By key of the files ``among``, its greatest ``column``."""
    rows = read_files(batch.sparkSession, handle, among)
    return rows.groupBy(*map(quoted, keys)).agg(F.max(F.col(quoted(column))).alias(STORED), F.lit(True).alias(PRESENT))
