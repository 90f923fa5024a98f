"""Singer, as one of the tools whose documents are known."""

from __future__ import annotations

from odi_assets.documents.model import CursorStream, Tool
from odi_assets.documents.positions import BinlogPosition, PostgresLsn
from odi_assets.documents.singer import write
from odi_assets.documents.singer.read import form_of, read
from odi_assets.documents.tools import ToolSpec


def _names_of(stream: CursorStream) -> tuple[str, str]:
    if stream.name.count("-") != 1:
        return stream.namespace, stream.name
    # Taps of databases join schema and table.
    namespace, name = stream.name.split("-")
    return namespace, name


SINGER = ToolSpec(
    Tool.SINGER.value,
    form_of,
    read,
    read,
    writer=write,
    positions=(PostgresLsn, BinlogPosition),
    names_of=_names_of,
    id_of=write.stream_id,
)
