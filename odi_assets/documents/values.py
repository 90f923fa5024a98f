"""The order of values of a cursor column, as far as it is known without the column's type."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NamedTuple, TypeAlias

from odi_assets.documents.moves import UNMOVED, Move, MoveWithReason, ordered

Scalar: TypeAlias = str | int | Decimal | bool | None

_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d+))? ?(Z|[+-]\d\d:?\d\d)?)?", flags=re.ASCII
)
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)", flags=re.ASCII)
_MAX_DIGITS = 4000


class _Instant(NamedTuple):
    kind: str
    seconds: datetime
    fraction: str


def kind_of(value: Any) -> str:
    """A JSON value's type in words: ``null``, ``a list`` …"""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a text", dict: "an object", list: "a list"}
    return next((name for known, name in names.items() if isinstance(value, known)), "a number")


def shown(value: Any) -> str:
    """A text as it is, as far as a message has room for it; of other values the type."""
    if not isinstance(value, str):
        return kind_of(value)
    return repr(value) if len(value) <= 40 else f"{value[:40]!r}… ({len(value)} characters)"


def is_same(old: Scalar, new: Scalar) -> bool:
    """Whether two values are equal and of one type: to Python, True equals 1."""
    return type(old) is type(new) and old == new


def compare_values(name: str, old: Scalar, new: Scalar) -> MoveWithReason:
    """How the cursor column ``name`` moved.

    Numbers are compared as numbers, without rounding. Two dates, two timestamps with a zone or two timestamps without
    one are compared as instants, to any fraction of a second. Other texts are compared by code point. If both are
    integers and their numeric order is another one, they cannot be compared, because the document does not name the
    column's type. A null is a cursor without a value yet, before every value.
    """
    if is_same(old, new):
        return UNMOVED
    what = (name, old, new)
    if old is None or new is None:
        return ordered(old is not None, new is not None, _change, what)
    if _is_number(old) and _is_number(new):
        return ordered(old, new, _change, what)
    if isinstance(old, str) and isinstance(new, str):
        return _compare_texts(name, old, new)
    return MoveWithReason(Move.INCOMPARABLE, f"{_change(*what)}: values of two types have no order")


def _change(name: str, old: Scalar, new: Scalar) -> str:
    return f"{name} {_shown(old)} → {_shown(new)}"


def distance(old: Scalar, new: Scalar) -> str | None:
    """How far a value moved, in words: a difference of numbers, or of two dates or times; None for other values."""
    if _is_number(old) and _is_number(new):
        try:
            return f"{abs(new - old):,}"  # type: ignore[operator]
        except ArithmeticError:
            return None
    before, after = (_instant(value) if isinstance(value, str) else None for value in (old, new))
    if before is None or after is None or before.kind != after.kind:
        return None
    exact = [
        instant.seconds + timedelta(microseconds=int((instant.fraction + "000000")[:6])) for instant in (before, after)
    ]
    return str(abs(exact[1] - exact[0]))


def _compare_texts(name: str, old: str, new: str) -> MoveWithReason:
    what = (name, old, new)
    before, after = _instant(old), _instant(new)
    if before and after:
        if before.kind != after.kind:
            return MoveWithReason(Move.INCOMPARABLE, f"{_change(*what)}: {before.kind} and {after.kind} have no order")
        return ordered(before, after, _change, what)
    by_text = ordered(old, new, _change, what)
    if is_integer(old) and is_integer(new) and ordered(int(old), int(new), "").move is not by_text.move:
        return MoveWithReason(Move.INCOMPARABLE, f"{_change(*what)}: as numbers and as texts these go opposite ways")
    return by_text


def is_instant(text: str) -> bool:
    """Whether a text is a date, or a timestamp."""
    return _instant(text) is not None


def _instant(text: str) -> _Instant | None:
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        seconds = datetime.fromisoformat(f"{day}T{clock or '00:00'}").replace(tzinfo=UTC)
        if zone and zone != "Z":
            seconds = seconds.replace(tzinfo=_offset(zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        # No calendar has this day or hour, so it is a text like any other.
        return None
    kind = "a date" if clock is None else "a timestamp with a zone" if zone else "a timestamp without a zone"
    return _Instant(kind, seconds, (fraction or "").rstrip("0"))


def _offset(zone: str) -> timezone:
    amount = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return timezone(-amount if zone[0] == "-" else amount)


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def is_integer(text: str) -> bool:
    """Whether a text is a whole number as JSON writes it."""
    return len(text) <= _MAX_DIGITS and _INTEGER.fullmatch(text) is not None


def _shown(value: Scalar) -> str:
    if isinstance(value, str):
        text = encode_basestring(value)
    else:
        text = str(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
