"""A source that a node read before its definition led elsewhere: what the former definition would still read of it."""

from __future__ import annotations

from typing import Any

from odi_assets.config.models import Increment, ReadConfig
from odi_assets.config.models.reads import kind_of
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.sources.marks import READ, Identity
from odi_assets.sources.registry import source_of, table_source
from odi_assets.sources.source import Source

_FORMAT = "csv"
"""Files that are followed as files are listed, whatever their format."""


def former_source(node: Node, source: Source, then: Identity, increment: Increment) -> Source | None:
    """What a mark of ``then`` measures, as the project file leads to it now; None if it does not lead there, or if its
    rows cannot be read by what the mark and the project file say of them.

    Args:
        source: what the node reads now. Rows of the same kind of source are read in the same way.
        increment: how the former one was followed.

    Raises:
        TableError: a table cannot be looked at.
    """
    if then.kind == "delta":
        return _table(node, then, increment)
    connection, read = node.project.config.connections.get(then.connection), _read(node, source, then, increment)
    if connection is None or read is None:
        return None
    try:
        former = source_of(read, node.target, connection, node.project.location)
    except ConfigError:
        # The connection is of another kind now.
        return None
    return former if former.identity.place == then.place else None


def _table(node: Node, then: Identity, increment: Increment) -> Source | None:
    project = node.project
    targets = {project.target(key).uri: (str(key), project.target(key)) for key in project.graph.nodes}
    label, location = targets.get(then.place, (then.place, _location(node, then)))
    if location is None or not TableHandle.open(location).exists:
        return None
    return table_source(READ, label, node.target, increment, location)


def _location(node: Node, then: Identity) -> Location | None:
    """Where the table is: below its connection, which has the credentials of its store."""
    local = Location(then.place)
    if local.is_local:
        return local
    if then.connection not in node.project.config.connections:
        return None
    base = node.project.location(then.connection, ".")
    path = then.place.removeprefix(base.uri.rstrip("/") + "/")
    return None if path == then.place else node.project.location(then.connection, path)


def _read(node: Node, source: Source, then: Identity, increment: Increment) -> ReadConfig | None:
    """The settings of a ``read`` that leads to ``then``."""
    place: dict[str, Any] = {"connection": then.connection, "path": then.source}
    if then.kind == "sql":
        table = then.source.partition(":")[2]
        place = {"connection": then.connection, "table": table, "query": None}
    now = node.config.read
    if now is not None and source.identity.kind == then.kind:
        return now.model_copy(update={**place, "incremental": increment})
    if then.kind == "files" and increment.mode == "files":
        settings = {**place, "format": _FORMAT, "incremental": increment.model_dump(exclude_defaults=True)}
        return kind_of(_FORMAT).settings.model_validate(settings)
    return None
