"""Types in Delta's JSON form, which is also Spark's."""

from __future__ import annotations

import re
from typing import Any


def plain_type(kind: Any) -> Any:
    """A type without nullability and field metadata, which do not decide whether values fit."""
    if isinstance(kind, dict):
        return {
            key: plain_type(value)
            for key, value in kind.items()
            if key not in {"nullable", "metadata", "containsNull", "valueContainsNull"}
        }
    return [plain_type(item) for item in kind] if isinstance(kind, list) else kind


def type_name(kind: Any) -> str:
    """A type in words, as Spark's DDL takes it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])}, {type_name(kind['valueType'])}>"
    fields = (f"{_ddl_name(field['name'])}: {type_name(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def _ddl_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"
