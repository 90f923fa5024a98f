"""Python's own scalars to JSON and back: an encoder by type, and a decoder by the type's name."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from odi_assets.errors import StateError

# Python refuses to turn longer ints into decimal text (sys.set_int_max_str_digits); hexadecimal has no limit.
_DECIMAL_INT_BITS = 13_000
_MICROSECOND = timedelta(microseconds=1)
_DURATION = re.compile(r"PT(-?)(\d+)(?:\.(\d{6}))?S")

# -- out --------------------------------------------------------------------------------------------------------------


def _datetime(value: datetime) -> tuple[Any, str]:
    if value.tzinfo is None:
        return value.isoformat(), "datetime"
    offset = value.utcoffset()
    if offset is None:
        raise unstorable(value)
    return value.isoformat(), f"datetime[{_zone_name(value.tzinfo, offset)}]"


def _time(value: time) -> tuple[Any, str]:
    wall = value.replace(tzinfo=None).isoformat()
    return (wall, "time") if value.tzinfo is None else (wall, f"time[{_zone_name(value.tzinfo, value.utcoffset())}]")


def _zone_name(zone: tzinfo, offset: timedelta | None) -> str:
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    if offset is None:
        raise StateError(
            f"the time zone {zone!r} has neither a name nor a fixed offset and cannot be stored as state",
            fix="use zoneinfo.ZoneInfo or a fixed offset",
        )
    return time(tzinfo=timezone(offset)).isoformat()[8:]


def _timedelta(value: timedelta) -> tuple[Any, str]:
    micros = value // _MICROSECOND
    seconds, rest = divmod(abs(micros), 1_000_000)
    return f"PT{'-' if micros < 0 else ''}{seconds}{f'.{rest:06}' if rest else ''}S", "timedelta"


ENCODERS: dict[type, Callable[[Any], tuple[Any, str]]] = {
    type(None): lambda _: (None, "null"),
    bool: lambda value: (value, "bool"),
    int: lambda value: (value if value.bit_length() <= _DECIMAL_INT_BITS else hex(value), "int"),
    float: lambda value: (float_to_json(value), "float"),
    str: lambda value: (value, "str"),
    Decimal: lambda value: (str(value), "decimal"),
    date: lambda value: (value.isoformat(), "date"),
    datetime: _datetime,
    time: _time,
    timedelta: _timedelta,
    bytes: lambda value: (base64.b64encode(value).decode("ascii"), "bytes"),
    UUID: lambda value: (str(value), "uuid"),
}
"""By type: the JSON data of a value and the name of its type."""

# -- back -------------------------------------------------------------------------------------------------------------


def exactly(wanted: type, data: Any) -> Any:
    """``data``, if it is of this very type.

    Raises:
        ValueError: it is of another type.
    """
    if type(data) is not wanted:
        raise ValueError(f"JSON holds {type(data).__name__}")
    return data


def _int_back(data: Any, _zone: str | None) -> int:
    if isinstance(data, str) and data.removeprefix("-").startswith("0x"):
        return int(data, 16)
    return int(exactly(int, data))


def _float_back(data: Any, _zone: str | None) -> float:
    if isinstance(data, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[data]
    return float(data) if type(data) is int else float(exactly(float, data))


def _datetime_back(data: Any, zone: str | None) -> datetime:
    value = datetime.fromisoformat(data)
    if zone is None:
        return value
    offset = value.utcoffset()
    if offset is None:
        raise ValueError("it has no offset")
    wall = value.replace(tzinfo=_zone_back(zone))
    for candidate in (wall, wall.replace(fold=1)):
        if candidate.utcoffset() == offset:
            return candidate
    # The zone's rules changed since: the instant is what must not move.
    return value.astimezone(wall.tzinfo)


def _time_back(data: Any, zone: str | None) -> time:
    value = time.fromisoformat(data)
    return value if zone is None else value.replace(tzinfo=_zone_back(zone))


def _zone_back(name: str) -> tzinfo:
    if name[:1] in "+-":
        offset = datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
        if offset is None:
            raise ValueError("unknown offset")
        return offset
    return ZoneInfo(name)


def _timedelta_back(data: Any, _zone: str | None) -> timedelta:
    match = _DURATION.fullmatch(data)
    if match is None:
        raise ValueError("not a duration")
    sign, seconds, micros = match.groups()
    value = timedelta(seconds=int(seconds), microseconds=int(micros or 0))
    return -value if sign else value


DECODERS: dict[str, Callable[[Any, str | None], Any]] = {
    "null": lambda data, _: exactly(type(None), data),
    "bool": lambda data, _: exactly(bool, data),
    "int": _int_back,
    "float": _float_back,
    "str": lambda data, _: exactly(str, data),
    "decimal": lambda data, _: Decimal(exactly(str, data)),
    "date": lambda data, _: date.fromisoformat(data),
    "datetime": _datetime_back,
    "time": _time_back,
    "timedelta": _timedelta_back,
    "bytes": lambda data, _: base64.b64decode(data, validate=True),
    "uuid": lambda data, _: UUID(data),
}
"""By name of a type: the value back from its JSON data and the name of its time zone (None without one)."""


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
