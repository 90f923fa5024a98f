"""Documents of a tool called Acme: ``{"acme": {"orders": {"id": 4}}}``, by table the value of each cursor column."""

from typing import Any

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import FINISHED, CursorDocument, CursorStream, StateType
from odi_assets.documents.tools import ToolSpec


def form_of(content: Any) -> str | None:
    """The form of a JSON value if it is a document of Acme."""
    return "state" if isinstance(content, dict) and "acme" in content else None


def read(content: Any, findings: Findings) -> CursorDocument | None:
    """The document in a JSON value; what is wrong with it goes to the findings."""
    tables = content["acme"]
    if not isinstance(tables, dict) or not all(isinstance(cursors, dict) for cursors in tables.values()):
        findings.add(("acme",), "must be an object with an object for each table", "restore a copy")
        return None
    streams = [CursorStream(name, "", name, "", FINISHED, None, tables[name]) for name in sorted(tables)]
    return CursorDocument("Acme", StateType.STREAM, 0, tuple(streams), None, content)


ACME = ToolSpec("Acme", form_of, read)
