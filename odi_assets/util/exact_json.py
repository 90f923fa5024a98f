"""JSON as documents of state need it: numbers exact, every fault found, every value with its place in the text."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

JsonPath: TypeAlias = tuple[str | int, ...]
"""Where a value is: the keys and list indexes that lead to it; ``()`` is the whole document."""

MAX_DEPTH = 64
"""Deepest nesting accepted unless said otherwise. Known cursor documents need 7; every later walk stays clear of
Python's recursion limit."""

MAX_DIGITS = 4000
"""Most digits of one integer: Python refuses to convert more than 4300."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class JsonSyntaxError(ValueError):
    """The text is not JSON. ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class RepeatedKeys(dict[str, Any]):
    """An object that names a key twice; readers disagree on which value counts."""

    repeated: tuple[str, ...] = ()


class BadNumber(str):
    """The text of a number that JSON does not have (``NaN``) or that is out of every range."""

    __slots__ = ()


def read(text: str, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value of a JSON text: integers as ``int``, other numbers as ``Decimal``, nothing rounded.

    Repeated keys and impossible numbers do not stop the reading: :func:`faults` finds them, all at once.

    Raises:
        JsonSyntaxError: the text is not JSON, or is nested more than ``max_depth`` levels deep.
    """
    try:
        value = json.loads(
            text, parse_int=_integer, parse_float=_decimal, parse_constant=BadNumber, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(error.msg, error.lineno, error.colno) from error
    except RecursionError as error:
        raise _too_deep(text, max_depth) from error
    if any(len(path) > max_depth for path, _ in _members(value, max_depth)):
        raise _too_deep(text, max_depth)
    return value


def faults(value: Any) -> Iterator[tuple[JsonPath, str, str]]:
    """What is wrong with a value of :func:`read` whatever it means: the place, the fault and the remedy."""
    for path, current in _members(value, sys.maxsize):
        if isinstance(current, BadNumber):
            yield path, f"{_shortened(current)} is not a number that can be kept exactly", "write one that can"
        elif isinstance(current, RepeatedKeys):
            for key in current.repeated:
                yield (*path, key), f"the key `{key}` is given more than once", "keep the right one"


def places(text: str) -> Mapping[JsonPath, tuple[int, int]]:
    """Line and column, counted from 1, of every value of a text that :func:`read` accepts."""
    found: dict[JsonPath, tuple[int, int]] = {}
    path: list[str | int] = []
    key_comes_next = False
    line, line_start, scanned = 1, 0, 0
    for match in _TOKEN.finditer(text):
        token, start = match[0], match.start()
        breaks = text.count("\n", scanned, start)
        if breaks:
            line, line_start = line + breaks, text.rfind("\n", 0, start) + 1
        scanned = start
        if token == ",":
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
            else:
                key_comes_next = True
        elif token == ":":
            key_comes_next = False
        elif token in ("}", "]"):
            path.pop()
            key_comes_next = False
        elif key_comes_next:
            path[-1] = json.loads(token, strict=False)
        else:
            found[tuple(path)] = (line, start - line_start + 1)
            if token in ("{", "["):
                path.append("" if token == "{" else 0)
                key_comes_next = token == "{"
    return found


def write(value: Any, *, indent: int | None = None, sort: bool = False) -> str:
    """The JSON text of a value of :func:`read`, with every number as exact as it was.

    Args:
        value: what :func:`read` returned.
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


def _members(value: Any, max_depth: int) -> Iterator[tuple[JsonPath, Any]]:
    """Every value in a value, itself first; those too deep are named but not entered."""
    pending: list[tuple[JsonPath, Any]] = [((), value)]
    while pending:
        path, current = pending.pop()
        yield path, current
        if len(path) <= max_depth and isinstance(current, dict | list):
            members = current.items() if isinstance(current, dict) else enumerate(current)
            pending.extend(((*path, key), member) for key, member in members)


def _too_deep(text: str, max_depth: int) -> JsonSyntaxError:
    depth = start = 0
    for match in _TOKEN.finditer(text):
        start = match.start()
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if depth > max_depth:
            break
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return JsonSyntaxError(f"nested more than {max_depth} levels deep", line, column)


def _integer(digits: str) -> int | BadNumber:
    return int(digits) if len(digits) <= MAX_DIGITS else BadNumber(digits)


def _decimal(digits: str) -> Decimal | BadNumber:
    try:
        return Decimal(digits)
    except InvalidOperation:
        return BadNumber(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    names = [name for name, _ in pairs]
    marked = RepeatedKeys(plain)
    marked.repeated = tuple(name for name in plain if names.count(name) > 1)
    return marked


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
        yield one_spelling(value) if sort else str(value)
    elif isinstance(value, str):
        yield _quoted(value)
    else:
        yield json.dumps(value)


def _quoted(text: str) -> str:
    # A lone surrogate is legal in JSON as an escape and cannot be encoded any other way.
    lone = any("\ud800" <= character <= "\udfff" for character in text)
    return json.dumps(text, ensure_ascii=lone)


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


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}… ({len(text)} characters)"
