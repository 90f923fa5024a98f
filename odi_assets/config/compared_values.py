"""Bounds and values of checks, as they are compared with the values of a column: exactly, whatever the column's type.

A bound is never rounded to a column's type. It is kept as it is written, and its *floor* is found: the greatest value
of the type that is not above it. ``x > bound`` is ``x > floor``. ``x < bound`` is ``x <= floor``, or ``x < floor`` if
the floor is the bound itself. So Spark compares values of one type, and nothing is widened or cut.

FLOAT and DOUBLE alone hold no exact values. A bound of such a column is rounded as the values of the column were.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_FLOOR, Context, Decimal

Scalar = bool | int | float | date | str
"""A value of the project file."""
Exact = bool | float | Decimal | datetime | str
"""What it is compared as: numbers as Decimal, or as float for FLOAT and DOUBLE; dates and times as datetime."""

_WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_FLOATS = frozenset({"float", "double"})
TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Types of dates and times."""
_TEXTS = frozenset({"string", "char", "varchar"})
NAMED_BY = frozenset({"string", "date", "boolean", *_WHOLE})
"""Types of which each value may be a partition, named as the project file and Dagster write it."""
_SQL_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?( ?(Z|[+-][0-9]{2}(:?[0-9]{2})?))?)?"
)
_SURE_DIGITS = 15
"""A decimal number of at most this many digits goes through a float and comes back the same."""
_WIDE = Context(prec=60, Emin=-999_999, Emax=999_999)
"""Holds the digits of every DECIMAL, whatever a bound has behind them."""
_TIME_FORMAT = "write a date as `2024-01-31`, or a time as `2024-01-31T12:00:00` or `2024-01-31T12:00:00+02:00`"


def sql_type(kind: str) -> str:
    """The name in SQL of a type that Delta's log calls ``kind``: ``BIGINT`` for ``long``."""
    return _SQL_NAMES.get(kind, kind.upper())


def family(kind: str) -> str:
    """What values of a type are compared with: ``number``, ``time``, ``text``, or values of the type alone."""
    base = kind.partition("(")[0]
    if base in _WHOLE or base in _FLOATS or base == "decimal":
        return "number"
    return "time" if base in TIMES else "text" if base in _TEXTS else base


def names_value(name: str, kind: str) -> bool:
    """Whether a partition of this name is a value of a column, whose type is one of :data:`NAMED_BY`.

    Example:
        >>> names_value("7", "byte"), names_value("700", "byte"), names_value("eu", "date"), names_value("eu", "string")
        (True, False, False, True)
    """
    if kind in _WHOLE:
        most = 1 << (_WHOLE[kind] - 1)
        return _INTEGER.fullmatch(name) is not None and -most <= int(name) < most
    if kind == "boolean":
        return name in ("true", "false")
    if kind == "date":
        try:
            return date.fromisoformat(name).isoformat() == name
        except ValueError:
            return False
    return True


def exact(value: Scalar, kind: str, *, ordered: bool) -> Exact:
    """A value of the project file, as it is compared with values of a column.

    Args:
        kind: the column's type as Delta's log names it, a decimal with its digits or without: ``long``,
            ``decimal(10,2)``.
        ordered: whether it is an end of a range; else it is looked for among the values of the column.

    Raises:
        ValueError: it cannot be compared with such a column; the message says what to write.

    Example:
        >>> exact("9.5", "long", ordered=True)
        Decimal('9.5')
    """
    base = kind.partition("(")[0]
    if base in _WHOLE or base == "decimal":
        return _number(value)
    if base in _FLOATS:
        return _float(value, base, ordered=ordered)
    if base in TIMES:
        return _moment(value, base)
    if base in _TEXTS:
        return _text(value, ordered=ordered)
    if base == "boolean":
        if str(value).lower() not in ("true", "false"):
            raise ValueError("write `true` or `false`")
        return str(value).lower() == "true"
    raise ValueError("values of this type are not compared with the project file's: write an `expression`")


def _number(value: Scalar) -> Decimal:
    if isinstance(value, float):
        number = Decimal(repr(value))
        if not number.is_finite():
            raise ValueError("give a number that is finite")
        if len(number.normalize().as_tuple().digits) > _SURE_DIGITS:
            raise ValueError(f"a number of more than {_SURE_DIGITS} digits is rounded when read: put it in quotes")
        return number
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return Decimal(value.strip())
    raise ValueError("give a number")


def _float(value: Scalar, base: str, *, ordered: bool) -> float:
    if isinstance(value, float) and math.isnan(value) and ordered:
        raise ValueError("NaN is no end of a range")
    number = value if isinstance(value, float) else float(_number(value))
    # A number that is too large for 32 bits is infinite in the machine's own format.
    return number if base == "double" else float(struct.unpack("f", struct.pack("f", number))[0])


def _moment(value: Scalar, base: str) -> datetime:
    if isinstance(value, str) and _TIME.fullmatch(value.strip()):
        try:
            value = datetime.fromisoformat(value.strip().replace(" Z", "Z").replace(" +", "+").replace(" -", "-"))
        except ValueError as error:
            raise ValueError(f"there is no such day or time ({error})") from None
    if not isinstance(value, date):
        raise ValueError(_TIME_FORMAT)
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    if base == "timestamp_ntz":
        if moment.tzinfo is not None:
            raise ValueError("the column's times have no zone: leave the offset out")
        return moment
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it is outside the years 1 to 9999") from None


def _text(value: Scalar, *, ordered: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and not ordered:
        return str(value)
    raise ValueError("the column holds text: put the value in quotes")


@dataclass(frozen=True)
class Floor:
    """The greatest value of a column's type that is not above a bound.

    Attributes:
        text: the value, as Spark casts it to the column's type without loss; None if all values are above the bound.
        same: whether it is the bound itself.
    """

    text: str | None
    same: bool


def floor(bound: Exact, kind: str) -> Floor:
    """The floor of a bound among the values of a type.

    Args:
        bound: as :func:`exact` gives it.
        kind: as in :func:`exact`; a decimal with its digits.

    Example:
        >>> floor(Decimal("10.005"), "decimal(10,2)")
        Floor(text='10.00', same=False)
    """
    if isinstance(bound, bool):
        return Floor(str(bound).lower(), same=True)
    if isinstance(bound, Decimal):
        return _floor_of_number(bound, kind)
    if isinstance(bound, datetime):
        if kind == "date":
            return Floor(bound.date().isoformat(), bound.time() == datetime.min.time())
        return Floor(bound.isoformat(), same=True)
    return Floor(repr(bound) if isinstance(bound, float) else bound, same=True)


def _floor_of_number(bound: Decimal, kind: str) -> Floor:
    if kind in _WHOLE:
        scale, least, most = 0, Decimal(-(2 ** (_WHOLE[kind] - 1))), Decimal(2 ** (_WHOLE[kind] - 1) - 1)
    else:
        precision, scale = (int(number) for number in kind[len("decimal(") : -1].split(","))
        most = Decimal(10**precision - 1).scaleb(-scale, _WIDE)
        least = most.copy_negate()
    if bound < least:
        return Floor(None, same=False)
    if bound > most:
        return Floor(f"{most:f}", same=False)
    rounded = bound.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _WIDE)
    return Floor(f"{rounded:f}", rounded == bound)


def is_reversed(least: Exact | None, most: Exact | None) -> bool:
    """Whether a range from ``least`` to ``most``, both made for one type, has no value."""
    return least is not None and most is not None and most < least  # type: ignore[operator]


def as_number(value: object) -> Decimal | None:
    """A number of a file's statistics as it is; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(repr(value))
