"""Nodes and pipelines: what is read, how it is transformed, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from odi_assets.config.duration import Lag, Span
from odi_assets.config.fields import (
    Columns,
    Cron,
    FunctionRef,
    Name,
    Names,
    Option,
    Owner,
    PipelineName,
    SchemaDdl,
    Strict,
    Tags,
    Text,
    ValueText,
)
from odi_assets.config.mistake import Mistake, about, mistake, mistakes
from odi_assets.config.shorthand import fold_keys, mode_only, named_inputs, node_only


class IncrementalMode(StrEnum):
    STATEFUL = "stateful"
    ROLLING_WINDOW = "rolling_window"
    FILES = "files"
    VERSION = "version"


class Boundary(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class OnNull(StrEnum):
    RAISE = "raise"
    INCLUDE = "include"
    EXCLUDE = "exclude"


class DateFormat(StrEnum):
    ORACLE = "oracle"
    SQL_SERVER = "sql_server"
    US = "us"
    EU = "eu"
    ISO = "iso"


class OnChange(StrEnum):
    RAISE = "raise"
    RELOAD = "reload"
    IGNORE = "ignore"


_STATE_KEY = "Key of the high-water mark in the state backend; `<pipeline>.<node>` unless given."


class StatefulIncrement(Strict):
    """``HWM < column <= upper``, where upper is fixed before reading."""

    mode: Literal["stateful"]
    column: Text = Field(description="Cursor column: grows with every new or changed row.")
    fallback_column: Text | None = Field(default=None, description="Used where `column` is null.")
    initial_value: ValueText | None = Field(
        default=None,
        description="Where the first run begins, this value included; typed by the column. Without it: everything.",
    )
    boundary: Boundary = Field(
        default=Boundary.OPEN,
        description="`closed`: rows tied with the high-water mark that come later are read too, each once.",
    )
    on_null: OnNull = Field(
        default=OnNull.RAISE,
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


Increment = Annotated[
    StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement,
    Field(discriminator="mode"),
    BeforeValidator(mode_only),
]
InputIncrement = Annotated[
    StatefulIncrement | RollingWindowIncrement | VersionIncrement,
    Field(discriminator="mode"),
    BeforeValidator(mode_only),
]


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    DELTA = "delta"


class ReadConfig(Strict):
    """A source outside the pipeline."""

    connection: Text = Field(description="Name of a connection.")
    format: FileFormat = Field(description="Format of the source.")
    path: Text = Field(description="Path under the connection; may be a glob, as in `flights/*.csv`.")
    schema_ddl: SchemaDdl | None = Field(
        default=None, alias="schema", description="Columns in Spark's DDL: `id BIGINT, name STRING`."
    )
    options: dict[str, Option] = Field(default_factory=dict, repr=False, description="Spark's options of the format.")
    incremental: Increment | None = Field(default=None, description="Read only what is new; without it, everything.")


class InputConfig(Strict):
    """Another node's table, whole unless ``incremental`` is set."""

    node: Text = Field(description="`node` of this pipeline, or `pipeline.node`.")
    incremental: InputIncrement | None = Field(
        default=None, description="Take only what is new in the table; without it, everything."
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, data: Any) -> Any:
        return node_only(data)


class TransformConfig(Strict):
    """Exactly one of the three. SQL sees each input as a view under its name, and what ``read`` gives as ``df``."""

    sql: Text | None = Field(default=None, description="A Spark SQL query over the inputs' names, and `df`.")
    sql_file: Text | None = Field(default=None, description="File that holds the query, relative to the project file.")
    function: FunctionRef | None = Field(default=None, description="A Python function of DataFrames: `module:name`.")
    params: dict[str, Any] = Field(default_factory=dict, description="Arguments of the function.")

    @model_validator(mode="after")
    def _exactly_one(self) -> TransformConfig:
        given = [name for name in ("sql", "sql_file", "function") if getattr(self, name) is not None]
        if not given:
            raise mistake("has nothing to do: give one of `sql`, `sql_file` or `function`")
        if len(given) > 1:
            raise mistake(f"has `{'` and `'.join(given)}`: give one of them", at=(given[-1],))
        return self


class PartitionConfig(Strict):
    """One Dagster partition per ``every`` of ``column``; the table is partitioned by ``column`` too."""

    column: Text = Field(description="Date or timestamp column of the target.")
    every: Literal["hour", "day", "month"] = Field(default="day", description="Length of a partition.")
    start: date = Field(description="First day, as in 2013-01-01.")
    end: date | None = Field(default=None, description="The day after the last one; open-ended without it.")

    @model_validator(mode="after")
    def _ends_after_start(self) -> PartitionConfig:
        if self.end is not None and self.end <= self.start:
            raise mistake("must be after `start`: it is the first day that is out", at=("end",))
        return self


class WriteMode(StrEnum):
    APPEND = "append"
    APPEND_ONCE = "append_once"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"
    PARTITION_OVERWRITE = "partition_overwrite"


class SchemaPolicy(StrEnum):
    """What happens when the columns of a node's rows are not those of its table."""

    FAIL = "fail"
    EVOLVE = "evolve"
    IGNORE = "ignore"


class WriteConfig(Strict):
    """The node's Delta table. ``keys`` identify a row: needed by upsert and append_once."""

    connection: Text = Field(description="Name of a connection.")
    path: Text = Field(description="Folder of the table, under the connection.")
    format: Literal["delta"] = Field(default="delta", description="Tables are Delta tables.")
    mode: WriteMode = Field(default=WriteMode.OVERWRITE, description="What happens to rows that are there already.")
    keys: Columns = Field(
        default=(), description="Columns that identify a row; `merge_keys` and `options: {keys: …}` are taken too."
    )
    partition_by: Columns = Field(default=(), description="Columns that the table is partitioned by.")
    schema_policy: SchemaPolicy = Field(
        default=SchemaPolicy.FAIL,
        alias="schema",
        description="Rows with other columns than the table: `fail`, `evolve` (new columns join the table), "
        "`ignore` (new columns are left out).",
    )
    delete_when: Text | None = Field(
        default=None, description="Boolean column, of upsert: where it is true, the row with these keys is deleted."
    )
    only_if_newer: Text | None = Field(
        default=None, description="Column, of upsert: a row replaces the stored one only if its value is greater."
    )

    @model_validator(mode="before")
    @classmethod
    def _fold_keys(cls, data: Any) -> Any:
        return fold_keys(data)

    @model_validator(mode="after")
    def _check_columns(self) -> WriteConfig:
        found = [*_repeated("keys", self.keys), *_repeated("partition_by", self.partition_by)]
        if self.mode in (WriteMode.UPSERT, WriteMode.APPEND_ONCE) and not self.keys:
            found.append(Mistake(f"`{self.mode}` needs `keys`: the columns that identify a row"))
        found += self._misplaced_options()
        if found:
            raise mistakes(found)
        return self

    def _misplaced_options(self) -> list[Mistake]:
        found = []
        for name in ("delete_when", "only_if_newer"):
            column = getattr(self, name)
            if column is None:
                continue
            if self.mode is not WriteMode.UPSERT:
                found.append(Mistake(f"is for `mode: upsert`, and this node writes `{self.mode}`", at=(name,)))
            elif column.lower() in [key.lower() for key in self.keys]:
                found.append(about(column, "is one of `keys`: it cannot tell rows of one key apart", at=(name,)))
        if self.delete_when and self.delete_when.lower() in [
            *(column.lower() for column in self.partition_by),
            *([self.only_if_newer.lower()] if self.only_if_newer else []),
        ]:
            found.append(about(self.delete_when, "is a marker and is not stored", at=("delete_when",)))
        if self.mode is WriteMode.OVERWRITE and "schema_policy" in self.model_fields_set:
            found.append(Mistake("has no say in `mode: overwrite`, which replaces the columns too", at=("schema",)))
        return found


def _repeated(name: str, columns: tuple[str, ...]) -> list[Mistake]:
    lower = [column.lower() for column in columns]
    return [about(columns[i], "is there twice", at=(name, i)) for i, column in enumerate(lower) if column in lower[:i]]


class NodeConfig(Strict):
    """One step of a pipeline: read and/or inputs, then transform, then write."""

    name: Name = Field(description="Name of the node, unique in its pipeline.")
    description: str | None = Field(default=None, description="What the table holds; shown in Dagster.")
    owner: Owner | None = Field(default=None, description="E-mail address or `team:name`.")
    tags: Tags = Field(default=(), description="Tags of the asset.")
    depends_on: Names = Field(default=(), description="Nodes to run first, without reading them.")
    read: ReadConfig | None = Field(default=None, description="A source outside the pipeline; the view `df` in SQL.")
    inputs: dict[str, InputConfig] = Field(
        default_factory=dict, description="Other nodes' tables: a list of nodes, or view names and nodes."
    )
    transform: TransformConfig | None = Field(default=None, description="Without it, what is read is written.")
    partition: PartitionConfig | None = Field(default=None, description="Partitions to backfill by.")
    write: WriteConfig = Field(description="The node's table.")

    @field_validator("inputs", mode="before")
    @classmethod
    def _name_inputs(cls, value: Any) -> Any:
        return named_inputs(value)

    @field_validator("inputs")
    @classmethod
    def _check_views(cls, inputs: dict[str, InputConfig]) -> dict[str, InputConfig]:
        found = _bad_views(inputs)
        if found:
            raise mistakes(found)
        return inputs


def _bad_views(inputs: Mapping[str, InputConfig]) -> list[Mistake]:
    found: list[Mistake] = []
    seen: set[str] = set()
    for view in inputs:
        if view.lower() == "df":
            found.append(Mistake("`df` is what `read` gives: call the input something else", at=(view,)))
        elif not view.replace("_", "").isalnum() or not view.isascii():
            found.append(Mistake(f"`{view}` is not a view name: letters, digits and `_` only", at=(view,)))
        elif view.lower() in seen:
            found.append(Mistake(f"`{view}` is there twice; Spark's views know no capitals", at=(view,)))
        seen.add(view.lower())
    return found


class PipelineConfig(Strict):
    """Nodes that run together: one Dagster job, with a schedule if it has one."""

    pipeline: PipelineName = Field(description="Name of the pipeline.")
    description: str | None = Field(default=None, description="What it is for; shown in Dagster.")
    owner: Owner | None = Field(default=None, description="E-mail address or `team:name`, of nodes without one.")
    schedule: Cron | None = Field(default=None, description="Cron, five fields: `30 6 * * *`.")
    tags: Tags = Field(default=(), description="Tags of the job.")
    nodes: tuple[NodeConfig, ...] = Field(min_length=1, description="The steps.")
