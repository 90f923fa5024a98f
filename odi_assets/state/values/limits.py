"""What state cannot hold, and numbers that JSON has no words for."""

from __future__ import annotations

import math
from typing import Any

from odi_assets.errors import StateError


def unstorable(value: Any) -> StateError:
    """The error for a value that cannot be stored."""
    kind = type(value)
    return StateError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored as state",
        fix="store a plain value: int, float, Decimal, str, bool, date, datetime, time, timedelta, bytes, UUID, None, "
        "a NumPy scalar, or lists, tuples and dicts of these",
        value_type=f"{kind.__module__}.{kind.__qualname__}",
    )


def float_to_json(value: float) -> float | str:
    """JSON has no NaN and no infinities: they become strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
