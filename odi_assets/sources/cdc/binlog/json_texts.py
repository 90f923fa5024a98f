"""Values of MySQL's type JSON: from the binary form that the log has to the text that the server writes.

The form: https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator

from odi_assets.sources.cdc.binlog.tables import decimal_bytes
from odi_assets.sources.cdc.changes import TornLogError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL, _OPAQUE, _TEXT, _DOUBLE = 0, 1, 2, 3, 4, 15, 12, 11
_LITERALS = {0: "null", 1: "true", 2: "false"}
_WHOLE = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_INLINED = frozenset({_LITERAL, 5, 6})
_INLINED_IN_LARGE = _INLINED | {7, 8}
_DECIMAL, _DATE, _TIME, _DATETIMES = 246, 10, 11, (7, 12)
_LEAST_POINT, _MOST_POINT = -14, 15
"""Between these places of its point, a number is written without a power of ten."""


def json_text(value: bytes) -> bytes:
    """The text of a value of the log, as `CAST(value AS CHAR)` has it.

    Raises:
        TornLogError: the value is damaged, or has a part of a kind that is not known.
    """
    if not value:
        # What a statement that ignores errors stores for a missing value.
        return b"null"
    try:
        return _text(value[0], memoryview(value)[1:]).encode()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise TornLogError(f"the log has a JSON value that cannot be read: {error!r}") from error


def _text(kind: int, data: memoryview) -> str:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        return "{" + ", ".join(f"{_quoted(key)}: {text}" for key, text in _members(kind, data)) + "}"
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return "[" + ", ".join(text for _, text in _members(kind, data)) + "]"
    if kind == _LITERAL:
        return _LITERALS[data[0]]
    if kind in _WHOLE:
        return str(struct.unpack_from(_WHOLE[kind], data)[0])
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", data)[0])
    if kind == _TEXT:
        length, offset = _length(data, 0)
        return _quoted(data[offset : offset + length])
    if kind == _OPAQUE:
        length, offset = _length(data, 1)
        return _opaque(data[0], data[offset : offset + length])
    raise TornLogError(f"the log has a JSON value of kind {kind}, which is not known")


def _members(kind: int, data: memoryview) -> Iterator[tuple[memoryview, str]]:
    """The keys and the texts of an object; of an array, the keys are empty."""
    is_large, has_keys = kind in (_LARGE_OBJECT, _LARGE_ARRAY), kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    width, number = (4, "<I") if is_large else (2, "<H")
    (count,) = struct.unpack_from(number, data)
    keys = 2 * width
    values = keys + (count * (width + 2) if has_keys else 0)
    inlined = _INLINED_IN_LARGE if is_large else _INLINED
    for index in range(count):
        key = data[:0]
        if has_keys:
            at = keys + index * (width + 2)
            (start,), (length,) = struct.unpack_from(number, data, at), struct.unpack_from("<H", data, at + width)
            key = data[start : start + length]
        at = values + index * (1 + width)
        begin = at + 1 if data[at] in inlined else struct.unpack_from(number, data, at + 1)[0]
        yield key, _text(data[at], data[begin:])


def _length(data: memoryview, offset: int) -> tuple[int, int]:
    """A length, seven bits in each byte, and where it ends."""
    length, shift = 0, 0
    while True:
        byte = data[offset]
        length |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if not byte & 0x80:
            return length, offset


def _quoted(text: memoryview) -> str:
    return json.dumps(bytes(text).decode(), ensure_ascii=False)


def double_text(number: float) -> str:
    """A number with a point, as the server writes it: the shortest text that gives it back.

    >>> double_text(1.0), double_text(1e20), double_text(-1.5e-7)
    ('1.0', '1e20', '-0.00000015')
    """
    sign, digits, exponent = _shortest(number)
    point = exponent + 1
    plain = _plain(digits, point)
    scientific = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "") + f"e{exponent}"
    shown = scientific if _is_scientific(digits, point) else plain
    return sign + (shown if "." in shown or "e" in shown else f"{shown}.0")


def _shortest(number: float) -> tuple[str, str, int]:
    """The sign, the digits without zeros around them, and the power of ten of the first digit."""
    mantissa, _, exponent = f"{number!r}".partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, part = mantissa.partition(".")
    digits = (whole + part).lstrip("0")
    first = len(whole) - 1 if whole.strip("0") else -1 - (len(part) - len(part.lstrip("0")))
    first = first - (len(whole) - len(whole.lstrip("0"))) if whole.strip("0") else first
    return sign, digits.rstrip("0") or "0", (first if digits.strip("0") else 0) + int(exponent or 0)


def _plain(digits: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    return digits.ljust(point, "0") if point >= len(digits) else f"{digits[:point]}.{digits[point:]}"


def _is_scientific(digits: str, point: int) -> bool:
    """Whether the server writes a power of ten."""
    return point < _LEAST_POINT or (point > _MOST_POINT and len(digits) <= point)


def _opaque(kind: int, data: memoryview) -> str:
    """Values of SQL in a JSON value."""
    if kind == _DECIMAL:
        return _decimal(data)
    if kind in (_DATE, *_DATETIMES):
        return f'"{_moment(data, is_date=kind == _DATE)}"'
    if kind == _TIME:
        return f'"{_span(data)}"'
    return f'"base64:type{kind}:{base64.b64encode(data).decode()}"'


def _decimal(data: memoryview) -> str:
    digits, scale = data[0], data[1]
    number = bytearray(data[2 : 2 + decimal_bytes(digits, scale)])
    negative = not number[0] & 0x80
    number[0] ^= 0x80
    if negative:
        number = bytearray(byte ^ 0xFF for byte in number)
    whole, parts, offset = digits - scale, [], 0
    for width in [*([whole % 9] if whole % 9 else []), *[9] * (whole // 9)]:
        size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[width]
        parts.append(str(int.from_bytes(number[offset : offset + size], "big")).zfill(width))
        offset += size
    before, parts = "".join(parts).lstrip("0") or "0", []
    for width in [*[9] * (scale // 9), *([scale % 9] if scale % 9 else [])]:
        size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[width]
        parts.append(str(int.from_bytes(number[offset : offset + size], "big")).zfill(width))
        offset += size
    return ("-" if negative else "") + before + (f".{''.join(parts)}" if scale else "")


def _moment(data: memoryview, *, is_date: bool) -> str:
    packed = int.from_bytes(data[:8], "little", signed=True)
    micros, number = packed & 0xFFFFFF, packed >> 24
    months, day = number >> 22, number >> 17 & 31
    shown = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
    if is_date:
        return shown
    return f"{shown} {number >> 12 & 31:02d}:{number >> 6 & 63:02d}:{number & 63:02d}.{micros:06d}"


def _span(data: memoryview) -> str:
    packed = int.from_bytes(data[:8], "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    micros, number = packed & 0xFFFFFF, packed >> 24
    return f"{sign}{number >> 12 & 0x3FF:02d}:{number >> 6 & 63:02d}:{number & 63:02d}.{micros:06d}"
