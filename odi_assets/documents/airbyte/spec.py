"""Airbyte, as one of the tools whose documents are known."""

from __future__ import annotations

from typing import Any

from odi_assets.documents.airbyte import write
from odi_assets.documents.airbyte.read import form_of, read, read_lines
from odi_assets.documents.canonical import as_set
from odi_assets.documents.model import CursorDocument, Tool
from odi_assets.documents.tools import ToolSpec


def _with_sorted_sets(document: CursorDocument) -> Any:
    return document.content if document.form == "messages" else _sorted_states(document.content)


def _sorted_states(content: Any) -> Any:
    """Airbyte's lists of streams in one order, wherever they are."""
    if isinstance(content, list):
        return as_set(content)
    if not isinstance(content, dict):
        return content
    return {
        key: as_set(value)
        if key in ("stream_states", "streamStates", "streamState") and isinstance(value, list)
        else _sorted_states(value)
        if isinstance(value, dict)
        else value
        for key, value in content.items()
    }


AIRBYTE = ToolSpec(
    Tool.AIRBYTE.value, form_of, read, read_lines, writer=write, canonical=_with_sorted_sets, reads_above=True
)
