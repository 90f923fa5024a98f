"""Rolling windows go by the calendar, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from odi_assets.config.models import RollingWindowIncrement
from odi_assets.sources.cursor.rolling_window import rolling_window


@pytest.mark.parametrize(
    ("lookback", "unit", "now", "lower"),
    [
        (3, "day", "2024-03-01T05:00:00", "2024-02-27T05:00:00"),
        (1, "month", "2023-03-31T05:00:00", "2023-02-28T05:00:00"),
        (13, "month", "2024-01-15T00:00:00", "2022-12-15T00:00:00"),
        (1, "year", "2024-02-29T00:00:00", "2023-02-28T00:00:00"),
        (90, "minute", "2024-01-01T00:30:00", "2023-12-31T23:00:00"),
        (2, "week", "2024-01-01T00:00:00", "2023-12-18T00:00:00"),
    ],
)
def test_the_lower_bound_is_so_many_units_back(lookback: int, unit: str, now: str, lower: str) -> None:
    increment = RollingWindowIncrement(mode="rolling_window", column="at", lookback=lookback, unit=unit)
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert rolling_window(increment, moment).lower == datetime.fromisoformat(lower).replace(tzinfo=UTC)


def test_the_clock_of_another_zone_makes_no_difference() -> None:
    increment = RollingWindowIncrement(mode="rolling_window", column="at", lookback=1, unit="day")
    here = datetime(2024, 3, 31, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert rolling_window(increment, here).lower == datetime(2024, 3, 29, 23, 30, tzinfo=UTC)
