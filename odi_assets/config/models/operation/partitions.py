"""The partitions of a node: where each begins, or which value it is, and how Dagster runs them."""

from __future__ import annotations

from datetime import MAXYEAR, date, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from odi_assets.config.diagnostics.mistakes import about, mistake, mistakes, refuse
from odi_assets.config.models.fields import Strict, Text
from odi_assets.config.models.operation.automation import TimeZone

_OF_TIMES = ("start", "end", "every", "timezone", "hour_offset", "minute_offset")
_NOT_IN_KEYS = ("...", "|", ",", "[", "]", *(chr(code) for code in range(32)))


def _key_text(value: Any) -> Any:
    """Write a YAML number, date or boolean as the text that names it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, int) else value


def _check_key(key: str) -> str:
    if sign := next((part for part in _NOT_IN_KEYS if part in key), None):
        raise refuse(key, f"has `{sign}`, which Dagster allows in no name of a partition")
    return key


def is_key(value: str) -> bool:
    """Whether a value may name a partition in Dagster."""
    return bool(value) and not any(part in value for part in _NOT_IN_KEYS)


def _listed(value: Any) -> Any:
    """``dynamic`` as no value."""
    if value == "dynamic":
        return ()
    if isinstance(value, str):
        raise refuse(value, f"is no list: write `[{value}]`, or `dynamic`, which is whichever values rows have")
    if value == []:
        raise mistake("names no partition: list the values, or write `dynamic`, which is whichever values rows have")
    return value


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    for at, value in enumerate(values):
        if value in values[:at]:
            raise mistakes([about(value, "is there twice: leave it out here", at=(at,))])
    return values


_Key = Annotated[Text, BeforeValidator(_key_text), AfterValidator(_check_key)]
_KEYS_SCHEMA = {"type": "array", "items": {"type": ["string", "integer", "boolean"], "minLength": 1}, "minItems": 1}
PartitionValues = Annotated[
    tuple[_Key, ...],
    BeforeValidator(_listed),
    AfterValidator(_once),
    WithJsonSchema({"anyOf": [{"const": "dynamic"}, _KEYS_SCHEMA]}),
]


class ValuesConfig(Strict):
    """One partition for each of some values of ``column``."""

    column: Text = Field(description="Column of texts, integers, dates or booleans.")
    values: PartitionValues = Field(
        description="The values; a row with another one stops the run. `dynamic`: whichever values rows have."
    )

    @property
    def is_dynamic(self) -> bool:
        """Whether each value that rows have is a partition."""
        return not self.values


class PartitionConfig(Strict):
    """One Dagster partition per ``every`` of ``column``, or per value of it; the table is partitioned by it too."""

    column: Text = Field(
        description="Column of the target that says to which partition a row belongs: a date or time, or the name of "
        "the partition as a text or integer."
    )
    every: Literal["hour", "day", "week", "month", "year"] = Field(
        default="day", description="Length of a partition. Weeks begin on the weekday of `start`."
    )
    start: date | None = Field(default=None, description="First day, as in 2013-01-01; of partitions of times.")
    end: date | None = Field(default=None, description="The day after the last one; open-ended without it.")
    timezone: TimeZone = Field(default="UTC", description="Time zone of the partitions: `Europe/Berlin`.")
    hour_offset: int = Field(
        default=0, ge=0, le=23, description="Hour at which days begin, and weeks, months and years on their first day."
    )
    minute_offset: int = Field(default=0, ge=0, le=59, description="Minute of the hour at which partitions begin.")
    values: PartitionValues | None = Field(
        default=None,
        description="In the place of `start`: one partition for each of these values of `column`; a row with another "
        "one stops the run. `dynamic`: for each value that rows have.",
    )
    also: ValuesConfig | None = Field(
        default=None,
        alias="and",
        description="A second column of partitions of times: one partition for each of its values and each time.",
    )
    in_dagster: bool | None = Field(
        default=None,
        description="Whether the node has partitions in Dagster; `automation.partitions` unless given. With `false`, "
        "*Materialize all* asks for none, and a part is run with the run tags `odi/from` and `odi/to`, and "
        "`odi/partition`.",
    )
    max_partitions_per_run: int | None = Field(
        default=None, ge=1, description="Partitions that one run of a backfill takes; all of them unless given."
    )

    @property
    def is_timed(self) -> bool:
        """Whether its column has partitions of times, which :meth:`first_day` begins; else each is a value."""
        return self.start is not None

    @property
    def first_day(self) -> date:
        """``start`` of partitions of times."""
        assert self.start is not None
        return self.start

    @property
    def named(self) -> ValuesConfig | None:
        """The column of which each partition is a value, if there is one."""
        if self.is_timed:
            return self.also
        return ValuesConfig.model_construct(column=self.column, values=self.values or ())

    @property
    def listed(self) -> ValuesConfig | None:
        """The column whose partitions the project file lists: rows of other values stop a run."""
        named = self.named
        return named if named is not None and named.values else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say to which partition a row belongs."""
        return tuple(self.places.values())

    @property
    def places(self) -> dict[tuple[str, ...], str]:
        """The columns, by where they are named in it."""
        second: dict[tuple[str, ...], str] = {} if self.also is None else {("and", "column"): self.also.column}
        return {("column",): self.column, **second}

    @model_validator(mode="after")
    def _is_of_times_or_values(self) -> PartitionConfig:
        if self.start is None and self.values is None:
            text = (
                "says no partitions: give `start`, of partitions of times, or `values`, as in `[eu, us]` or `dynamic`"
            )
            raise mistake(text)
        if self.values is not None:
            named = [name for name in (*_OF_TIMES, "also") if name in self.model_fields_set]
            if named:
                key = "and" if named[0] == "also" else named[0]
                text = "is for partitions of times, and `values` names others: leave one of the two out"
                raise mistake(text, at=(key,))
        if self.also is not None and self.also.column.lower() == self.column.lower():
            raise mistake("is the column of the times: name another one", at=("and", "column"))
        return self

    @model_validator(mode="after")
    def _ends_after_start(self) -> PartitionConfig:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise mistake("must be after `start`: it is the first day that is out", at=("end",))
        return self

    @model_validator(mode="after")
    def _begins_at_a_time(self) -> PartitionConfig:
        if self.every != "hour" or self.start is None:
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
