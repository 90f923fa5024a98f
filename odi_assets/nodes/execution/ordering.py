"""The order in which an upsert finds the newest row of a key: text orders rows only where somebody named its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odi_assets.config.compared_columns import column_of_order
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.plan import ResolvedPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def require_typed_order(plan: ResolvedPlan, sources: Mapping[str, DataFrame]) -> None:
    """Check that ``write.only_if_newer`` does not order rows by a text that nobody named.

    Args:
        sources: the rows of each read, by its name.

    Raises:
        ConfigError: the column is text in files whose columns have no declared type.
    """
    node = plan.node
    ordered_by = column_of_order(node.config, node.project.root)
    for read in plan.reads:
        if ordered_by is None or ordered_by.view != read.name.casefold() or not read.snapshot.guesses_types:
            continue
        kinds = {name.casefold(): kind for name, kind in sources[read.name].dtypes}
        if kinds.get(ordered_by.column) == "string":
            raise ConfigError(
                f"{node}: `only_if_newer: {node.config.write.only_if_newer}` orders rows by `{ordered_by.column}` of "
                f"{read.label}, which is text, in which `10` comes before `9`; no type is declared for it",
                fix="declare the columns in `read.schema`: a number or a time, or STRING if it is to be compared as "
                "text",
                node=str(node),
            )
