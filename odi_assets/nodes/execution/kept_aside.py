"""Rows of which `rescued` keeps what does not fit, in nodes that know rows by keys, or replace partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.config.write_modes import WriteMode
from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from odi_assets.nodes.node import Node


def with_known_keys(node: Node, rows: DataFrame) -> DataFrame:
    """Rows that stop the run, once they are written, if a row lacks a key because its value is kept aside.

    The key of such a row is NULL, and NULL equals NULL: the table would have one of all such rows, or only
    the rows of the last run. A key whose check `not_null` blocks is left to the check.
    """
    config = node.config
    aside = [name for read in config.reads.values() if (name := read.kept_aside) and name in rows.columns]
    own = {column.casefold(): column for column in rows.columns}
    decisive = node.partition_by if config.write.mode is WriteMode.PARTITION_OVERWRITE else config.write.keys
    keys = [own[key.casefold()] for key in decisive if key.casefold() in own]
    if not aside or not keys or any(column in keys for column in aside):
        return rows
    checked = {
        column.casefold()
        for check in config.all_checks
        if check.kind == "not_null" and check.blocks
        for column in check.columns
    }
    unknown = [key for key in keys if key.casefold() not in checked]
    return rows.withColumns({key: _known(node, rows, key, aside) for key in unknown})


def _known(node: Node, rows: DataFrame, key: str, aside: list[str]) -> Column:
    column = F.col(quoted(key))
    kept = F.coalesce(*(F.col(quoted(name)) for name in aside))
    mode = node.config.write.mode.value
    # Spark knows the file of a row until rows of several sources are put together.
    is_alone = node.config.transform is None and len(node.config.reads) == 1
    stopped = stopped_by(
        *(["a row of ", F.input_file_name()] if is_alone else [f"a row of {node}"]),
        f" has no `{key}`, which mode `{mode}` goes by, because a value of it is kept in `{aside[0]}`: ",
        F.substring(kept, 1, 100),
        fix="correct the row where it comes from, and land its file again, under its name; or give the node "
        f"`checks: [{{not_null: {key}}}]` and `quarantine: TABLE`, which keeps such rows apart; nothing was committed",
    )
    return F.when(column.isNull() & kept.isNotNull(), stopped.cast(rows.schema[key].dataType)).otherwise(column)
