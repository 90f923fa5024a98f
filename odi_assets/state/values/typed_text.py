"""Typed values as text that keeps their types: ``odi state get`` prints it, and ``odi state set`` takes it."""

from __future__ import annotations

import json
from typing import Any

from odi_assets.state.values import decode, encode

OF_JSON = {"null", "bool", "int", "float", "str", "list", "dict"}
"""The types that JSON alone keeps."""
_TYPED_KEYS = {"type", "value"}


def to_text(value: Any) -> str:
    """``value`` as JSON if JSON alone keeps its type, else as ``{"type": …, "value": …}``."""
    text, kind = encode(value)
    if kind in OF_JSON and not looks_typed(value) and _is_same(decode(text, None), value):
        return text
    name = kind if kind.startswith("{") else json.dumps(kind)
    return f'{{"type": {name}, "value": {text}}}'


def looks_typed(value: Any) -> bool:
    """Whether a value of JSON is one that brings its type along."""
    return isinstance(value, dict) and set(value) == _TYPED_KEYS


def _is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)
