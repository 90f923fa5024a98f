"""How far a read looks back."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from odi_assets.config.models.durations import Lag, parse_duration

LAG: TypeAdapter[object] = TypeAdapter(Lag)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", timedelta(hours=2)),
        ("30m", timedelta(minutes=30)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("45s", timedelta(seconds=45)),
        ("1w", timedelta(weeks=1)),
        ("1w2d3h4m5s", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("1.5h", timedelta(minutes=90)),
        (" 1d 12h ", timedelta(hours=36)),
        ("2H", timedelta(hours=2)),
        ("0s", timedelta()),
        ("100", 100),
        ("0.10", Decimal("0.10")),
        (100, 100),
        (0.5, 0.5),
        (Decimal("7"), Decimal("7")),
        (timedelta(hours=1), timedelta(hours=1)),
    ],
)
def test_a_lag_is_a_duration_or_a_number(text: object, expected: object) -> None:
    found = LAG.validate_python(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text", ["2x", "", "h", "1h1h", "1h1d", "2 hours", "-2h", "1e3s", "٢h", "PT2H", True, None, []]
)
def test_what_is_no_lag_names_the_units(text: object) -> None:
    with pytest.raises(ValidationError, match="weeks `w`, days `d`, hours `h`, minutes `m` or seconds `s`"):
        LAG.validate_python(text)


@pytest.mark.parametrize("value", [-1, -0.5, Decimal(-1), timedelta(hours=-1), float("nan"), float("inf")])
def test_a_lag_looks_back_only(value: object) -> None:
    with pytest.raises(ValidationError, match="must be zero or more"):
        LAG.validate_python(value)


def test_a_lag_beyond_all_calendars_is_refused() -> None:
    with pytest.raises(ValidationError, match="too long"):
        LAG.validate_python("9999999999w")


@given(st.tuples(*[st.none() | st.integers(0, 999)] * 5).filter(lambda parts: any(part is not None for part in parts)))
def test_the_parts_of_a_duration_add_up(parts: tuple[int | None, ...]) -> None:
    text = "".join(f"{part}{unit}" for part, unit in zip(parts, "wdhms", strict=True) if part is not None)
    weeks, days, hours, minutes, seconds = (part or 0 for part in parts)
    expected = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    assert LAG.validate_python(text) == expected


@given(st.text())
def test_no_text_crashes_it(text: str) -> None:
    with contextlib.suppress(ValidationError):
        assert LAG.validate_python(text) is not None


@pytest.mark.parametrize(("text", "span"), [("90d", timedelta(days=90)), ("1d 12h", timedelta(hours=36))])
def test_a_time_span_is_written_with_units(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize("value", ["90", 90, "", "0d", "-1d", "soon", None, "1x9"])
def test_what_is_no_time_span_is_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError, match=r"time span|longer than zero"):
        parse_duration(value)
