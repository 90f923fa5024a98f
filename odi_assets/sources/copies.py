"""Dataclasses made of others: every field goes along, also one that is added later."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def fields_of(kind: type, item: Any) -> dict[str, Any]:
    """What an instance of the dataclass ``kind``, or of one derived from it, is made with, as ``item`` has it.

    Example:
        ``Derived(**{**fields_of(Base, base), "name": "other"})``
    """
    return {field.name: getattr(item, field.name) for field in fields(kind) if field.init}
