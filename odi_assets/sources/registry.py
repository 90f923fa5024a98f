"""Which kind of source a node's ``read`` and ``inputs`` are."""

from __future__ import annotations

from collections.abc import Callable

from odi_assets.config.models import FileFormat, ReadConfig
from odi_assets.connections.location import Location
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.files.source import LandingFiles
from odi_assets.sources.marks import READ
from odi_assets.sources.source import Source, Target

Locate = Callable[[str, str], Location]
"""A path of a connection → where it is."""


def source_of(read: ReadConfig, target: Target, locate: Locate) -> Source:
    """The source that a node's ``read`` names."""
    label = f"{read.connection}:{read.path}"
    if read.format is FileFormat.DELTA:
        location = locate(read.connection, read.path)
        return DeltaTableSource(name=READ, label=label, target=target, increment=read.incremental, location=location)
    return LandingFiles(
        name=READ,
        label=label,
        target=target,
        increment=read.incremental,
        format=read.format,
        base=locate(read.connection, ""),
        path=read.path,
        schema_ddl=read.schema_ddl,
        options=read.options,
    )
