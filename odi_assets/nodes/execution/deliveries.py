"""Files of one increment as deliveries that follow each other: a key that lies in several is no conflict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from odi_assets.config.models import FilesIncrement
from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.spark.lazy import F, spark_errors
from odi_assets.tables.columns import quoted
from odi_assets.tables.upsert.newest import RepeatedKeysError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELIVERY = "__odi_delivery"
"""The column with the number of a row's file; it is not stored."""
_MOST_NAMED = 3
_PLAIN = (str, int, float, bytes, Decimal, date)
"""Values that Spark compares as they were collected."""


def follow_each_other(plan: ResolvedPlan) -> bool:
    """Whether several files are written by their keys, and each row comes out of one of them, as it is.

    A transform makes one result of all files, whose rows are of none.
    """
    return _reads_several_files(plan) and plan.node.config.transform is None


def are_mixed(plan: ResolvedPlan) -> bool:
    """Whether a transform has made one result of several files, which is written by its keys."""
    return _reads_several_files(plan) and plan.node.config.transform is not None


def _reads_several_files(plan: ResolvedPlan) -> bool:
    config = plan.node.config
    by_files = config.read is not None and isinstance(config.read.incremental, FilesIncrement)
    alone = len(plan.reads) == 1 and config.write.mode.traits.needs_keys
    return by_files and alone and (plan.reads[0].file_count or 0) > 1


def numbered(rows: DataFrame, plan: ResolvedPlan) -> DataFrame:
    """``rows`` with the number of the file of each, where files :func:`follow_each_other`."""
    return plan.reads[0].numbered(rows, DELIVERY) if follow_each_other(plan) else rows


@contextmanager
def repeats_placed(rows: DataFrame, plan: ResolvedPlan) -> Iterator[None]:
    """Within, an error about rows with the same keys names the node, and up to three files that such rows are in."""
    try:
        yield
    except RepeatedKeysError as error:
        places = ", ".join(_places(rows, plan, error))
        text = f"{plan.node}: {error.message}{f'; they are in {places}' if places else ''}"
        alone = "; of files that are stored without a transform, the newest counts" if are_mixed(plan) else ""
        raise RepeatedKeysError(text, fix=f"{error.fix}{alone}", **error.fields) from error


def _places(rows: DataFrame, plan: ResolvedPlan, error: RepeatedKeysError) -> list[str]:
    """The files of the rows with the error's example of a key; none where the rows do not come out of files as they
    are, or cannot be looked for."""
    if len(plan.reads) != 1 or plan.node.config.transform is not None:
        return []
    snapshot = plan.reads[0].snapshot
    place = snapshot.place_of_rows()
    if place is None or not all(isinstance(value, _PLAIN) for value in error.example.values()):
        return []
    is_one = reduce(and_, [F.col(quoted(name)).eqNullSafe(F.lit(value)) for name, value in error.example.items()])
    try:
        found = rows.where(is_one).select(place.alias(DELIVERY)).distinct().limit(_MOST_NAMED).collect()
    except spark_errors.PySparkException:
        # The repeated keys are the error that is to be seen.
        return []
    return sorted(snapshot.shown_place(row[0]) for row in found if row[0])
