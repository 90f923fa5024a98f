"""The columns of Debezium's rows: the types that the change log names, and the texts of their values.

The log names types as PostgreSQL does, and has values as PostgreSQL writes them, whatever database Debezium reads.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

Text = Callable[[Any], str]
_US_OF_DAY = 86_400_000_000
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since 1970 of what Python's dates hold."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_NUMERIC = re.compile(r"(?:numeric|decimal)\((\d+)(?:, *(-?\d+))?\)", re.IGNORECASE)
_ENCODED = re.compile(r"Decimal\((\d+), *(-?\d+)\)")


class Raw(str):
    """A number of JSON with a fraction, as it is written there: a double would lose digits."""

    __slots__ = ()


@dataclass(frozen=True)
class EnvelopeColumn:
    """How values of a column are read.

    Attributes:
        type: its type in the change log.
        text: a value → its text there. Raises ValueError, TypeError, KeyError or OverflowError for other values.
    """

    type: str
    text: Text


def plain(value: Any) -> str:
    """A value of JSON as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else nested(value)


def nested(value: Any) -> str:
    """A value of JSON, with all that it holds, as JSON."""
    return value if type(value) is str else json.dumps(_numbers(value), ensure_ascii=False)


def _numbers(value: Any) -> Any:
    if isinstance(value, Raw):
        return float(value)
    if isinstance(value, dict):
        return {name: _numbers(member) for name, member in value.items()}
    return [_numbers(entry) for entry in value] if isinstance(value, list) else value


def _whole(value: Any) -> str:
    return str(_int(value))


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("is no whole number")
    return value


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError("is no number")
    return str(value)


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError("is no boolean")
    return "t" if value else "f"


def _decoded(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("is not written in base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not written in base64 ({error})") from error


def _bytes(value: Any) -> str:
    return f"\\x{_decoded(value).hex()}"


def _unscaled(value: Any, scale: int) -> str:
    digits = int.from_bytes(_decoded(value), "big", signed=True)
    if scale <= 0:
        return str(digits * 10**-scale)
    text = str(abs(digits)).rjust(scale + 1, "0")
    return f"{'-' if digits < 0 else ''}{text[:-scale]}.{text[-scale:]}"


def _scaled(value: Any) -> str:
    if not isinstance(value, dict):
        return _number(value)
    return _unscaled(value["value"], _int(value["scale"]))


def _decimal(scale: int) -> Text:
    def text(value: Any) -> str:
        # `decimal.format: NUMERIC` of Kafka's converter writes a number.
        return _unscaled(value, scale) if type(value) is str else _number(value)

    return text


def _bits(length: int | None) -> Text:
    def text(value: Any) -> str:
        decoded = _decoded(value)
        # The first byte has the last bits.
        written = format(int.from_bytes(decoded, "little"), "b")
        return written.rjust(8 * len(decoded) if length is None else length, "0")

    return text


def _day(value: Any) -> str:
    days = _int(value)
    at = days * _US_OF_DAY
    return (date(1970, 1, 1) + timedelta(days)).isoformat() if _FIRST <= at <= _LAST else f"{days} days since 1970"


def _fraction(nanoseconds: int) -> str:
    digits = f"{nanoseconds:09d}".rstrip("0")
    return f".{digits}" if digits else ""


def _moment(per_second: int) -> Text:
    def text(value: Any) -> str:
        seconds, rest = divmod(_int(value), per_second)
        if not _FIRST <= seconds * 1_000_000 <= _LAST:
            return f"{value}/{per_second} s since 1970"
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + _fraction(rest * (1_000_000_000 // per_second))

    return text


def _time(per_second: int) -> Text:
    def text(value: Any) -> str:
        seconds, rest = divmod(_int(value), per_second)
        hours, left = divmod(seconds, 3600)
        shown = f"{hours:02d}:{left // 60:02d}:{left % 60:02d}"
        return shown + _fraction(rest * (1_000_000_000 // per_second))

    return text


def _iso(value: Any) -> str:
    """A date or a time without a zone; Debezium writes them with a `Z`."""
    if not isinstance(value, str):
        raise TypeError("is no text")
    return value.removesuffix("Z").replace("T", " ")


def _instant(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("is no text")
    return re.sub(r"Z$", "+00", value.replace("T", " "))


_MOMENT, _CLOCK = "timestamp without time zone", "time without time zone"
_BASIC: Mapping[str, EnvelopeColumn] = {
    "int8": EnvelopeColumn("smallint", _whole),
    "int16": EnvelopeColumn("smallint", _whole),
    "int32": EnvelopeColumn("integer", _whole),
    "int64": EnvelopeColumn("bigint", _whole),
    "float": EnvelopeColumn("real", _number),
    "float32": EnvelopeColumn("real", _number),
    "double": EnvelopeColumn("double precision", _number),
    "float64": EnvelopeColumn("double precision", _number),
    "boolean": EnvelopeColumn("boolean", _boolean),
    "string": EnvelopeColumn("text", plain),
    "bytes": EnvelopeColumn("bytea", _bytes),
    **dict.fromkeys(("struct", "array", "map"), EnvelopeColumn("json", nested)),
}
"""By the types of Kafka Connect."""
_NAMED: Mapping[str, EnvelopeColumn] = {
    "io.debezium.time.Date": EnvelopeColumn("date", _day),
    "io.debezium.time.Timestamp": EnvelopeColumn(_MOMENT, _moment(1_000)),
    "io.debezium.time.MicroTimestamp": EnvelopeColumn(_MOMENT, _moment(1_000_000)),
    "io.debezium.time.NanoTimestamp": EnvelopeColumn(_MOMENT, _moment(1_000_000_000)),
    "io.debezium.time.ZonedTimestamp": EnvelopeColumn("timestamp with time zone", _instant),
    "io.debezium.time.Time": EnvelopeColumn(_CLOCK, _time(1_000)),
    "io.debezium.time.MicroTime": EnvelopeColumn(_CLOCK, _time(1_000_000)),
    "io.debezium.time.NanoTime": EnvelopeColumn(_CLOCK, _time(1_000_000_000)),
    "io.debezium.time.ZonedTime": EnvelopeColumn("time with time zone", _instant),
    "io.debezium.time.IsoDate": EnvelopeColumn("date", _iso),
    "io.debezium.time.IsoTimestamp": EnvelopeColumn(_MOMENT, _iso),
    "io.debezium.time.IsoTime": EnvelopeColumn(_CLOCK, _iso),
    "org.apache.kafka.connect.data.Date": EnvelopeColumn("date", _day),
    "org.apache.kafka.connect.data.Timestamp": EnvelopeColumn(_MOMENT, _moment(1_000)),
    "org.apache.kafka.connect.data.Time": EnvelopeColumn(_CLOCK, _time(1_000)),
    "io.debezium.data.VariableScaleDecimal": EnvelopeColumn("numeric", _scaled),
    "io.debezium.data.Bits": EnvelopeColumn("bit varying", _bits(None)),
    "io.debezium.data.Json": EnvelopeColumn("json", plain),
    "io.debezium.data.Uuid": EnvelopeColumn("uuid", plain),
    "io.debezium.data.Xml": EnvelopeColumn("xml", plain),
}
_BY_SHORT_NAME = {name.rpartition(".")[2]: column for name, column in reversed([*_NAMED.items()])}
_OF_POSTGRES = {
    "smallint": _BASIC["int16"],
    "integer": _BASIC["int32"],
    "bigint": _BASIC["int64"],
    "real": _BASIC["float"],
    "double precision": _BASIC["double"],
    "text": _BASIC["string"],
    "json": EnvelopeColumn("json", nested),
}
UNTYPED = EnvelopeColumn("text", plain)
"""A column of which nobody said the type."""
NAMES = (*_OF_POSTGRES, "numeric(10,2)", "boolean", "bytes", *_BY_SHORT_NAME, "Decimal(10,2)")
"""What :func:`named` knows."""


def _numeric(digits: int, scale: int, text: Text) -> EnvelopeColumn:
    return EnvelopeColumn(f"numeric({digits},{scale})", text)


def named(name: str) -> EnvelopeColumn:
    """The column of a type as the project file names it: by its encoding, as the schema of an envelope has it
    (`MicroTimestamp`, `Decimal(10,2)`), or as PostgreSQL does (`integer`, `numeric(10,2)`).

    Raises:
        ValueError: there is none.

    Example:
        >>> named("MicroTimestamp").text(1_700_000_000_500_000)
        '2023-11-14 22:13:20.5'
    """
    column = _BY_SHORT_NAME.get(name) or _NAMED.get(name) or _OF_POSTGRES.get(name) or _BASIC.get(name)
    if column is not None:
        return column
    if numeric := _NUMERIC.fullmatch(name) if not name.startswith("Decimal") else None:
        return _numeric(int(numeric[1]), int(numeric[2] or 0), _number)
    if encoded := _ENCODED.fullmatch(name):
        return _numeric(int(encoded[1]), int(encoded[2]), _decimal(int(encoded[2])))
    raise ValueError(f"`{name}` is no type: name one of {', '.join(NAMES)}")


def of_schema(schema: Mapping[str, Any]) -> EnvelopeColumn:
    """The column that the schema of an envelope describes.

    Raises:
        KeyError, ValueError, TypeError: it is no schema of a field.
    """
    name, kind = str(schema.get("name")), str(schema["type"])
    parameters = schema.get("parameters") or {}
    if name == _DECIMAL:
        scale = int(parameters["scale"])
        digits = int(parameters.get("connect.decimal.precision", 38))
        return _numeric(digits, scale, _decimal(scale))
    if name == "io.debezium.data.Bits" and "length" in parameters:
        return EnvelopeColumn(f"bit({int(parameters['length'])})", _bits(int(parameters["length"])))
    if name in _NAMED:
        return _NAMED[name]
    source = str(parameters.get("__debezium.source.column.type", "")).upper()
    digits = int(parameters.get("__debezium.source.column.length") or 0)
    if source in ("NUMERIC", "DECIMAL") and kind in ("string", "double") and 0 < digits <= 1000:
        return _numeric(digits, int(parameters.get("__debezium.source.column.scale") or 0), _number)
    return _BASIC[kind]
