"""Deduplicates rows that an increment reads again and that its target holds already."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from odi_assets.config.compared_columns import known_rows
from odi_assets.delta.files.pruning import uncut
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import IncrementError
from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.sources.cursor.columns import least
from odi_assets.sources.cursor.window import Overlap
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, text_of
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ALL = "__odi_all_columns"


def each_once(df: DataFrame, plan: ResolvedPlan) -> DataFrame:
    """``df`` with one row for each of its keys and cursors, where the node knows rows by them.

    So a row that is there twice in one increment is stored once, as it is if it comes again in a later one. A row that
    has neither a key nor a cursor is known by all of its columns.

    Raises:
        IncrementError: the rows lack a key or the cursor.
    """
    names = known_rows(plan.node.config)
    if not names:
        return df
    _require(names, df.columns, "rows lack", plan)
    known = _known_by_all(df, names, df.schema)
    return known.dropDuplicates([*names, _ALL]).drop(_ALL)


def without_loaded(df: DataFrame, plan: ResolvedPlan, overlap: Overlap, spark: SparkSession) -> DataFrame | None:
    """``df`` without the rows that the target holds; None if no row is left and the increment moves no HWM.

    A row is identified by its keys and its cursor, and by all of its columns if it has none of them. A row that changed
    has a later cursor and is appended as a new version. Rows are looked up in the files of the target that may hold
    cursors of the increment's window.

    Raises:
        IncrementError: the rows or the target lack a key or the cursor.
    """
    moves = any(read.moves for read in plan.reads)
    if moves and plan.write.mode.traits.needs_keys:
        # The write itself looks up the keys, in fewer files.
        return df
    if plan.target.exists and plan.node.config.write.keys:
        df = _not_in_target(df, plan, overlap, spark)
    return None if not moves and df.isEmpty() else df


def _not_in_target(df: DataFrame, plan: ResolvedPlan, overlap: Overlap, spark: SparkSession) -> DataFrame:
    by_keys_alone = plan.write.mode.traits.needs_keys
    wanted = list(dict.fromkeys([*plan.node.config.write.keys, *(() if by_keys_alone else overlap.columns)]))
    _require(wanted, df.columns, "rows lack", plan)
    _require(wanted, list(plan.target.columns), "table lacks", plan)
    files = list(plan.target.live_files) if by_keys_alone else _overlapping(plan, overlap, df)
    stored = engine_of(plan.target).read_files(spark, plan.target, files)
    present = stored.select(*[quoted(name) for name in wanted])
    without = [] if by_keys_alone else _with_unknown_rows(plan.target, files, wanted)
    if not without:
        return df.alias("t").join(present.alias("b"), _same(wanted), "left_anti")
    # All columns are read of the files alone that may hold rows without any of the wanted values.
    unknown = _known_by_all(engine_of(plan.target).read_files(spark, plan.target, without), wanted, stored.schema)
    unknown = unknown.where(F.col(_ALL).isNotNull()).select(*present.columns, _ALL)
    known = present.where(~_are_null(wanted)).withColumn(_ALL, F.lit(None).cast("string"))
    present = known.unionByName(unknown)
    df = _known_by_all(df, wanted, stored.schema)
    return df.alias("t").join(present.alias("b"), _same([*wanted, _ALL]), "left_anti").drop(_ALL)


def _with_unknown_rows(target: TableHandle, files: Sequence[LiveFile], wanted: Sequence[str]) -> list[LiveFile]:
    """Those of ``files`` that may hold rows with a value in none of the ``wanted`` columns, by their statistics."""
    may: dict[str, bool] = {file.path: True for file in files}
    for name in wanted:
        counts = target.bounds("null_count", name) if files else None
        for file, nulls in zip(target.live_files, counts or (), strict=False):
            if nulls == 0 and file.path in may:
                may[file.path] = False
    return [file for file in files if may[file.path]]


def _known_by_all(rows: DataFrame, names: Sequence[str], stored: StructType) -> DataFrame:
    """``rows`` with the text of a row that has a value in none of the columns ``names``; it is NULL for others.

    Args:
        stored: the types that the columns have in the table.
    """
    types = {field.name.lower(): field.dataType for field in stored}
    values = {name: F.col(quoted(name)) for name in rows.columns}
    as_stored = {
        name: value.cast(types[name.lower()]) if name.lower() in types else value for name, value in values.items()
    }
    return rows.withColumn(_ALL, F.when(_are_null(names), text_of(as_stored)))


def _are_null(names: Sequence[str]) -> Column:
    return reduce(and_, (F.col(quoted(name)).isNull() for name in names))


def _require(wanted: Sequence[str], columns: Sequence[str], lack: str, plan: ResolvedPlan) -> None:
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise IncrementError(
            f"{plan.node}: its {lack} `{missing[0]}`, by which rows that are read again are known",
            fix="keep keys and cursor in the transform, or write with `append_once` or `upsert`",
            node=str(plan.node),
            column=missing[0],
        )


def _overlapping(plan: ResolvedPlan, overlap: Overlap, df: DataFrame) -> list[LiveFile]:
    """Files of the target that, by their statistics, may hold one of the rows."""
    target, column, files = plan.target, overlap.columns[0], list(plan.target.live_files)
    highs = target.bounds("max", column) if files and overlap.lower is not None else None
    if highs is None:
        return files
    # A transform may store other values in the cursor column than those that the window bounds.
    lower = overlap.lower if plan.node.config.transform is None else least(df, column)
    return [file for file, high in zip(files, highs, strict=True) if lower is None or _reaches(high, lower)]


def _reaches(high: Any, lower: Any) -> bool:
    if high is None or isinstance(high, str | float | bytes):
        return True
    try:
        return bool(uncut(high) >= lower)
    except TypeError:
        return True


def _same(columns: list[str]) -> Column:
    terms = [F.col(f"t.{quoted(name)}").eqNullSafe(F.col(f"b.{quoted(name)}")) for name in columns]
    return reduce(lambda left, right: left & right, terms)
