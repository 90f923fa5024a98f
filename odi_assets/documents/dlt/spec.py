"""dlt, as one of the tools whose documents are known."""

from __future__ import annotations

from odi_assets.documents.dlt import write
from odi_assets.documents.dlt.read import form_of, read
from odi_assets.documents.model import CursorStream, Tool
from odi_assets.documents.tools import ToolSpec


def _names_of(stream: CursorStream) -> tuple[str, str]:
    # The namespace is the name of a source, which is no schema.
    return "", stream.name


def _id_of(stream: CursorStream) -> str:
    return f"{stream.namespace or write.SOURCE}.{stream.name}"


DLT = ToolSpec(Tool.DLT.value, form_of, read, writer=write, takes_paths=True, names_of=_names_of, id_of=_id_of)
