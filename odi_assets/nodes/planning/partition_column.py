"""The column by which a node replaces partitions: its sources need it, to tell which partitions new rows affect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odi_assets.errors import ConfigError

if TYPE_CHECKING:
    from odi_assets.nodes.node import Node


def partition_column(node: Node) -> str | None:
    """The column whose partitions the node computes as a whole; None if it does not write by partitions."""
    write, partition = node.config.write, node.config.partition
    if write.mode.traits.increment != "partitions":
        return None
    return partition.column if partition is not None else write.partition_by[0]


def require_partition_column(node: Node, label: str, columns: Sequence[str]) -> None:
    """Raises ConfigError if the node follows a source without the column by which it writes partitions.

    The first run reads all of the source and would succeed. Each later one would not know what to replace.
    """
    column = partition_column(node)
    if column is None or column in columns:
        return
    same = next((name for name in columns if name.casefold() == column.casefold()), None)
    if same is not None:
        raise ConfigError(
            f"{node} is written by partitions of `{column}`, and {label} has `{same}`: capitals count here",
            fix=f"write `{same}` in the project file",
            node=str(node),
            column=column,
        )
    raise ConfigError(
        f"{node} is written by partitions of `{column}`, and {label} has no such column, but {', '.join(columns)}: it "
        "is not known which partitions its new rows affect",
        fix=f"write what is read with `append` or `upsert`, and let a second node, which finds `{column}` in its "
        "input, write by partitions",
        node=str(node),
        column=column,
    )
