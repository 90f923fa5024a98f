"""The canonical text of a cursor document: equal documents have equal texts."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from odi_assets.documents.model import CursorDocument, Tool
from odi_assets.util.exact_json import one_spelling, write

_NUMBER = "\x00number"
"""The key of the object that stands for a number which is no integer, until the text is made."""
_MARKED = f'{{"{_NUMBER}":"'.replace("\x00", "\\u0000")


def canonical(document: CursorDocument) -> str:
    """The document with sorted sets and objects, without white space, each number in one spelling.

    OLake writes its sets in a new order each time: ``streams``, each stream's ``chunks`` and ``global.streams``. A
    repeated member counts once. Other tools' lists of streams are sets too.
    """
    content = _with_sorted_sets(document)
    numbers: list[Decimal] = []

    def mark(value: Any) -> dict[str, str]:
        if not isinstance(value, Decimal):
            raise TypeError(value)
        numbers.append(value)
        return {_NUMBER: one_spelling(value)}

    text = json.dumps(content, default=mark, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if text.count(_MARKED) != len(numbers) or not _is_text(text):
        # The document itself has such an object, or half of a surrogate pair.
        return write(content, sort=True)
    head, *rest = text.split(_MARKED)
    return head + "".join("".join(piece.split('"}', 1)) for piece in rest)


def fingerprint(document: CursorDocument) -> str:
    """SHA-256 of :func:`canonical`, in hexadecimal: equal for equal documents, whatever their order and spacing."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def dump(document: CursorDocument) -> str:
    """The document as JSON text, indented, in its own order, with unknown fields, and with every number exact.

    Parsing the text gives an equal document. ``document.text`` is the document as it was read, byte for byte.
    """
    if document.many:
        return "".join(f"{write(value)}\n" for value in document.content)
    return write(document.content, indent=2) + "\n"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_sorted_sets(document: CursorDocument) -> Any:
    content = document.content
    if document.tool != Tool.OLAKE:
        return _sorted_states(content) if document.tool == Tool.AIRBYTE and document.form != "messages" else content
    content = dict(content)
    if isinstance(content.get("streams"), list):
        streams = [_with_sorted_chunks(stream) for stream in content["streams"]]
        # Their ids are unique, or there were no document.
        content["streams"] = sorted(streams, key=lambda one: (one.get("namespace") or "", one["stream"]))
    shared = content.get("global")
    if isinstance(shared, dict) and isinstance(shared.get("streams"), list):
        content["global"] = {**shared, "streams": sorted(set(shared["streams"]))}
    return content


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


def _with_sorted_chunks(stream: Any) -> Any:
    chunks = stream["state"].get("chunks")
    if not chunks or not isinstance(chunks, list):
        return stream
    return {**stream, "state": {**stream["state"], "chunks": as_set(chunks)}}


def as_set(members: list[Any]) -> list[Any]:
    """The members in one order, each once."""
    unique = {write(member, sort=True): member for member in members}
    return [unique[text] for text in sorted(unique)]
