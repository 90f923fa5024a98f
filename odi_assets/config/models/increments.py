"""Increments: how a node goes on from what it read before."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from odi_assets.config.models.durations import Lag, Span
from odi_assets.config.models.fields import Strict, Text, ValueText

Boundary = Literal["open", "closed"]
OnNull = Literal["raise", "include", "exclude"]
DateFormat = Literal["oracle", "sql_server", "us", "eu", "iso"]
OnChange = Literal["raise", "reload", "ignore"]

_STATE_KEY = "Key of the high-water mark in the state backend; `<pipeline>.<node>` unless given."


class StatefulIncrement(Strict):
    """``HWM < column <= upper``, where upper is fixed before reading."""

    DEFAULTS: ClassVar = {"lookback": None, "unit": None}

    mode: Literal["stateful"]
    column: Text = Field(description="Cursor column: grows with every new or changed row.")
    fallback_column: Text | None = Field(default=None, description="Used where `column` is null.")
    initial_value: ValueText | None = Field(
        default=None,
        description="Where the first run begins, this value included; typed by the column. Without it: everything.",
    )
    boundary: Boundary = Field(
        default="open",
        description="`closed`: rows tied with the high-water mark that come later are read too, each once.",
    )
    on_null: OnNull = Field(
        default="raise",
        description="Rows without a cursor: stop the run, load each once (`include`), or drop and count (`exclude`).",
    )
    date_format: DateFormat | None = Field(
        default=None, description="How dates are written in a text column; they are compared as dates, in UTC."
    )
    state_key: Text | None = Field(default=None, description=_STATE_KEY)
    watermark_lag: Lag | None = Field(
        default=None, description="How far behind the high-water mark to read again, for rows that come late: `2h`."
    )


class RollingWindowIncrement(Strict):
    """The last ``lookback`` units of ``column``, counted back from now in UTC; keeps no HWM."""

    DEFAULTS: ClassVar = {"fallback_column": None, "state_key": None, "watermark_lag": None, "date_format": None}

    mode: Literal["rolling_window"]
    column: Text = Field(description="Date or timestamp column.")
    lookback: int = Field(gt=0, description="Length of the window, in units.")
    unit: Literal["minute", "hour", "day", "week", "month", "year"] = Field(
        default="day", description="Unit of the window."
    )


class FilesIncrement(Strict):
    """Files that were not loaded yet, whatever their time of change."""

    mode: Literal["files"]
    settle: Span = Field(
        default=timedelta(0), description="Files that changed less than this ago are left for a later run: `30s`."
    )
    on_change: OnChange | None = Field(
        default=None,
        description="Files rewritten after they were loaded: stop the run (the rule with `append`), load them again "
        "(the rule otherwise), or leave what was loaded.",
    )
    state_key: Text | None = Field(default=None, description=_STATE_KEY)


class VersionIncrement(Strict):
    """Rows that an upstream Delta table gained in commits after the last one read."""

    mode: Literal["version"]
    state_key: Text | None = Field(default=None, description=_STATE_KEY)


CursorIncrement = StatefulIncrement | RollingWindowIncrement
"""Increments that follow a cursor column."""

_SHORT_FORM = BeforeValidator(lambda value: {"mode": value} if isinstance(value, str) else value)
"""``version`` is short for ``{mode: version}``."""

Increment = Annotated[
    StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement,
    Field(discriminator="mode"),
    _SHORT_FORM,
]
InputIncrement = Annotated[
    StatefulIncrement | RollingWindowIncrement | VersionIncrement,
    Field(discriminator="mode"),
    _SHORT_FORM,
]
