"""Rows that an increment read again and that its target holds already."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import WriteMode
from odi_assets.delta.table import LiveFile
from odi_assets.errors import IncrementError
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.sources.cursor.columns import least
from odi_assets.sources.cursor.window import reads_again
from odi_assets.sources.model import ReadPlan
from odi_assets.tables.columns import quoted
from odi_assets.tables.reader import read_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MILLISECOND = timedelta(milliseconds=1)


def without_loaded(df: DataFrame, plan: NodePlan, spark: SparkSession) -> DataFrame | None:
    """``df`` less the rows that the target holds; None if that leaves none of an increment that moves no HWM.

    A row is known by its keys and its cursor: a row that changed has a later cursor, and is appended as what it is, a
    new version. It is looked for in the files of the target that may hold cursors of the increment's window.

    Raises:
        IncrementError: the rows or the target lack a key or the cursor.
    """
    again = [read for read in plan.reads if reads_again(read)]
    if not again or plan.mode not in (WriteMode.APPEND, WriteMode.APPEND_ONCE):
        return df
    moves = any(read.hwm_after != read.hwm_before for read in plan.reads if read.incremental)
    if moves and plan.mode is WriteMode.APPEND_ONCE:
        # The write itself looks for the keys, and in fewer files.
        return df
    if plan.target.exists and plan.node.write.keys:
        df = _unknown(df, plan, again[0], spark)
    return None if not moves and df.isEmpty() else df


def _unknown(df: DataFrame, plan: NodePlan, read: ReadPlan, spark: SparkSession) -> DataFrame:
    cursor = [] if read.window is None else [name for name in (read.window.column, read.window.fallback) if name]
    once = plan.mode is WriteMode.APPEND_ONCE
    wanted = list(dict.fromkeys([*plan.node.write.keys, *([] if once else cursor)]))
    for name, columns in (("rows", df.columns), ("table", list(plan.target.columns))):
        missing = [column for column in wanted if column not in columns]
        if missing:
            raise IncrementError(
                f"{plan.key}: its {name} lack{'' if name == 'rows' else 's'} `{missing[0]}`, by which rows that are "
                "read again are known",
                fix="keep keys and cursor in the transform, or write with `append_once` or `upsert`",
                node=str(plan.key),
                column=missing[0],
            )
    files = list(plan.target.live_files) if once else _overlapping(plan, read, df)
    present = read_files(spark, plan.target, files).select(*[quoted(name) for name in wanted])
    return df.alias("t").join(present.alias("b"), _same(wanted), "left_anti")


def _overlapping(plan: NodePlan, read: ReadPlan, df: DataFrame) -> list[LiveFile]:
    """Files of the target that may hold one of the rows, by their statistics."""
    target, window, files = plan.target, read.window, list(plan.target.live_files)
    if window is None or window.lower is None or window.nulls or window.fallback or window.date_format or not files:
        return files
    if f"max.{window.column}" not in target.add_actions.column_names:
        return files
    # A transform may store the cursor as something else than what the window bounds.
    lower = window.lower if plan.node.transform is None else least(df, window.column)
    highs = target.add_actions[f"max.{window.column}"].to_pylist()
    return [file for file, high in zip(files, highs, strict=True) if lower is None or _reaches(high, lower)]


def _reaches(high: Any, lower: Any) -> bool:
    if high is None or isinstance(high, str | float | bytes):
        return True
    try:
        # Writers may cut bounds of times to milliseconds.
        return bool((high + _MILLISECOND if isinstance(high, datetime) else high) >= lower)
    except TypeError:
        return True


def _same(columns: list[str]) -> Column:
    from pyspark.sql import functions as F

    terms = [F.col(f"t.{quoted(name)}").eqNullSafe(F.col(f"b.{quoted(name)}")) for name in columns]
    return reduce(lambda left, right: left & right, terms)
