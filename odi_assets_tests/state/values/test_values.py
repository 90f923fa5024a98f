"""Typed values come back equal and of the same type: from JSON, from both backends, in another process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_assets.errors import StateError
from odi_assets.state import StateBackend, values
from odi_assets_tests.state.conftest import Reopen

BERLIN = ZoneInfo("Europe/Berlin")
ODD_OFFSET = timezone(-timedelta(hours=5, minutes=30, seconds=7, microseconds=3))
EXAMPLES: dict[str, Any] = {
    "none": None,
    "bool": True,
    "int": -7,
    "int beyond 2**63": 2**70,
    "int of 5000 digits": -(10**5000),
    "float": 1.5,
    "smallest float": 5e-324,
    "negative zero": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "decimal with scale": Decimal("12.50"),
    "decimal with exponent": Decimal("1E+3"),
    "decimal nan": Decimal("NaN"),
    "decimal -0": Decimal("-0.00"),
    "str": "it's ☃\n",
    "empty str": "",
    "str with a lone surrogate": "\ud800",
    "date": date(2013, 1, 31),
    "datetime naive": datetime(2013, 1, 1, 1, 2, 3, 4),
    "datetime utc": datetime(2013, 1, 1, tzinfo=UTC),
    "datetime fixed offset": datetime(2013, 1, 1, tzinfo=ODD_OFFSET),
    "datetime zone": datetime(2013, 7, 1, tzinfo=BERLIN),
    "datetime zone UTC": datetime(2013, 7, 1, tzinfo=ZoneInfo("UTC")),
    "datetime in the repeated hour, first": datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
    "datetime in the repeated hour, second": datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
    "datetime in the missing hour": datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN),
    "last datetime": datetime.max,
    "time": time(1, 2, 3),
    "time zone": time(1, tzinfo=BERLIN),
    "time offset": time(1, tzinfo=UTC),
    "timedelta": timedelta(days=-1, microseconds=1),
    "longest timedelta": timedelta.max,
    "bytes": b"\x00\xff",
    "uuid": UUID(int=5),
    "numpy int8": np.int8(-3),
    "numpy uint64": np.uint64(2**64 - 1),
    "numpy float16": np.float16(0.1),
    "numpy float32": np.float32(0.1),
    "numpy float64 nan": np.float64("nan"),
    "numpy longdouble": np.longdouble("0.1"),
    "numpy bool": np.bool_(True),
    "numpy str": np.str_("x"),
    "numpy bytes": np.bytes_(b"x\xff"),
    "numpy complex": np.complex128(complex(1, -0.0)),
    "numpy datetime64": np.datetime64("2013-01-01T00:00:00.123456789"),
    "numpy datetime64 month": np.datetime64("2013-01"),
    "numpy NaT": np.datetime64("NaT", "s"),
    "numpy timedelta64": np.timedelta64(5, "D"),
    "list": [1, "a", None, {"x": [1.5]}],
    "list with types": [Decimal("1.0"), (1, b"x"), math.nan],
    "tuple": (1, (2, ())),
    "dict": {"a": {"b": [True]}},
    "dict with types": {"a": datetime(2013, 1, 1, tzinfo=BERLIN), "b": 10**5000},
    "dict with odd keys": {1: "int", (1, 2): "tuple", None: date(2013, 1, 1)},
    "empty": [{}, [], ()],
}


def same(one: Any, other: Any) -> bool:
    """Equal and of the same type all the way down; NaN equals NaN, -0.0 does not equal 0.0, a zone is the same zone."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, datetime):
        return one == other and one.utcoffset() == other.utcoffset() and same_zone(one.tzinfo, other.tzinfo)
    if isinstance(one, float | np.inexact):
        return str(one) == str(other)
    return bool(one == other) or str(one) == str(other) in ("NaN", "NaT")


def same_zone(one: tzinfo | None, other: tzinfo | None) -> bool:
    return type(one) is type(other) and str(one) == str(other)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_value_comes_back_from_its_json(name: str) -> None:
    encoded = values.encode(EXAMPLES[name])
    encoded.json.encode()
    assert same(values.decode(*encoded), EXAMPLES[name])


def test_every_example_comes_back_from_a_backend(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm_batch([{"key": name, "value": value} for name, value in EXAMPLES.items()])
    found = {entry.key: entry.value for entry in reopen().list_hwms()}
    assert [name for name in EXAMPLES if not same(found[name], EXAMPLES[name])] == []
    assert same(reopen().get_hwm("decimal with scale"), Decimal("12.50"))


READ_ELSEWHERE = """
import sys
from pathlib import Path
from odi_assets_tests.state.conftest import open_backend
from odi_assets_tests.state.values.test_values import EXAMPLES, same
found = {entry.key: entry.value for entry in open_backend(sys.argv[1], Path(sys.argv[2])).list_hwms()}
print([name for name in EXAMPLES if not same(found[name], EXAMPLES[name])])
"""


def test_every_example_comes_back_in_another_process(backend: StateBackend, kind: str, tmp_path: Path) -> None:
    backend.set_hwm_batch([{"key": name, "value": value} for name, value in EXAMPLES.items()])
    command = [sys.executable, "-c", READ_ELSEWHERE, kind, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_numpy_scalar_keeps_its_scalar_type() -> None:
    assert type(values.decode(*values.encode(np.float32(0.1)))) is np.float32


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("x", '"x"'),
        (1.5, "1.5"),
        (None, "null"),
        (True, "true"),
        ({"a": [1]}, '{"a": [1]}'),
        (date(2013, 1, 31), '"2013-01-31"'),
        (datetime(2013, 1, 31, tzinfo=UTC), '"2013-01-31T00:00:00+00:00"'),
        (Decimal("1.50"), '"1.50"'),
        ([date(2013, 1, 31), (1,)], '["2013-01-31", [1]]'),
        ("☃", '"☃"'),
    ],
)
def test_the_json_is_what_a_tool_without_types_expects(value: object, text: str) -> None:
    assert values.encode(value).json == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ('"2013-01-31 00:00:00"', "2013-01-31 00:00:00"),
        ("NaN", math.nan),
        ("not json", "not json"),
        (None, None),
    ],
)
@pytest.mark.parametrize("untyped", [None, ""])
def test_json_without_a_type_reads_as_plain_json(text: str | None, value: object, untyped: str | None) -> None:
    assert same(values.decode(text, untyped), value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"x"', "int"),
        ("true", "int"),
        ("5", "str"),
        ("5", "list"),
        ('"2013-13-01"', "date"),
        ('"2013-01-01T00:00:00"', "datetime[UTC]"),
        ('"2013-01-01T00:00:00+00:00"', "datetime[No/Where]"),
        ('"1"', "no such type"),
        ("[1]", '{"list":["int","int"]}'),
        ("{", "int"),
        ("1", "numpy.array"),
        ('"tomorrow"', "timedelta"),
    ],
)
def test_json_that_does_not_fit_its_type_is_an_error_and_not_a_guess(text: str, kind: str) -> None:
    with pytest.raises(StateError, match="is not a valid"):
        values.decode(text, kind)


class Odd(int):
    """A type of the user's own."""


def circle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize("value", [object(), {1, 2}, Odd(5), np.array([1]), circle(), [object()]])
def test_what_cannot_come_back_is_refused(value: object) -> None:
    with pytest.raises(StateError, match="cannot be stored"):
        values.encode(value)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals(allow_nan=False)
    | st.text()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.timedeltas()
    | st.binary()
    | st.uuids()
    | st.times()
)
NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner), max_leaves=8
)


@given(NESTED)
def test_any_value_comes_back(value: object) -> None:
    encoded = values.encode(value)
    json.loads(encoded.json)
    assert same(values.decode(*encoded), value)
