"""Single values to JSON and back, each with the name of its type. See :mod:`odi_assets.state.values`."""

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
from odi_assets.state.values.limits import float_to_json, unstorable

# Python refuses to turn longer ints into decimal text (sys.set_int_max_str_digits); hexadecimal has no limit.
_DECIMAL_INT_BITS = 13_000
_MICROSECOND = timedelta(microseconds=1)
_DURATION = re.compile(r"PT(-?)(\d+)(?:\.(\d{6}))?S")


def to_json(value: Any) -> tuple[Any, str]:
    """The JSON data and type name of one value.

    Raises:
        StateError: its type cannot be stored.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if type(value).__module__ == "numpy":
        from odi_assets.state.values import numpy_scalars

        return numpy_scalars.to_json(value)
    raise unstorable(value)


def from_json(data: Any, kind: str) -> Any:
    """One value back from its JSON data and type name.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: data and type do not belong together.
    """
    name, bracket, zone = kind.partition("[")
    if name.startswith("numpy."):
        from odi_assets.state.values import numpy_scalars

        return numpy_scalars.from_json(data, kind)
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise ValueError("unknown type")
    return decoder(data, zone.removesuffix("]") if bracket else None)


# -- out --------------------------------------------------------------------------------------------------------------


def _int(value: int) -> tuple[Any, str]:
    return (value if value.bit_length() <= _DECIMAL_INT_BITS else hex(value)), "int"


def _float(value: float) -> tuple[Any, str]:
    return float_to_json(value), "float"


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


_ENCODERS: dict[type, Callable[[Any], tuple[Any, str]]] = {
    type(None): lambda _: (None, "null"),
    bool: lambda value: (value, "bool"),
    int: _int,
    float: _float,
    str: lambda value: (value, "str"),
    Decimal: lambda value: (str(value), "decimal"),
    date: lambda value: (value.isoformat(), "date"),
    datetime: _datetime,
    time: _time,
    timedelta: _timedelta,
    bytes: lambda value: (base64.b64encode(value).decode("ascii"), "bytes"),
    UUID: lambda value: (str(value), "uuid"),
}

# -- back -------------------------------------------------------------------------------------------------------------


def _exactly(wanted: type, data: Any) -> Any:
    if type(data) is not wanted:
        raise ValueError(f"JSON holds {type(data).__name__}")
    return data


def _int_back(data: Any, _zone: str | None) -> int:
    if isinstance(data, str) and data.removeprefix("-").startswith("0x"):
        return int(data, 16)
    return int(_exactly(int, data))


def _float_back(data: Any, _zone: str | None) -> float:
    if isinstance(data, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[data]
    return float(data) if type(data) is int else float(_exactly(float, data))


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
    found = _DURATION.fullmatch(data)
    if found is None:
        raise ValueError("not a duration")
    sign, seconds, micros = found.groups()
    value = timedelta(seconds=int(seconds), microseconds=int(micros or 0))
    return -value if sign else value


_DECODERS: dict[str, Callable[[Any, str | None], Any]] = {
    "null": lambda data, _: _exactly(type(None), data),
    "bool": lambda data, _: _exactly(bool, data),
    "int": _int_back,
    "float": _float_back,
    "str": lambda data, _: _exactly(str, data),
    "decimal": lambda data, _: Decimal(_exactly(str, data)),
    "date": lambda data, _: date.fromisoformat(data),
    "datetime": _datetime_back,
    "time": _time_back,
    "timedelta": _timedelta_back,
    "bytes": lambda data, _: base64.b64decode(data, validate=True),
    "uuid": lambda data, _: UUID(data),
}
