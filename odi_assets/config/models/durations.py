"""Time spans, and lags: how far a read looks back behind its HWM, a duration or a number as the cursor is."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, WithJsonSchema

from odi_assets.config.diagnostics.mistakes import mistake, refuse

Size = TypeVar("Size", timedelta, int, float, Decimal)

UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SPACED_PARTS = r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER})\s*{unit})?" for unit in UNITS)
_DURATION = re.compile(rf"\s*{_SPACED_PARTS}\s*", re.IGNORECASE)
_PLAIN_NUMBER = re.compile(rf"\s*{_NUMBER}\s*")

_ALLOWED = "write a number of weeks `w`, days `d`, hours `h`, minutes `m` or seconds `s`, as in `2h` or `1d12h`"
_NUMERIC = "or a plain number where the cursor is numeric"


def parse_lag(value: Any) -> timedelta | int | float | Decimal:
    """Return a lag as a duration, or as a plain number for numeric cursors.

    Args:
        value: ``"2h"``, ``"30m"``, ``"1d12h"``, ``"1.5h"``; units w, d, h, m, s, the larger first, each at most once.
            Or a number, or a number as text (as a variable gives it), in units of the cursor.

    Raises:
        PydanticCustomError: the text is no duration, or the lag is negative or not finite.
    """
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, timedelta):
        return _not_negative(value, value.total_seconds())
    if isinstance(value, int) and not isinstance(value, bool):
        return _not_negative(value, value)
    if isinstance(value, float):
        return _not_negative(value, value)
    if isinstance(value, Decimal):
        return _not_negative(value, value)
    raise mistake(f"is not a lag: {_ALLOWED}, {_NUMERIC}")


def _parse_text(text: str) -> timedelta | int | float | Decimal:
    if _PLAIN_NUMBER.fullmatch(text):
        return int(text) if text.strip().isdigit() else Decimal(text.strip())
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise refuse(text, f"is not a lag: {_ALLOWED}, {_NUMERIC}")
    try:
        parts = {UNITS[unit]: Decimal(number) for unit, number in found.groupdict().items() if number is not None}
        return sum((_duration(unit, number) for unit, number in parts.items()), timedelta())
    except (OverflowError, InvalidOperation):
        raise mistake("is too long a lag: at most 999999999 days") from None


_MICROSECONDS = {"weeks": 604_800_000_000, "days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000}


def _duration(unit: str, number: Decimal) -> timedelta:
    return timedelta(microseconds=int(number * _MICROSECONDS.get(unit, 1_000_000)))


def _not_negative(value: Size, size: float | Decimal) -> Size:
    if not math.isfinite(size) or size < 0:
        raise mistake("must be zero or more: a lag looks back")
    return value


Lag = Annotated[
    timedelta | int | float | Decimal,
    BeforeValidator(parse_lag),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"^\s*({_NUMBER}\s*[wdhmsWDHMS]\s*)+$|^\s*{_NUMBER}\s*$"},
                {"type": "number", "minimum": 0},
            ],
            "examples": ["2h", "30m", "1d12h", 1000],
        }
    ),
]
"""A lag: ``timedelta`` for time cursors, ``int | float | Decimal`` for numeric ones. Never negative."""


def parse_span(value: Any) -> timedelta:
    """Return a length of time; a plain number counts seconds.

    Raises:
        PydanticCustomError: the text is no duration, or it is negative or not finite.
    """
    lag = parse_lag(value)
    return lag if isinstance(lag, timedelta) else timedelta(seconds=float(lag))


Span = Annotated[
    timedelta,
    BeforeValidator(parse_span),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"^\s*({_NUMBER}\s*[wdhmsWDHMS]\s*)+$|^\s*{_NUMBER}\s*$"},
                {"type": "number", "minimum": 0},
            ],
            "examples": ["30s", "5m"],
        }
    ),
]
"""A length of time. Never negative."""


def parse_duration(value: Any) -> timedelta:
    """Return a time span: ``"90d"``, ``"1d12h"``; units as in :func:`parse_lag`.

    Raises:
        PydanticCustomError: it is none, or it is not longer than zero.
    """
    if isinstance(value, timedelta):
        found = value
    else:
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        span = _parse_text(value) if match is not None and any(match.groups()) else None
        if not isinstance(span, timedelta):
            raise mistake(f"is not a time span: {_ALLOWED}")
        found = span
    if found <= timedelta():
        raise mistake("must be longer than zero")
    return found


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": rf"^\s*({_NUMBER}\s*[wdhmsWDHMS]\s*)+$", "examples": ["90d", "12h"]}),
]
"""A time span longer than zero."""
