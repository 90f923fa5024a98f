"""How a node takes a bounded run: what its range is a range of, and whether that is replaced or upserted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import NodeConfig, RollingWindowIncrement, StatefulIncrement, WriteMode
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.time_range import Bounds, partition_values
from odi_assets.nodes.project import READ_VIEW, Project

_KEYED = (WriteMode.UPSERT, WriteMode.APPEND_ONCE)


@dataclass(frozen=True)
class RangeWay:
    """What a range of a node means.

    Attributes:
        column: the partition column of its table, or the cursor column of a source.
        source: the source whose cursor the range bounds; None for a range of partitions.
        mode: how the rows of the range are written.
    """

    column: str
    source: str | None
    mode: WriteMode


def range_way(key: NodeKey, node: NodeConfig) -> RangeWay:
    """How ``node`` takes a range.

    A partitioned node replaces whole partitions, unless its rows have keys that could stand in another partition too:
    those are upserted. A node without partitions that writes by keys takes a range of its cursor column.

    Raises:
        ConfigError: it takes none; the remedy is named.
    """
    mode = node.write.mode
    if node.partition is not None:
        column = node.partition.column
        keyed = mode in _KEYED and column.lower() not in [name.lower() for name in node.write.keys]
        return RangeWay(column, None, mode if keyed else WriteMode.PARTITION_OVERWRITE)
    if mode not in _KEYED:
        why = "would append its rows again" if mode is WriteMode.APPEND else "cannot be told from the other rows"
        raise ConfigError(
            f"{key} has no `partition`: with {mode.value}, a range {why}",
            fix="add `partition: {column: …, start: …}` to the node, or write it with mode upsert and `keys`; "
            "or load all of it with --full-refresh",
            node=str(key),
        )
    cursors = _cursors(node)
    if len(cursors) != 1:
        raise ConfigError(
            f"{key} has no `partition`, and {'no' if not cursors else 'more than one'} source of it has a cursor "
            "column to take a range of",
            fix="add `partition: {column: …, start: …}` to the node, or read with `incremental: {mode: stateful, "
            "column: …}`; or load all of it with --full-refresh",
            node=str(key),
        )
    ((source, column),) = cursors.items()
    return RangeWay(column, source, mode)


def require_ranges(project: Project, keys: Iterable[NodeKey], bounds: Bounds) -> None:
    """Raises ConfigError unless each of ``keys`` takes this range; names all that do not."""
    wrong: list[ConfigError] = []
    for key in keys:
        node = project.node(key)
        try:
            if range_way(key, node).source is None and node.partition is not None:
                partition_values(node.partition, bounds)
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        lines = "\n".join(f"  {error.message}" for error in wrong)
        raise ConfigError(
            f"{len(wrong)} of the nodes take no such range:\n{lines}", fix="name the nodes that do with --node"
        )


def _cursors(node: NodeConfig) -> dict[str, str]:
    increments = {READ_VIEW: node.read.incremental} if node.read else {}
    given = {**increments, **{name: item.incremental for name, item in node.inputs.items()}}
    kinds = (StatefulIncrement, RollingWindowIncrement)
    return {name: increment.column for name, increment in given.items() if isinstance(increment, kinds)}
