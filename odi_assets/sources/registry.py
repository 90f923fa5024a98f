"""The sources that a node's ``read`` and ``inputs`` name. A kind is loaded when a node has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odi_assets.config.models import Connection, Increment, ReadConfig
from odi_assets.config.models.reads import SOURCES, kind_of
from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError
from odi_assets.sources.marks import READ
from odi_assets.sources.snapshot import Partitions
from odi_assets.sources.source import Source, SourceContext, Target

if TYPE_CHECKING:
    from odi_assets.delta.table import TableHandle

Locate = Callable[[str, str], Location]
"""A path of a connection → where it is."""


def source_of(read: ReadConfig, target: Target, connection: Connection, locate: Locate, name: str = READ) -> Source:
    """The source that a node's ``read`` names, on ``connection``; ``name`` is the name of a stream node's input.

    Raises:
        ConfigError: the package that has this kind of source is gone or broken; or the source refuses its settings.
    """
    kind, extension = kind_of(read.format), SOURCES.find(read.format)
    assert extension is not None
    label = f"{read.connection}:{read.shown}"
    context = SourceContext(name, label, target, connection, lambda path: locate(read.connection, path))
    source = SOURCES.imported(extension, kind.source)(read, context)
    if not isinstance(source, Source):
        raise ConfigError(
            f"{label}: `{kind.source}` made no `odi_assets.sources.source.Source`, but a {type(source).__name__}",
            fix=f"{extension.shown} is wrong: install another version of its package",
            name=read.format,
        )
    return source


def table_source(
    name: str,
    label: str,
    target: Target,
    increment: Increment | None,
    location: Location,
    only: Partitions | None = None,
    opened: TableHandle | None = None,
) -> Source:
    """The table of an upstream node as a source.

    Args:
        only: the partitions whose rows are wanted; None: all.
        opened: the table at the version that is wanted; None: the newest one, when it is asked for.
    """
    from odi_assets.sources.delta.source import DeltaTableSource

    return DeltaTableSource(
        name=name, label=label, target=target, increment=increment, location=location, only=only, opened=opened
    )
