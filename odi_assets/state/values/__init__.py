"""Typed values: what is stored is JSON that any tool can read, plus the name of its Python type.

``encode`` gives both, ``decode`` takes them back to an equal value of the same type, in any process. The JSON alone
is what a tool sees that knows nothing of types: the number, the string, the ISO date.

==================  =================================  ======================================================
type                JSON                               value_type
==================  =================================  ======================================================
None, bool, int     as it is (an int of more than      ``null``, ``bool``, ``int``
                    4,000 digits: ``"0x…"``)
float               as it is; ``"NaN"``,               ``float``
                    ``"Infinity"``, ``"-Infinity"``
str                 as it is                           ``str``
Decimal             ``"12.50"``, scale kept            ``decimal``
date                ``"2013-01-31"``                   ``date``
datetime, time      ISO 8601, with offset if it has    ``datetime``, ``datetime[+01:00]``,
                    one                                ``datetime[Europe/Berlin]``; ``time`` likewise
timedelta           ``"PT-86400.000001S"``             ``timedelta``
bytes               base64                             ``bytes``
UUID                its text                           ``uuid``
NumPy scalar        as its Python counterpart          ``numpy.int64``, ``numpy.datetime64[ns]`` …
list, tuple, dict   JSON array or object; a dict with  ``list`` or ``dict`` if JSON itself keeps all types,
                    keys that are not str: pairs       else a JSON document that names each part's type
==================  =================================  ======================================================

A datetime keeps its fixed offset or its ``zoneinfo`` zone; any other ``tzinfo`` is kept as the fixed offset it had.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from odi_assets.errors import StateError
from odi_assets.state.values.python_scalars import DECODERS, ENCODERS, exactly, unstorable

_MAX_DEPTH = 64
# Types that JSON alone brings back.
_KEPT_BY_JSON = ("null", "bool", "int", "float", "str", "list", "dict")
_PLAIN_INT = 2**63
_READABLE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_ESCAPED = json.JSONEncoder(allow_nan=False)

TypeTree = str | dict[str, Any]
"""A value's type: a name, or ``{"list": [types…]}``, ``{"tuple": [types…]}``, ``{"dict": {key: type}}``,
``{"pairs": [[key type, type]…]}``."""


class Encoded(NamedTuple):
    """A value as it is stored: its JSON text and the name of its type."""

    json: str
    type: str


def encode(value: Any) -> Encoded:
    """Turn ``value`` into JSON and a type.

    Raises:
        StateError: a value of a type that cannot be stored, or nested more than 64 deep.
    """
    if type(value) is int and -_PLAIN_INT < value < _PLAIN_INT:
        return Encoded(str(value), "int")
    data, kind = to_json(value)
    return Encoded(dump(data), kind)


def to_json(value: Any) -> tuple[Any, str]:
    """Like :func:`encode`, but the JSON as Python data, for documents that hold many values."""
    data, kind = _to_json(value, 0)
    return data, kind if isinstance(kind, str) else json.dumps(kind, ensure_ascii=False, separators=(",", ":"))


def decode(text: str | None, kind: str | None) -> Any:
    """Take a value back from its JSON and type.

    Without a type (None or empty) the JSON is taken as it is, and text that is not JSON as a string: this is how
    Odibi writes and reads its values.

    Raises:
        StateError: the JSON and the type do not belong together, or the type is unknown.
    """
    if not kind:
        return _decode_untyped(text)
    if kind == "int" and text and len(text) < 19 and text[0] in "123456789" and text.isascii() and text.isdigit():
        return int(text)
    try:
        data = json.loads(text or "")
    except ValueError as error:
        raise _mismatch(text, kind, error) from error
    return from_json(data, kind)


def from_json(data: Any, kind: str | None) -> Any:
    """Like :func:`decode`, from JSON as Python data."""
    if not kind:
        return data
    try:
        return _from_json(data, json.loads(kind) if kind.startswith("{") else kind)
    except (ValueError, TypeError, KeyError, ArithmeticError, ImportError) as error:
        raise _mismatch(data, kind, error) from error


def dump(data: Any) -> str:
    """JSON text: readable characters as they are; escapes only where text could not be stored as UTF-8."""
    text = _READABLE.encode(data)
    return text if text.isascii() or is_utf8(text) else _ESCAPED.encode(data)


def _decode_untyped(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _to_json(value: Any, depth: int) -> tuple[Any, TypeTree]:
    encoder = ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    form = type(value)
    if form is not list and form is not tuple and form is not dict:
        if form.__module__ != "numpy":
            raise unstorable(value)
        from odi_assets.state.values import numpy_scalars

        return numpy_scalars.to_json(value)
    if depth >= _MAX_DEPTH:
        raise StateError(
            f"a value nested more than {_MAX_DEPTH} deep, or one that holds itself, cannot be stored as state",
            fix="store a flatter value",
        )
    if form is not dict:
        items = [_to_json(item, depth + 1) for item in value]
    elif all(type(key) is str for key in value):
        items = [_to_json(item, depth + 1) for item in value.values()]
    else:
        pairs = [(_to_json(key, depth + 1), _to_json(item, depth + 1)) for key, item in value.items()]
        data = [[key, item] for (key, _), (item, _) in pairs]
        return data, {"pairs": [[key, item] for (_, key), (_, item) in pairs]}
    parts: Any = [data for data, _ in items]
    kinds: Any = [kind for _, kind in items]
    # An int beyond 4,000 digits and a NaN are strings in JSON.
    kept = all(
        kind in _KEPT_BY_JSON and not (kind in ("int", "float") and isinstance(data, str)) for data, kind in items
    )
    if form is dict:
        parts, kinds = dict(zip(value, parts, strict=True)), dict(zip(value, kinds, strict=True))
    return parts, form.__name__ if kept and form is not tuple else {form.__name__: kinds}


def _from_json(data: Any, kind: Any) -> Any:
    if kind in ("list", "dict"):
        return exactly(list if kind == "list" else dict, data)
    if isinstance(kind, str):
        return _scalar_from_json(data, kind)
    ((form, parts),) = kind.items()
    if form == "dict":
        return {key: _from_json(data[key], part) for key, part in parts.items()}
    if form == "pairs":
        return {
            _from_json(key, key_kind): _from_json(item, item_kind)
            for (key, item), (key_kind, item_kind) in zip(data, parts, strict=True)
        }
    items = (_from_json(item, part) for item, part in zip(data, parts, strict=True))
    if form == "list":
        return list(items)
    if form == "tuple":
        return tuple(items)
    raise ValueError(f"unknown form {form!r}")


def _mismatch(data: Any, kind: str, error: Exception) -> StateError:
    shown = str(data)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return StateError(
        f"the stored value {shown} is not a valid {kind}: {error}",
        fix="another tool may have changed the value without its type: set the key again, or reset it",
        value_type=kind,
    )


def is_utf8(text: str) -> bool:
    """Whether text can be written as UTF-8: a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scalar_from_json(data: Any, kind: str) -> Any:
    """One value back from its JSON data and type name.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: data and type do not belong together.
    """
    name, bracket, zone = kind.partition("[")
    if name.startswith("numpy."):
        from odi_assets.state.values import numpy_scalars

        return numpy_scalars.from_json(data, kind)
    decoder = DECODERS.get(name)
    if decoder is None:
        raise ValueError("unknown type")
    return decoder(data, zone.removesuffix("]") if bracket else None)
