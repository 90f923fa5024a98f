"""Whether two versions of a table have the same rows below a mark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.config.models import StatefulIncrement
from odi_assets.sources.cursor.columns import without_cursor
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.cursor_reads import plan_loaded
from odi_assets.sources.marks import CursorMark
from odi_assets.sources.snapshot import SourceSnapshot
from odi_assets.tables.columns import rows_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def same_loaded_rows(
    then: SourceSnapshot, now: SourceSnapshot, increment: StatefulIncrement, mark: CursorMark, spark: SparkSession
) -> bool:
    """Whether the rows that runs up to ``mark`` have read are the same in two snapshots of a source. Of rows without a
    cursor that each run reads, ``now`` may have more."""
    below = increment.model_copy(update={"on_null": "exclude"}) if increment.on_null == "include" else increment
    upto = replace(mark, ties=None)
    before, after = (plan_loaded(snapshot, below, upto).resolve(spark).load(spark) for snapshot in (then, now))
    if rows_digest(before) != rows_digest(after):
        return False
    if below is increment:
        return True
    window = Window(increment.column, increment.fallback_column, date_format=increment.date_format)
    loaded, there = (without_cursor(snapshot.rows(spark), window) for snapshot in (then, now))
    return loaded.exceptAll(there).isEmpty()
