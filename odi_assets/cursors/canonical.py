"""The canonical text of a cursor document: equal documents have equal texts."""

from __future__ import annotations

import hashlib
from typing import Any

from odi_assets.cursors.model import CursorDocument
from odi_assets.util.exact_json import write


def canonical(document: CursorDocument) -> str:
    """The document with sorted sets and objects, without white space, each number in one spelling.

    OLake writes its sets in a new order each time: ``streams``, each stream's ``chunks`` and ``global.streams``. A
    repeated member counts once.
    """
    content = dict(document.content)
    if isinstance(content.get("streams"), list):
        content["streams"] = _as_set([_with_sorted_chunks(stream) for stream in content["streams"]])
    shared = content.get("global")
    if isinstance(shared, dict) and isinstance(shared.get("streams"), list):
        content["global"] = {**shared, "streams": _as_set(shared["streams"])}
    return write(content, sort=True)


def fingerprint(document: CursorDocument) -> str:
    """SHA-256 of :func:`canonical`, in hexadecimal: equal for equal documents, whatever their order and spacing."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def dump(document: CursorDocument) -> str:
    """The document as JSON text, indented, in its own order, with unknown fields, and with every number exact.

    Parsing the text gives an equal document.
    """
    return write(document.content, indent=2) + "\n"


def _with_sorted_chunks(stream: Any) -> Any:
    state = stream.get("state")
    if not isinstance(state, dict) or not isinstance(state.get("chunks"), list):
        return stream
    return {**stream, "state": {**state, "chunks": _as_set(state["chunks"])}}


def _as_set(members: list[Any]) -> list[Any]:
    unique = {write(member, sort=True): member for member in members}
    return [unique[text] for text in sorted(unique)]
