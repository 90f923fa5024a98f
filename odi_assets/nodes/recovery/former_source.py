"""A source that a node read before its definition led elsewhere: what the former definition would still read of it."""

from __future__ import annotations

from odi_assets.config.models import Increment
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


def former_source(node: Node, then: Identity, increment: Increment) -> Source | None:
    """What a mark of ``then`` measures, as the project file leads to it now; None if it does not lead there, or if its
    rows cannot be read by what the mark says of them.

    Args:
        increment: how it was followed.

    Raises:
        TableError: a table cannot be looked at.
    """
    if then.kind == "delta":
        return _table(node, then, increment)
    return _files(node, then, increment) if then.kind == "files" and increment.mode == "files" else None


def _table(node: Node, then: Identity, increment: Increment) -> Source | None:
    project = node.project
    targets = {project.target(key).uri: (str(key), project.target(key)) for key in project.graph.nodes}
    label, location = targets.get(then.place, (then.place, Location(then.place)))
    if then.place not in targets and not location.is_local:
        # Its connection has the credentials, and the mark does not know the path below it.
        return None
    if not TableHandle.open(location).exists:
        return None
    return table_source(READ, label, node.target, increment, location)


def _files(node: Node, then: Identity, increment: Increment) -> Source | None:
    project, connection = node.project, node.project.config.connections.get(then.connection)
    if connection is None:
        return None
    settings = {
        "connection": then.connection,
        "format": _FORMAT,
        "path": then.source,
        "incremental": increment.model_dump(exclude_defaults=True),
    }
    read = kind_of(_FORMAT).settings.model_validate(settings)
    try:
        source = source_of(read, node.target, connection, project.location)
    except ConfigError:
        # The connection is of another kind now.
        return None
    return source if source.identity.place == then.place else None
