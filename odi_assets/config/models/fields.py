"""Types of single values in a project file: names, owners, schedules, schemas, functions, secrets."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    model_validator,
)

from odi_assets.config.diagnostics.mistakes import mistake, mistakes, refuse
from odi_assets.util.lazy import croniter

_NAME = "^[A-Za-z0-9_]+$"
_TAG = r"^([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}$"
_FUNCTION = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_SLOT = "^[a-z0-9_]{1,63}$"
_OWNER = r"^(team:.+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7})$"
_ADDRESS = r"^[^@\s,<>]+@[^@\s,<>]+$"

PATTERNS = {
    _NAME: "is not a name: letters A-Z a-z, digits and `_` only, because it becomes part of a Dagster asset key",
    _TAG: "is not a tag: at most 63 letters, digits, `_`, `-` and `.`, with at most one `namespace/` before them",
    _FUNCTION: "is not a function: write `module:name`, as in `transforms.flights:delays`",
    _SLOT: "is not the name of a slot: lower-case letters a-z, digits and `_` only, at most 63",
    _OWNER: "is not an owner: write an e-mail address or `team:name`",
    _ADDRESS: "is not an e-mail address",
}
"""Patterns of texts, and what to say of a text that does not match."""

RESERVED_JOB_NAMES = frozenset(keyword.kwlist) | {
    "context", "conf", "config", "meta", "arg_dict", "dict", "input_arg_dict", "output_arg_dict", "int", "str", "float",
    "bool", "input", "output", "type",
}  # fmt: skip
"""Names that Dagster gives to no job; pipelines become jobs."""

DISCRIMINATORS = ("mode", "type")
"""Keys that tell the models of a union apart."""


class Strict(BaseModel):
    """Unknown keys are mistakes; a loaded model never changes; a key without a value is a key left out."""

    IGNORED: ClassVar[frozenset[str]] = frozenset()
    """Keys of Odibi that change nothing about what a project does, and so may stay in the file."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    """Keys of Odibi 3.15.1 that are not known here, with the values that they have there unless given. A key with that
    value, or with none, changes nothing and is left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty_keys(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if unknown := cls.DEFAULTS.keys() & data.keys():
            unused = {key for key in unknown if data[key] is None or _changes_nothing(data[key], cls.DEFAULTS[key])}
            data = {key: value for key, value in data.items() if key not in unused}
        if None not in data.values():
            return data
        optional = {
            name
            for field_name, field in cls.model_fields.items()
            if not field.is_required()
            for name in (field_name, field.alias)
        }
        return {key: value for key, value in data.items() if value is not None or key not in optional}


def _changes_nothing(value: Any, default: Any) -> bool:
    if isinstance(default, Mapping) and isinstance(value, Mapping):
        return all(key in default and _changes_nothing(item, default[key]) for key, item in value.items())
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


def _check_reserved(name: str) -> str:
    if name in RESERVED_JOB_NAMES:
        raise refuse(name, "is a word that Dagster keeps for itself: give the pipeline another name")
    return name


_PLAIN_COLUMN = re.compile(
    r"\s*([a-z_]\w*)\s+(?:STRING|INT|BIGINT|SMALLINT|TINYINT|FLOAT|DOUBLE|BOOLEAN|BINARY|DATE|TIMESTAMP)\s*",
    re.ASCII | re.IGNORECASE,
)


def _check_schema(text: str) -> str:
    plain = [column and column[1].lower() for column in map(_PLAIN_COLUMN.fullmatch, text.split(","))]
    if None not in plain and len({*plain}) == len(plain):
        return text
    from odi_assets.config.models.ddl import read_schema

    for_spark, schema_mistakes = read_schema(text)
    if schema_mistakes:
        raise mistakes(schema_mistakes)
    return for_spark


_CRON_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
_CRON_HELP = "five fields, minute, hour, day of the month, month, day of the week, as in `30 6 * * *`"


# The parser in Dagster is an older croniter, and cannot be imported without Dagster. It does not know the nearest
# weekday (`15W`), and a random value (`R`) would be another one in each process.
_UNKNOWN_TO_DAGSTER = re.compile(r"(?<![^\s,])(?:\d+w|w\d+|r(?:[(/][^\s,]*)?)(?![^\s,])", re.ASCII | re.IGNORECASE)


def _check_cron(schedule: str) -> str:
    try:
        fields = [] if _UNKNOWN_TO_DAGSTER.search(schedule) else croniter.croniter.expand(schedule)[0]
    except croniter.CroniterError:
        fields = []
    if len(fields) != len(_CRON_FIELDS):
        raise mistake(f"`{schedule}` is not a schedule: {_cron_reason(schedule)}", plain=_NOT_CRON)
    if fields[3] == [2] and fields[2] in ([30], [31]):
        raise mistake(f"`{schedule}` never comes: February has no such day", plain=_NOT_CRON)
    return schedule


_NOT_CRON = f"is not a schedule: {_CRON_HELP}"


def _cron_reason(schedule: str) -> str:
    cron_fields = schedule.split()
    if len(cron_fields) != len(_CRON_FIELDS):
        return f"it has {len(cron_fields)} fields; {_CRON_HELP}"
    for position, (name, text) in enumerate(zip(_CRON_FIELDS, cron_fields, strict=True)):
        alone = ["*"] * len(_CRON_FIELDS)
        alone[position] = text
        if _UNKNOWN_TO_DAGSTER.search(text) or not croniter.croniter.is_valid(" ".join(alone)):
            return f"the {name} cannot be `{text}`"
    return _CRON_HELP


_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def _size(value: Any) -> Any:
    """Read ``1.5GB``; units are powers of 1024, as PostgreSQL's."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise mistake(f"`{value}` is no size: write a number and B, kB, MB, GB or TB, as in `1GB`")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _option_text(value: Any) -> Any:
    """Write a YAML number or boolean the way Spark's options want it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _value_text(value: Any) -> Any:
    """Write a YAML number, date or time as text: its type is the type of the column it is compared with."""
    if isinstance(value, bool):
        raise mistake("must be a number, a date, a time or a text: a value of the cursor column")
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=_NAME)]
PipelineName = Annotated[Name, AfterValidator(_check_reserved)]
Owner = Annotated[str, Field(pattern=_OWNER)]
Address = Annotated[str, Field(pattern=_ADDRESS)]
Size = Annotated[int, Field(ge=1), BeforeValidator(_size), WithJsonSchema({"type": ["string", "integer"]})]
"""A number of bytes; ``1GB`` in the project file."""
SlotName = Annotated[str, Field(pattern=_SLOT)]
Tag = Annotated[str, Field(pattern=_TAG)]
FunctionRef = Annotated[str, Field(pattern=_FUNCTION)]
SchemaDdl = Annotated[Text, AfterValidator(_check_schema)]
Cron = Annotated[Text, AfterValidator(_check_cron)]
Secret = Annotated[SecretStr, Field(min_length=1)]
Option = Annotated[str, BeforeValidator(_option_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]

ValueText = Annotated[
    str,
    BeforeValidator(_value_text),
    Field(min_length=1),
    WithJsonSchema({"type": ["string", "number"], "minLength": 1}),
]
"""A value of a column whose type is not known yet."""

Names = tuple[Text, ...]
Tags = tuple[Tag, ...]
Columns = tuple[Text, ...]
