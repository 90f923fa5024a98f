"""Which tool wrote a document, and who reads it. A tool is recognised by what only its documents have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odi_assets.documents.airbyte import read as airbyte
from odi_assets.documents.dlt import read as dlt
from odi_assets.documents.findings import Findings
from odi_assets.documents.model import CursorDocument, Tool
from odi_assets.documents.olake import read as olake
from odi_assets.documents.singer import read as singer

READERS: Mapping[str, Callable[[Any, Findings], CursorDocument | None]] = {
    Tool.OLAKE: olake.read,
    Tool.AIRBYTE: airbyte.read,
    Tool.SINGER: singer.read,
    Tool.DLT: dlt.read,
}

LINE_READERS: Mapping[str, Callable[[Any, Findings], CursorDocument | None]] = {
    Tool.AIRBYTE: airbyte.read_lines,
    Tool.SINGER: singer.read,
}
"""Readers of values that stood one after another, as their list; other tools have none."""

_FORMS: Mapping[str, Callable[[Any], str | None]] = {
    Tool.OLAKE: olake.form_of,
    Tool.AIRBYTE: airbyte.form_of,
    Tool.SINGER: singer.form_of,
    Tool.DLT: dlt.form_of,
}


def recognise(content: Any, *, many: bool = False) -> str | None:
    """The tool whose document a JSON value is; None if it is none's, or may be more than one's.

    Args:
        many: ``content`` is a list of messages that stood one after another.
    """
    tools = LINE_READERS if many else READERS
    found = [tool for tool in tools if _FORMS[tool](content) is not None]
    return found[0] if len(found) == 1 else None
