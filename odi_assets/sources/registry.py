"""Which kind of source a node's ``read`` and ``inputs`` are. A kind is loaded when a node has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odi_assets.config.models import Connection, FileFormat, Increment, ReadConfig, SqlConnection
from odi_assets.connections.location import Location
from odi_assets.sources.marks import READ
from odi_assets.sources.snapshot import Partitions
from odi_assets.sources.source import Source, Target
from odi_assets.sources.sql.source import sql_source

Locate = Callable[[str, str], Location]
"""A path of a connection → where it is."""


def source_of(read: ReadConfig, target: Target, connection: Connection, locate: Locate, name: str = READ) -> Source:
    """The source that a node's ``read`` names, on ``connection``; ``name`` is the name of a stream node's input."""
    label = f"{read.connection}:{read.shown}"
    if read.format is FileFormat.CDC:
        from odi_assets.sources.cdc.source import capture_source

        return capture_source(name, label, read, target, connection)
    if isinstance(connection, SqlConnection):
        return sql_source(name, label, read, target, connection)
    if read.format is FileFormat.DELTA:
        found = table_source(name, label, target, read.incremental, locate(read.connection, read.path))
        return replace(found, connection=read.connection)
    from odi_assets.sources.files.source import LandingFiles

    return LandingFiles(
        name=name,
        label=label,
        target=target,
        increment=read.incremental,
        connection=read.connection,
        format=read.format,
        base=locate(read.connection, ""),
        path=read.path,
        schema_ddl=read.schema_ddl,
        options=read.options,
        rescued=read.rescued,
        strict=read.strict,
    )


def table_source(
    name: str,
    label: str,
    target: Target,
    increment: Increment | None,
    location: Location,
    only: Partitions | None = None,
) -> Source:
    """A Delta table as a source: a table on a connection, or the table of an upstream node.

    Args:
        only: the partitions whose rows are wanted; None: all.
    """
    from odi_assets.sources.delta.source import DeltaTableSource

    return DeltaTableSource(name=name, label=label, target=target, increment=increment, location=location, only=only)
