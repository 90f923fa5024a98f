"""The shape of an exported document, version 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
)
from pydantic import ValidationInfo as Info

from odi_assets.errors import StateError
from odi_assets.state.records import HwmEntry, RunRecord, RunStatus, check_environment, check_key
from odi_assets.state.values import from_json

FORMAT = "odi-state"
VERSION = 1


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a moment with its zone, as text: 2013-01-31T05:00:00+00:00")
    return value


def _accepted(check: Callable[[Any], Any], value: Any) -> Any:
    """What ``check`` makes of ``value``, its error as one that pydantic collects."""
    try:
        return check(value)
    except StateError as error:
        raise ValueError(error.message) from None


def _accepted_by(check: Callable[[Any], Any]) -> AfterValidator:
    return AfterValidator(partial(_accepted, check))


Moment = Annotated[AwareDatetime, BeforeValidator(_text)]
Whole = Annotated[StrictInt, Field(ge=0)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Revision(_StrictModel):
    """One revision of a key. ``value_type`` is null for a value that Odibi wrote; ``value`` is null in a tombstone."""

    value_type: StrictStr | None
    deleted: StrictBool
    value: Any
    revision: Whole
    updated_at: Moment
    target_commit: Whole | None = None
    run_id: StrictStr | None = None
    origin: StrictStr | None = None

    @field_validator("value")
    @classmethod
    def _of_its_type(cls, data: Any, info: Info) -> Any:
        if info.data.get("deleted"):
            if data is not None:
                raise ValueError("a deleted revision has no value: it must be null")
            return None
        return _accepted(lambda stored: from_json(stored, info.data.get("value_type")), data)

    def to_entry(self, key: str, environment: str | None) -> HwmEntry:
        same = {name: getattr(self, name) for name in Revision.model_fields}
        return HwmEntry(key=key, environment=environment, **same)


class Key(Revision):
    """A key at its present revision, and the revisions before it, oldest first."""

    key: Annotated[StrictStr, _accepted_by(check_key)]
    older: tuple[Revision, ...] = ()

    @field_validator("older")
    @classmethod
    def _in_order(cls, older: tuple[Revision, ...], info: Info) -> tuple[Revision, ...]:
        numbers = [entry.revision for entry in older] + [info.data.get("revision", float("inf"))]
        if any(number >= next_ for number, next_ in pairwise(numbers)):
            raise ValueError("must be the revisions before this one, oldest first, each number once")
        return older


class Run(_StrictModel):
    """One row of run history."""

    run_id: StrictStr
    project: StrictStr | None = None
    pipeline_name: StrictStr
    node_name: StrictStr
    status: RunStatus
    rows_processed: StrictInt | None = None
    duration_ms: StrictInt = 0
    timestamp: Moment
    metrics: dict[str, Any] = Field(default_factory=dict)
    started_at: Moment | None = None
    partition_key: StrictStr | None = None
    trigger: StrictStr | None = None
    attempt: Annotated[StrictInt, Field(ge=1)] = 1
    hwm_before: Any = None
    hwm_after: Any = None
    table_version: StrictInt | None = None
    code_version: StrictStr | None = None
    error: StrictStr | None = None

    def to_record(self, environment: str | None) -> RunRecord:
        return RunRecord(environment=environment, **{name: getattr(self, name) for name in type(self).model_fields})


class Environment(_StrictModel):
    """Keys and runs of one environment; null is the environment without a name."""

    environment: Annotated[StrictStr | None, _accepted_by(check_environment)]
    keys: tuple[Key, ...]
    runs: tuple[Run, ...] = ()

    @field_validator("keys")
    @classmethod
    def _each_once(cls, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        _require_distinct([key.key for key in keys], "key")
        return keys


class StateDocument(_StrictModel):
    """The whole document."""

    format: Literal["odi-state"]
    version: Literal[1]
    project: StrictStr | None = None
    exported_at: Moment | None = None
    environments: tuple[Environment, ...]

    @field_validator("environments")
    @classmethod
    def _each_once(cls, environments: tuple[Environment, ...]) -> tuple[Environment, ...]:
        _require_distinct([item.environment for item in environments], "environment")
        return environments


def _require_distinct(names: Sequence[str | None], what: str) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"each {what} may be there once only: {', '.join(twice)}")
