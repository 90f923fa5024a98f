"""The nodes that a key comes through on its way to a table, and its columns in each of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.errors import NothingThereError
from odi_assets.nodes.execution.transform import transformed
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.source import Source
from odi_assets.spark.plans.plan import Outline, read_outline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Followed:
    """A node on the way, and the columns of the key in its table and in its sources.

    Attributes:
        sources: by name of a source that has the key, its columns there.
    """

    node: Node
    columns: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    outline: Outline | None


def followed_nodes(project: Project, spark: SparkSession, key: NodeKey, columns: tuple[str, ...]) -> list[Followed]:
    """The nodes that the key comes through, the first one first."""
    columns_by_node: dict[NodeKey, tuple[str, ...]] = {key: columns}
    nodes_on_way: list[Followed] = []
    for node_key in reversed(project.graph.order(None)):
        if node_key not in columns_by_node:
            continue
        node = Node.of(project, node_key)
        if node.config.apply is not None or node.captures:
            # The columns of the table lie in the values of the log.
            nodes_on_way.append(Followed(node, columns_by_node[node_key], {}, None))
            continue
        followed = _followed(spark, node, columns_by_node[node_key])
        nodes_on_way.append(followed)
        for name, above in upstream(node).items():
            if name in followed.sources:
                columns_by_node.setdefault(above, followed.sources[name])
    return list(reversed(nodes_on_way))


def upstream(node: Node) -> dict[str, NodeKey]:
    """The nodes that a node reads, by the name it has for each."""
    resolve_name = node.project.graph.resolve
    return {
        name: resolve_name(node.key, node_input.node)
        for name, node_input in node.config.inputs.items()
        if node_input.node
    }


def _followed(spark: SparkSession, node: Node, columns: tuple[str, ...]) -> Followed:
    frames = {source.name: frame for source in node.sources if (frame := rows_of(spark, source)) is not None}
    outline = _outline(spark, node, frames)
    sources: dict[str, tuple[str, ...]] = {}
    for name, frame in frames.items():
        by_lower = {column.lower(): column for column in frame.columns}
        parts = [_column_in(name, column, by_lower, outline) for column in columns]
        if all(part is not None for part in parts):
            sources[name] = tuple(part for part in parts if part is not None)
    return Followed(node, columns, sources, outline)


def _column_in(view: str, column: str, columns: Mapping[str, str], outline: Outline | None) -> str | None:
    """The column of an input that a column of the result is; by its name, where the plan does not tell."""
    if outline is not None:
        known = {name.lower(): origins for name, origins in outline.columns.items()}.get(column.lower(), ())
        return next((origin for source, origin in known if source == view), None) or _equal_in(view, known, outline)
    return columns.get(column.lower())


def _equal_in(view: str, known: Sequence[tuple[str, str]], outline: Outline) -> str | None:
    """The column of ``view`` that a join requires to be equal to one of ``known``."""
    texts = {f"{source}.{column}" for source, column in known}
    for equality in outline.equalities:
        for index in (0, 1):
            prefix, side = f"{view}.", equality.sides[index]
            if equality.sides[1 - index] in texts and equality.views[index] == view and side.startswith(prefix):
                return side.removeprefix(prefix).strip("`")
    return None


def _outline(spark: SparkSession, node: Node, frames: Mapping[str, DataFrame]) -> Outline | None:
    """What the node's query does, from its plan; None where no plan can be had: with Spark Connect, or of a function
    that looks at rows."""
    if not hasattr(spark, "_jsparkSession") or len(frames) < len(node.sources):
        return None
    schemas = {name: frame.schema for name, frame in frames.items()}

    def transform(streams: Mapping[str, DataFrame]) -> DataFrame:
        return transformed(spark, node.config, node.project.root, streams, str(node))

    try:
        return read_outline(spark, schemas, transform)
    except Exception as error:  # noqa: BLE001  a user's function may raise anything when it is given streams
        logging.getLogger(__name__).debug("no plan of %s: %s", node, error)
        return None


def rows_of(spark: SparkSession, source: Source) -> DataFrame | None:
    """All rows of a source; None if there is nothing yet.

    Raises:
        SourceError, TableError: it cannot be looked at.
    """
    try:
        return source.whole().load(spark)
    except NothingThereError:
        return None
