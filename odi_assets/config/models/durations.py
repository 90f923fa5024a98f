"""Time spans, and lags: how far a read looks back behind its HWM, a duration or a number as the cursor is."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from odi_assets.config.diagnostics.mistakes import mistake, refuse

_UNITS = ("weeks", "days", "hours", "minutes", "seconds")
_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile(
    r"\s*" + r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER})\s*{unit[0]})?" for unit in _UNITS) + r"\s*", re.IGNORECASE
)
_JSON_DURATION = rf"^\s*({_NUMBER}\s*[wdhmsWDHMS]\s*)+$"

_ALLOWED = "write a number of weeks `w`, days `d`, hours `h`, minutes `m` or seconds `s`, as in `2h` or `1d12h`"


def _duration(text: str) -> timedelta | None:
    """Return the duration that a text is: units w, d, h, m, s, the larger first, each at most once; None for others.

    Raises:
        PydanticCustomError: it is longer than Python's calendar.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    seconds = sum(Decimal(number) * _SECONDS[unit] for unit, number in match.groupdict().items() if number is not None)
    try:
        return timedelta(microseconds=int(seconds * 1_000_000))
    except OverflowError:
        raise mistake("is too long a lag: at most 999999999 days") from None


def parse_lag(value: Any) -> timedelta | int | float | Decimal:
    """Return a lag as a duration, or as a plain number for numeric cursors.

    Args:
        value: ``"2h"``, ``"30m"``, ``"1d12h"``, ``"1.5h"``; or a number, or a number as text (as a variable gives it),
            in units of the cursor.

    Raises:
        PydanticCustomError: the text is no duration, or the lag is negative or not finite.
    """
    message = f"is not a lag: {_ALLOWED}, or a plain number where the cursor is numeric"
    if isinstance(value, str):
        if re.fullmatch(_NUMBER, value.strip()):
            return int(value) if value.strip().isdigit() else Decimal(value.strip())
        span = _duration(value)
        if span is None:
            raise refuse(value, message)
        return span
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float | Decimal):
        raise mistake(message)
    size = value.total_seconds() if isinstance(value, timedelta) else value
    if not math.isfinite(size) or size < 0:
        raise mistake("must be zero or more: a lag looks back")
    return value


def parse_span(value: Any) -> timedelta:
    """Return a length of time; a plain number counts seconds.

    Raises:
        PydanticCustomError: the text is no duration, or it is negative or not finite.
    """
    lag = parse_lag(value)
    return lag if isinstance(lag, timedelta) else timedelta(seconds=float(lag))


def parse_duration(value: Any) -> timedelta:
    """Return a time span: ``"90d"``, ``"1d12h"``; units as in :func:`parse_lag`.

    Raises:
        PydanticCustomError: it is none, or it is not longer than zero.
    """
    duration = _duration(value) if isinstance(value, str) else value
    if not isinstance(duration, timedelta):
        raise mistake(f"is not a time span: {_ALLOWED}")
    if duration <= timedelta():
        raise mistake("must be longer than zero")
    return duration


def parse_ahead(value: Any) -> timedelta | None:
    """Return a length of time, or None for ``"none"``.

    Raises:
        PydanticCustomError: it is neither.
    """
    return None if isinstance(value, str) and value.strip().lower() == "none" else parse_span(value)


_SPAN_OR_NUMBER: list[dict[str, str | int]] = [
    {"type": "string", "pattern": rf"{_JSON_DURATION}|^\s*{_NUMBER}\s*$"},
    {"type": "number", "minimum": 0},
]

Lag = Annotated[
    timedelta | int | float | Decimal,
    BeforeValidator(parse_lag),
    WithJsonSchema({"anyOf": _SPAN_OR_NUMBER, "examples": ["2h", "30m", "1d12h", 1000]}),
]
"""A lag: ``timedelta`` for time cursors, ``int | float | Decimal`` for numeric ones. Never negative."""

Span = Annotated[
    timedelta, BeforeValidator(parse_span), WithJsonSchema({"anyOf": _SPAN_OR_NUMBER, "examples": ["30s", "5m"]})
]
"""A length of time. Never negative."""

Ahead = Annotated[
    timedelta | None,
    BeforeValidator(parse_ahead),
    WithJsonSchema({"anyOf": [*_SPAN_OR_NUMBER, {"const": "none"}], "examples": ["1d", "1h", "none"]}),
]
"""How far ahead of now; None for any distance."""

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": _JSON_DURATION, "examples": ["90d", "12h"]}),
]
"""A time span longer than zero."""
