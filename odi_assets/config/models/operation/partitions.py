"""The partitions of a node: where each begins, and how Dagster runs them."""

from __future__ import annotations

from datetime import MAXYEAR, date, datetime
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import about, mistake, mistakes
from odi_assets.config.models.fields import Strict, Text
from odi_assets.config.models.operation.automation import TimeZone


class PartitionConfig(Strict):
    """One Dagster partition per ``every`` of ``column``; the table is partitioned by ``column`` too."""

    column: Text = Field(
        description="Column of the target that says to which partition a row belongs: a date or time, or the name of "
        "the partition as a text or integer."
    )
    every: Literal["hour", "day", "week", "month", "year"] = Field(
        default="day", description="Length of a partition. Weeks begin on the weekday of `start`."
    )
    start: date = Field(description="First day, as in 2013-01-01.")
    end: date | None = Field(default=None, description="The day after the last one; open-ended without it.")
    timezone: TimeZone = Field(default="UTC", description="Time zone of the partitions: `Europe/Berlin`.")
    hour_offset: int = Field(
        default=0, ge=0, le=23, description="Hour at which days begin, and weeks, months and years on their first day."
    )
    minute_offset: int = Field(default=0, ge=0, le=59, description="Minute of the hour at which partitions begin.")
    in_dagster: bool | None = Field(
        default=None,
        description="Whether the node has partitions in Dagster; `automation.partitions` unless given. With `false`, "
        "*Materialize all* asks for none, and a range is run with the run tags `odi/from` and `odi/to`.",
    )
    max_partitions_per_run: int | None = Field(
        default=None, ge=1, description="Partitions that one run of a backfill takes; all of them unless given."
    )

    @model_validator(mode="after")
    def _ends_after_start(self) -> PartitionConfig:
        if self.end is not None and self.end <= self.start:
            raise mistake("must be after `start`: it is the first day that is out", at=("end",))
        return self

    @model_validator(mode="after")
    def _begins_at_a_time(self) -> PartitionConfig:
        if self.every != "hour":
            return self
        if self.hour_offset:
            raise mistake("is the hour at which days begin, and these are hours: leave it out", at=("hour_offset",))
        zone = ZoneInfo(self.timezone)
        years = range(self.start.year, min(self.start.year + 60, MAXYEAR))
        offsets = {datetime(year, month, 1, tzinfo=zone).utcoffset() for year in years for month in range(1, 13)}
        if len({offset.seconds % 3600 for offset in offsets if offset is not None}) > 1:
            text = "changes its clock by a part of an hour, so hours do not begin alike: take days, or hours in UTC"
            raise mistakes([about(self.timezone, text, at=("timezone",))])
        return self

    @model_validator(mode="after")
    def _is_in_dagster(self) -> PartitionConfig:
        if self.in_dagster is False and self.max_partitions_per_run is not None:
            text = "is for backfills in Dagster, where `in_dagster: false` leaves this node without partitions"
            raise mistake(text, at=("max_partitions_per_run",))
        return self
