"""Partition values in one spelling, whoever wrote them: Delta's (protocol, "Partition Value Serialization").

Spark names folders after values in its own way (``12:00:00.5``, ``1.0E20``, ``0E-10``), and so do other writers their
log entries. Values are compared as text, so each text that comes in is brought into the spelling of `partition_string`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

PartitionValues = Mapping[str, str | None]
"""One partition: column name to its value as Delta writes it in the log; None is NULL."""

EXACT_FLOAT_DIGITS = 15
"""Digits of a decimal that a float surely holds: statistics of files have floats for decimals."""

INTEGERS = frozenset({"byte", "short", "integer", "long"})
"""Delta's types of whole numbers."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_EXACT = Context(prec=80)


def partition_string(value: Any) -> str | None:
    """A partition value as Delta's log writes it. The two zeros of floats are one value."""
    if value is None:
        return None
    if isinstance(value, float | Decimal) and value == 0:
        value = abs(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else str(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def same_spelling(text: str | None, kind: Any) -> str | None:
    """``text``, a value of the Delta type ``kind`` as some writer spells it, as `partition_string` does."""
    if not text or not isinstance(kind, str):
        # Protocol: an empty string means NULL, whatever the type.
        return text or None
    try:
        return partition_string(_value(text, kind))
    except (ValueError, OverflowError, InvalidOperation):
        # For example a year beyond Python's range; as it is spelled, it still names its own partition.
        return text


def same_spellings(partition: Mapping[str, str | None], kinds: Mapping[str, Any]) -> dict[str, str | None]:
    """All values of a partition in that spelling; ``kinds`` has the types of the table's columns."""
    return {name: same_spelling(text, kinds.get(name)) for name, text in partition.items()}


def _value(text: str, kind: str) -> Any:
    if kind in INTEGERS:
        return int(text)
    if kind == "double":
        return float(text)
    if kind == "float":
        return struct.unpack("f", struct.pack("f", float(text)))[0]
    if kind == "boolean":
        return text.lower() == "true"
    if kind == "date":
        return date.fromisoformat(text)
    if kind in {"timestamp", "timestamp_ntz"}:
        return datetime.fromisoformat(text)
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return Decimal(text).quantize(Decimal(1).scaleb(-int(decimal[2])), context=_EXACT)
    return text
