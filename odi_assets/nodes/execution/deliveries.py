"""Files of one increment as deliveries that follow each other: a key that lies in several is no conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.config.models import FilesIncrement
from odi_assets.nodes.planning.plan import ResolvedPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELIVERY = "__odi_delivery"
"""The column with the number of a row's file; it is not stored."""


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
