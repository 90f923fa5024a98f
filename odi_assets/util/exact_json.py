"""Values of JSON with exact numbers: their text, and the paths that lead to parts of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeAlias

JsonPath: TypeAlias = tuple[str | int, ...]
"""Where a value is: the keys and list indexes that lead to it; ``()`` is the whole document."""

MAX_DEPTH = 64
"""Deepest nesting accepted unless said otherwise. Known cursor documents need 7; every later walk stays clear of
Python's recursion limit."""


class BadNumber(str):
    """The text of a number that JSON does not have (``NaN``) or that is out of every range."""

    __slots__ = ()


def write(value: Any, *, indent: int | None = None, sort: bool = False) -> str:
    """The JSON text of a value, with every number as exact as it was.

    Args:
        value: as ``json_scan.read_strict`` and ``json_scan.scan`` return values.
        indent: spaces a level; without it the text has no white space at all.
        sort: the keys of objects in code-point order, and one spelling for each number, so that equal values have
            equal texts.
    """
    return "".join(_pieces(value, indent, sort, "\n" if indent is not None else ""))


def value_at(value: Any, path: JsonPath) -> Any:
    """What a path leads to in a value.

    Raises:
        KeyError, IndexError: there is nothing.
    """
    for step in path:
        value = value[step]
    return value


def key_text(path: JsonPath) -> str:
    """``streams[0].state.chunks`` for ``("streams", 0, "state", "chunks")``."""
    text = ""
    for piece in path:
        if isinstance(piece, int):
            text += f"[{piece}]"
        elif re.fullmatch(r"\w+", piece):
            text += f".{piece}" if text else piece
        else:
            text += f"[{json.dumps(piece, ensure_ascii=False)}]"
    return text


def _pieces(value: Any, indent: int | None, sort: bool, line: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        inner = line + " " * (indent or 0)
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        members: list[tuple[str, Any]]
        if isinstance(value, dict):
            colon = ":" if indent is None else ": "
            items = sorted(value.items()) if sort else value.items()
            members = [(_quoted(key) + colon, member) for key, member in items]
        else:
            members = [("", member) for member in value]
        for number, (head, member) in enumerate(members):
            yield ("," if number else opening) + inner + head
            yield from _pieces(member, indent, sort, inner)
        yield line + closing
    elif isinstance(value, Decimal):
        yield one_spelling(value) if sort else plain(value)
    elif isinstance(value, str):
        yield _quoted(value)
    else:
        yield json.dumps(value)


def _quoted(text: str) -> str:
    # A lone surrogate is legal in JSON as an escape and cannot be encoded any other way.
    lone = any("\ud800" <= character <= "\udfff" for character in text)
    return json.dumps(text, ensure_ascii=lone)


def plain(number: Decimal) -> str:
    """The text of a number without an exponent, as columns of whole numbers take it; of one with more than 400 zeros,
    with it."""
    exponent = number.as_tuple().exponent
    return f"{number:f}" if isinstance(exponent, int) and abs(exponent) <= 400 else str(number)


def one_spelling(number: Decimal) -> str:
    """The text of a number that all equal numbers share."""
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text or not isinstance(exponent, int):
        return "0"
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    minus = "-" if sign else ""
    if 0 <= exponent <= 400:
        return f"{minus}{stripped}{'0' * exponent}"
    return f"{minus}{stripped}e{exponent}"
