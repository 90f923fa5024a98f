"""What stands in Debezium's messages for large values that did not change, in each of the forms that values have."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any

_GEOMETRIES = (
    "0101000020E6100000000000FC83D797C1000000FC83D797C1",
    "0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640",
)
"""Places on no map, as Debezium's PostgreSQL connector has them for geometries and geographies."""


class Placeholders:
    """Recognizes ``unavailable.value.placeholder`` of a connector.

    Args:
        text: what the connector calls it.

    Example:
        >>> [Placeholders("odi").stands_for(value) for value in ("odi", "b2Rp", ["odi"], [111, 100, 105], "other")]
        [True, True, True, True, False]
    """

    def __init__(self, text: str) -> None:
        raw = text.encode()
        encoded = base64.b64encode(raw).decode()
        digest = hashlib.md5(raw, usedforsecurity=False).digest()
        map_ = {text: text}
        self._texts = {text, encoded, raw.hex(), json.dumps(map_), json.dumps(map_, separators=(",", ":"))}
        self._nested = [[text], [encoded], [*raw], [str(uuid.UUID(bytes=digest, version=3))], map_]
        self._geometries = {base64.b64encode(bytes.fromhex(geometry)).decode() for geometry in _GEOMETRIES}

    def stands_for(self, value: Any) -> bool:
        """Whether a value of JSON stands for one that the message does not have."""
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, dict) and "wkb" in value:
            return value["wkb"] in self._geometries
        return isinstance(value, list | dict) and value in self._nested
