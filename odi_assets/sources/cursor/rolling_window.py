"""Rolling windows: the last days, counted back in UTC by the calendar."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta

from odi_assets.config.models import RollingWindowIncrement
from odi_assets.sources.cursor.window import Window

_FIXED = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}


def rolling_window(increment: RollingWindowIncrement, now: datetime | None = None) -> Window:
    """``column >= now − lookback``. Months and years go by the calendar: a month before 31 March is 28 February."""
    now = (now or datetime.now(UTC)).astimezone(UTC)
    return Window(increment.column, lower=_back(now, increment.lookback, increment.unit), lower_inclusive=True)


def _back(now: datetime, lookback: int, unit: str) -> datetime:
    if unit in _FIXED:
        return now - lookback * _FIXED[unit]
    months = now.year * 12 + now.month - 1 - lookback * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    day = min(now.day, calendar.monthrange(year, month + 1)[1])
    return now.replace(year=year, month=month + 1, day=day)
