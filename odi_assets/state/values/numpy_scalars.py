"""NumPy scalars to JSON and back; they come back as the scalar type they were. NumPy is imported only for them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from odi_assets.state.values.python_scalars import float_to_json, unstorable


def to_json(value: Any) -> tuple[Any, str]:
    """The JSON data and type name of a NumPy scalar.

    Raises:
        StateError: an array, a record or an object: not a scalar that can be stored.
    """
    if not isinstance(value, np.generic) or value.dtype.kind not in "biufcSUMm":
        raise unstorable(value)
    kind = value.dtype.kind
    if kind in "Mm":
        return _dates_to_json(value), f"numpy.{value.dtype.name}"
    return _plain_to_json(value, kind), f"numpy.{type(value).__name__}"


def from_json(data: Any, kind: str) -> Any:
    """A NumPy scalar back from its JSON data and type name.

    Raises:
        ValueError, TypeError: data and type do not belong together.
    """
    name = kind.removeprefix("numpy.")
    if name.startswith(("datetime64", "timedelta64")):
        return np.array(np.iinfo(np.int64).min if data == "NaT" else data).astype(np.dtype(name))[()]
    scalar = getattr(np, name)
    if not issubclass(scalar, np.generic):
        raise ValueError("unknown type")
    if issubclass(scalar, np.complexfloating):
        return scalar(complex(*(float(part) for part in data)))
    if issubclass(scalar, np.bytes_):
        return scalar(base64.b64decode(data, validate=True))
    return scalar(data)


def _plain_to_json(value: Any, kind: str) -> Any:
    if kind == "c":
        return [str(value.real), str(value.imag)]
    if kind == "S":
        return base64.b64encode(bytes(value)).decode("ascii")
    if kind == "f":
        # A long double has no Python counterpart: its own text is exact.
        return str(value) if value.dtype.itemsize > 8 else float_to_json(float(value))
    return value.item()


def _dates_to_json(value: Any) -> Any:
    if np.isnat(value):
        return "NaT"
    if value.dtype.kind == "m":
        return int(value.astype(np.int64))
    return str(value)
