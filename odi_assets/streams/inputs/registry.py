"""Which input of a stream a source is."""

from __future__ import annotations

from odi_assets.config.models import StreamInput
from odi_assets.errors import ConfigError
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.files.source import LandingFiles
from odi_assets.sources.source import Source
from odi_assets.streams.inputs.files import StreamedFiles
from odi_assets.streams.inputs.input import StreamedInput
from odi_assets.streams.inputs.table import StreamedTable


def streamed(source: Source, settings: StreamInput, node: str | None) -> StreamedInput:
    """A source of a stream node as an input of its query.

    Args:
        node: the upstream node whose table it is; None for a source outside the pipeline.

    Raises:
        ConfigError: such a source cannot be read as a stream.
    """
    if isinstance(source, DeltaTableSource):
        return StreamedTable(
            name=source.name, label=source.label, settings=settings, location=source.location, node=node
        )
    if isinstance(source, LandingFiles) and source.schema_ddl is not None:
        return StreamedFiles(
            name=source.name,
            label=source.label,
            settings=settings,
            base=source.base,
            path=source.path,
            format=source.format.value,
            schema_ddl=source.schema_ddl,
            options=source.options,
            strict=source.strict,
        )
    raise ConfigError(f"{source.label} cannot be read as a stream", fix="load it with a node, and stream its table")
