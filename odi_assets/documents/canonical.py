"""The canonical text of a cursor document: equal documents have equal texts."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from odi_assets.documents.model import CursorDocument
from odi_assets.documents.tools import spec_of
from odi_assets.util.exact_json import one_spelling, write

_NUMBER = "\x00number"
"""The key of the object that stands for a number which is no integer, until the text is made."""
_MARKED = f'{{"{_NUMBER}":"'.replace("\x00", "\\u0000")


def canonical(document: CursorDocument) -> str:
    """The document with sorted sets and objects, without white space, each number in one spelling.

    OLake writes its sets in a new order each time: ``streams``, each stream's ``chunks`` and ``global.streams``. A
    repeated member counts once. Other tools' lists of streams are sets too.
    """
    content = spec_of(document.tool).canonical(document)
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


def as_set(members: list[Any]) -> list[Any]:
    """The members in one order, each once."""
    unique = {write(member, sort=True): member for member in members}
    return [unique[text] for text in sorted(unique)]
