"""Compares two sets of rows by ranges: their number, and an order-free hash of what they hold. Reads each once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import Window as Over
from pyspark.sql.types import StringType

from odi_assets.sources.cursor.columns import cursor_column
from odi_assets.sources.cursor.window import Window
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, row_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

BUCKETS = 16
"""Ranges of rows that nothing orders: by the hash of their keys."""
_RANGE, _KEY, _ROW, _SIDE = "__odi_range", "__odi_key", "__odi_row", "__odi_side"
_ORDER, _RANK, _VERSIONS, _GONE = "__odi_order", "__odi_rank", "__odi_versions", "__odi_gone"
_NUMBER = re.compile("-?[0-9]+")
Unit = Literal["hour", "day", "month"]
"""The lengths of a range of times."""
_SHAPES = {"hour": "yyyy-MM-dd HH:00", "day": "yyyy-MM-dd", "month": "yyyy-MM"}


@dataclass(frozen=True)
class RangeOf:
    """What rows are put into ranges by.

    Attributes:
        window: the cursor; None: there is none.
        unit: the length of a range of dates or times; None for other cursors.
        kind: the type of the cursor's column in the table, if it has a unit.
        width: the length of a range of numbers; None: each value is a range.
        keys: the columns whose hash is the range, where there is no cursor.
    """

    window: Window | None = None
    unit: Unit | None = None
    kind: str | None = None
    width: int | None = None
    keys: tuple[str, ...] = ()

    def column(self, rows: DataFrame) -> Column:
        """The name of the range that a row is in; NULL for a row without a cursor."""
        if self.window is None:
            bucket = F.pmod(F.xxhash64(row_text(self.keys)), F.lit(BUCKETS)) if self.keys else F.lit(0)
            return bucket.cast("string")
        value = cursor_column(rows, self.window)
        if self.unit is not None:
            # The session's zone is UTC.
            return F.date_format(value.cast("timestamp"), _SHAPES[self.unit])
        if self.width is not None:
            return (F.floor(value / F.lit(self.width)) * F.lit(self.width)).cast("decimal(38,0)").cast("string")
        return value.cast("string")


@dataclass(frozen=True)
class KeyRule:
    """How a write by keys chooses one of the rows of a key.

    Attributes:
        keys: the columns.
        order: the column by which the greatest row counts; None: any of them may.
        delete_when: the marker of rows that delete.
    """

    keys: tuple[str, ...]
    order: str | None = None
    delete_when: str | None = None


@dataclass(frozen=True)
class RangeDifference:
    """One range of the two sets.

    Attributes:
        range: its name; None: rows without a cursor.
        source_rows, table_rows: how many there are.
        missing: rows of the source that the table lacks, at least.
        extra: rows of the table that the source lacks, at least.
        repeated: keys that the table has more than once.
        changed: rows with other values; without keys, 1 stands for some.
        versions: the source has several rows of a key.
    """

    range: str | None
    source_rows: int
    table_rows: int
    missing: int
    extra: int
    repeated: int
    changed: int
    versions: bool = False

    @property
    def agrees(self) -> bool:
        """Whether source and table have the same rows."""
        return not (self.missing or self.extra or self.repeated or self.changed)


def as_stored(rows: DataFrame, schema: StructType, partition_columns: Sequence[str]) -> DataFrame:
    """``rows`` with the names and types of a table, as far as they have its columns."""
    known = {name.lower(): name for name in rows.columns}
    columns = []
    for field in schema.fields:
        if (name := known.pop(field.name.lower(), None)) is None:
            continue
        value = F.col(quoted(name)).cast(field.dataType)
        if field.name in partition_columns and isinstance(field.dataType, StringType):
            # Delta's log does not tell an empty text from NULL.
            value = F.nullif(value, F.lit(""))
        columns.append(value.alias(field.name))
    return rows.select(*columns, *[F.col(quoted(name)) for name in known.values()])


def without(source: DataFrame, quarantined: DataFrame, table: DataFrame, compared: Iterable[str]) -> DataFrame:
    """The rows of ``source`` that were not kept out of ``table``. A row that was let in later is in both tables.

    Args:
        compared: the columns that say which rows are the same.
    """
    text = row_text(list(dict.fromkeys(compared)))
    kept_out = quarantined.select(text.alias(_ROW)).subtract(table.select(text.alias(_ROW)))
    return source.join(kept_out, text == F.col(_ROW), "left_anti")


def by_rows(
    source: DataFrame, table: DataFrame, ranges: RangeOf, compared: Sequence[str], *, distinct: bool
) -> list[RangeDifference]:
    """The ranges of two sets in which each row counts.

    Args:
        compared: the columns whose values are compared.
        distinct: equal rows count as one.
    """

    def side(rows: DataFrame, number: int) -> DataFrame:
        hashes = rows.select(ranges.column(rows).alias(_RANGE), _hash(compared).alias(_ROW), F.lit(number).alias(_SIDE))
        return hashes.distinct() if distinct else hashes

    both = side(source, 0).unionAll(side(table, 1))
    sums = [_sum_if(F.col(_ROW).cast("decimal(38,0)"), number).alias(f"sum{number}") for number in (0, 1)]
    counts = [F.count_if(F.col(_SIDE) == number).alias(f"rows{number}") for number in (0, 1)]
    differences = []
    for row in both.groupBy(_RANGE).agg(*counts, *sums).collect():
        ours, theirs = int(row["rows0"]), int(row["rows1"])
        changed = int(ours == theirs and row["sum0"] != row["sum1"])
        differences.append(
            RangeDifference(row[_RANGE], ours, theirs, max(ours - theirs, 0), max(theirs - ours, 0), 0, changed)
        )
    return _in_order(differences)


def by_keys(
    source: DataFrame, table: DataFrame, ranges: RangeOf, compared: Sequence[str], rule: KeyRule
) -> list[RangeDifference]:
    """The ranges of a source, and of a table that holds one row for each key."""
    both = _candidates(source, ranges, compared, rule).unionAll(
        table.select(*_facts(table, ranges, compared, rule), F.lit(1).alias(_VERSIONS), F.lit(1).alias(_SIDE))
    )
    mine, other = F.col(_SIDE) == 0, F.col(_SIDE) == 1
    keys = both.groupBy(_KEY).agg(
        F.count_if(mine).alias("mine"),
        F.count_if(other).alias("other"),
        F.collect_set(F.when(mine, F.col(_ROW))).alias("wanted"),
        F.collect_set(F.when(other, F.col(_ROW))).alias("stored"),
        F.collect_set(F.when(mine, F.struct(_RANGE))).alias("wanted_in"),
        F.collect_set(F.when(other, F.struct(_RANGE))).alias("stored_in"),
        F.max(_VERSIONS).alias("versions"),
    )
    in_both = (F.col("mine") > 0) & (F.col("other") > 0)
    changed = in_both & (F.size(F.array_except("stored", "wanted")) > 0)
    agrees = in_both & ~changed & (F.col("other") == 1)
    where = F.when(agrees, F.col("stored_in")).otherwise(F.array_union("wanted_in", "stored_in"))
    spread = keys.select(
        F.explode(where).alias("place"),
        (F.col("mine") > 0).cast("int").alias("source_rows"),
        F.col("other").alias("table_rows"),
        (F.col("other") == 0).cast("int").alias("missing"),
        (F.col("mine") == 0).cast("int").alias("extra"),
        (F.col("other") > 1).cast("int").alias("repeated"),
        changed.cast("int").alias("changed"),
        (F.col("versions") > 1).cast("int").alias("versions"),
    )
    names = ("source_rows", "table_rows", "missing", "extra", "repeated", "changed", "versions")
    rows = spread.groupBy(F.col(f"place.{_RANGE}").alias(_RANGE)).agg(*[F.sum(name).alias(name) for name in names])
    return _in_order([_difference(row[_RANGE], row.asDict()) for row in rows.collect()])


def _difference(name: str | None, facts: Mapping[str, Any]) -> RangeDifference:
    counts = {
        fact: int(facts[fact]) for fact in ("source_rows", "table_rows", "missing", "extra", "repeated", "changed")
    }
    return RangeDifference(name, **counts, versions=bool(facts["versions"]))


def _candidates(source: DataFrame, ranges: RangeOf, compared: Sequence[str], rule: KeyRule) -> DataFrame:
    """The rows of each key that the table may hold: those that are the greatest by the order."""
    order = F.lit(None).cast("int") if rule.order is None else F.col(quoted(rule.order))
    gone = F.lit(False) if rule.delete_when is None else F.coalesce(F.col(quoted(rule.delete_when)), F.lit(False))
    rows = source.select(*_facts(source, ranges, compared, rule), order.alias(_ORDER), gone.alias(_GONE))
    of_key = Over.partitionBy(_KEY)
    ranked = rows.withColumns(
        {
            _RANK: F.rank().over(of_key.orderBy(F.col(_ORDER).desc_nulls_last())),
            _VERSIONS: F.count(F.lit(1)).over(of_key).cast("int"),
        }
    )
    newest = ranked.where((F.col(_RANK) == 1) & ~F.col(_GONE))
    return newest.select(_RANGE, _KEY, _ROW, _VERSIONS, F.lit(0).alias(_SIDE))


def _facts(rows: DataFrame, ranges: RangeOf, compared: Sequence[str], rule: KeyRule) -> list[Column]:
    key = row_text(rule.keys)
    return [ranges.column(rows).alias(_RANGE), key.alias(_KEY), _hash(compared).alias(_ROW)]


def _hash(compared: Sequence[str]) -> Column:
    return F.xxhash64(row_text(compared)) if compared else F.lit(0).cast("bigint")


def _sum_if(value: Column, number: int) -> Column:
    return F.sum(F.when(F.col(_SIDE) == number, value))


def _in_order(differences: list[RangeDifference]) -> list[RangeDifference]:
    def place(difference: RangeDifference) -> tuple[Any, ...]:
        text = difference.range
        number = int(text) if text is not None and _NUMBER.fullmatch(text) else None
        return (text is None, number is None, number or 0, text or "")

    return sorted(differences, key=place)
