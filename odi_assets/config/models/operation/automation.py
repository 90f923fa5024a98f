"""When Dagster runs nodes by itself: schedules, sensors, conditions; and how fresh tables must be."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from odi_assets.config.diagnostics.mistakes import closest, mistake, refuse
from odi_assets.config.models.durations import Duration
from odi_assets.config.models.fields import Cron, PipelineName, Strict, Tag, Text


def _check_zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        meant = closest(name, zoneinfo.available_timezones())
        text = "is not a time zone of the IANA database, as `Europe/Oslo` is"
        raise refuse(name, text, suggestion=meant) from None
    return name


TimeZone = Annotated[Text, AfterValidator(_check_zone)]
"""A time zone by its name in the IANA database."""

_MINUTE = timedelta(minutes=1)


def _minute_or_more(span: timedelta) -> timedelta:
    if span < _MINUTE:
        raise mistake("is too short: Dagster looks at freshness in minutes, so give `1m` or more")
    return span


_Window = Annotated[Duration, AfterValidator(_minute_or_more)]


class FreshnessConfig(Strict):
    """How long a table may be without new rows."""

    within: _Window = Field(description="The table has gained rows within this time, as in `26h`; else it is stale.")
    warn_after: _Window | None = Field(
        default=None, description="After this time without new rows, shorter than `within`, Dagster shows a warning."
    )

    @model_validator(mode="after")
    def _warns_before(self) -> FreshnessConfig:
        if self.warn_after is not None and self.warn_after >= self.within:
            raise mistake("must be shorter than `within`: it warns before the table is stale", at=("warn_after",))
        return self


class NodeAutomation(Strict):
    """When Dagster requests runs of a node by itself: ``eager``, once what the node reads has changed, or at times."""

    on_cron: Cron | None = Field(default=None, description="At these times: cron, five fields. Without it: `eager`.")

    @model_validator(mode="before")
    @classmethod
    def _accept_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            word, _, schedule = data.strip().partition(" ")
            on_cron = {"on_cron": schedule.strip(" '\"")} if word == "on_cron" and schedule else None
            data = {} if data == "eager" else on_cron
        elif isinstance(data, Mapping) and data.get("on_cron") is None:
            data = None
        if data is None:
            raise mistake(
                'is no condition: write `eager`, or `on_cron` with a schedule, as in `{on_cron: "0 6 * * *"}`'
            )
        return data


class AutomationConfig(Strict):
    """How Dagster runs pipelines: how sensors look for new data, how often they request a run that does not take it in,
    and what the buttons of its UI run."""

    interval: Duration = Field(default=timedelta(seconds=30), description="Time between two looks, at least.")
    look_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long one source may take to say where it stands."
    )
    looks_at_once: int = Field(default=8, ge=1, le=64, description="Sources that are asked at the same time.")
    max_attempts: int = Field(
        default=10,
        ge=1,
        description="Runs that are requested for a node while its sources stand where they are. After that, it waits "
        "until they move or somebody runs it.",
    )
    first_pause: Duration = Field(
        default=timedelta(minutes=1), description="Pause after the first failed run; doubled after each further one."
    )
    longest_pause: Duration = Field(default=timedelta(hours=1), description="The longest pause.")
    timezone: TimeZone = Field(
        default="UTC", description="Time zone of schedules and of `on_cron`, of pipelines and jobs without one."
    )
    default_status: Literal["stopped", "running"] = Field(
        default="stopped",
        description="Whether schedules and sensors that nobody has switched on or off in Dagster's UI run.",
    )
    max_lag: Duration = Field(
        default=timedelta(hours=1),
        description="How long sources may have what a node has not read, before alerts with `on_lag` are sent.",
    )
    partitions: bool = Field(
        default=True,
        description="Whether nodes with `partition` have partitions in Dagster. Without, *Materialize all* asks for "
        "none, and a range is run with the run tags `odi/from` and `odi/to`.",
    )


class JobConfig(Strict):
    """A job of the nodes that have one of some tags, whatever their pipelines, with a schedule if it has one."""

    job: PipelineName = Field(description="Name of the job; no pipeline has it.")
    tags: tuple[Tag, ...] = Field(
        min_length=1, description="A node that has one of them, or whose pipeline has, is in the job."
    )
    description: str | None = Field(default=None, description="What it is for; shown in Dagster.")
    schedule: Cron | None = Field(default=None, description="Cron, five fields: `30 6 * * *`.")
    timezone: TimeZone | None = Field(
        default=None, description="Time zone of `schedule`; `automation.timezone` unless given."
    )
