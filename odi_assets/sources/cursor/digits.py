"""How much of its values a column keeps: digits of numbers and times, characters of texts.

A column that is given a type which keeps less rounds its values or cuts them off. A mark, a key or a row hash of before
means other rows then.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from odi_assets.util.words import counted

MOST = 2**30 - 1
"""The length of values that may have any."""
_EXACT = Context(prec=80)
_GREATEST_FLOAT = 3.4e38
_WHOLE = {"byte", "short", "integer", "long"}
_FLOAT_DIGITS = {"float": 24, "double": 53}


class Sized(str):
    """The type of a column, by a name that does not say how much of its values it keeps.

    Attributes:
        digits: see :func:`digits_of`.
    """

    digits: Sequence[int | None]

    def __new__(cls, name: str, digits: Sequence[int | None] = ()) -> Sized:
        sized = super().__new__(cls, name)
        sized.digits = digits
        return sized


def digits_of(name: Any) -> Sequence[int | None]:
    """How much a type keeps: of decimals and times, digits after the point; of floats, binary ones; of texts,
    characters. A number for a column and one for its fallback; None where that is not known, or all is kept."""
    if isinstance(name, Sized):
        return name.digits
    match = re.fullmatch(r"decimal\(\d+,(\d+)\)", name) if isinstance(name, str) else None
    return [int(match[1]) if match else _FLOAT_DIGITS.get(name) if isinstance(name, str) else None]


def loses_digits(was: str, before: int, kind: str, kept: int | None) -> bool:
    """Whether values of the kind ``was`` that kept ``before`` digits are rounded or cut off as ``kind``."""
    if was == kind:
        return kept is not None and kept < before
    return kind in ("decimal", "int") and (was == "float" or (was == "decimal" and kind == "int" and before > 0))


def looks_otherwise(then: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether values that a type of a database held may look otherwise in another one.

    Args:
        then, now: the name of the type, and how much it keeps; None if that is not known.
    """
    (before, length), (after, kept) = then, now
    if length is not None and kept is not None and (kept < length or (kept > length and after in _PADDED)):
        return True
    return before != after and not {before, after} <= _TEXTS


_TEXTS = {"text", "varchar", "tinytext", "mediumtext", "longtext"}
_PADDED = {"char", "bpchar", "nchar"}


def look_of(name: str) -> str:
    """How texts of a type's values look, in words. Types of one look give equal values equal texts."""
    digits = digits_of(name)[0]
    if name.startswith("decimal") and digits:
        return f"a number with {'digits' if digits >= MOST else counted(digits, 'digit')} after the point"
    if name.startswith("decimal") or name in _WHOLE:
        return "a whole number"
    return f"of the type {name}"


def digits_text(kind: str, digits: int) -> str:
    """How much is kept, in words."""
    unit = {"float": "binary digits", "str": "characters"}.get(kind, "digits after the point")
    return f"{'any number of' if digits >= MOST else digits} {unit}"


def rounded(value: Any, kind: str, digits: int) -> Any:
    """A value as a column that keeps fewer digits holds it, rounded half up; of a text, its beginning."""
    if isinstance(value, str):
        return value[:digits]
    if isinstance(value, datetime):
        step = 10 ** (6 - digits)
        return value + timedelta(microseconds=(value.microsecond + step // 2) // step * step - value.microsecond)
    if kind == "float":
        if abs(value) > _GREATEST_FLOAT:
            return value
        return struct.unpack("f", struct.pack("f", value))[0]
    number = Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _EXACT)
    return int(number) if kind == "int" else number
