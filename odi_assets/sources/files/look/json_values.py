"""The first value of a file of JSON lines that its type does not hold: Spark stops there, and names neither."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odi_assets.sources.files.look.text import Fault, blocks

_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_PARTS = {"struct": dict, "map": dict, "array": list, "boolean": bool}
_NEAREST = ("float", "double")


def require_types(path: str, remote: Mapping[str, Any] | None, encoding: str, kinds: Mapping[str, str]) -> None:
    """Raises Fault for the first value at a path or URI that is of another type. Its ``kind`` is the column.

    Args:
        kinds: by column, what Spark calls its type: ``long``.
    """
    for block in blocks(path, remote, encoding):
        for number, line in enumerate(block.data.decode().split("\n")):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            for name, value in row.items() if isinstance(row, dict) else ():
                if name in kinds and not _fits(value, kinds[name]):
                    raise Fault(block.line + number, json.dumps(value, ensure_ascii=False)[:100], name)


def _fits(value: Any, kind: str) -> bool:
    if value is None:
        return True
    if kind in _BITS:
        return type(value) is int and -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]
    if kind in _NEAREST:
        return type(value) in (int, float) or value in (
            "NaN",
            "INF",
            "-INF",
            "+INF",
            "Infinity",
            "-Infinity",
            "+Infinity",
        )
    return isinstance(value, _PARTS.get(kind, object))
