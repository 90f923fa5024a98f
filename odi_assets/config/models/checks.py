"""What a node's rows must be: the checks of an increment before its commit, and of a table where somebody asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistake, mistakes, one_of
from odi_assets.config.models.durations import Duration
from odi_assets.config.models.fields import Name, Strict, Text

Severity = Literal["error", "warn"]
"""``error`` stops an increment that fails the check; ``warn`` says so, and the increment is committed."""


def _single(value: Any) -> Any:
    if value is None:
        raise mistake("is NULL, which is accepted anyway: leave it out")
    if not isinstance(value, bool | int | float | date | str):
        raise mistake("must be text, a number, a date, `true` or `false`")
    return value


Scalar = Annotated[
    bool | int | float | datetime | date | str,
    PlainValidator(_single, json_schema_input_type=bool | int | float | str),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
"""A value in the file; :mod:`odi_assets.config.compared_values` says how it is compared with values of a column."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_COLUMNS_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ]
}
OneOrMoreColumns = Annotated[
    tuple[Text, ...], BeforeValidator(_listed), Field(min_length=1), WithJsonSchema(_COLUMNS_SCHEMA)
]
"""A column, or a list of columns."""

TAKEN_NAMES = frozenset({"result", "up_to_date", "late_rows", "unmatched_rows"})
"""Names of a node's outputs and of checks that a node has of itself."""
FAILED_CHECKS = "failed_checks"
"""The column of a quarantine that names the checks which a row fails."""
_SIGNS = (("<=>", "eq"), ("<>", "ne"), ("!=", "ne"), (">=", "ge"), ("<=", "le"), ("=", "eq"), (">", "gt"), ("<", "lt"))
_LONGEST_NAME = 60


class AcceptedValues(Strict):
    """The values that a column may have."""

    column: Text = Field(description="Column whose values are looked at; NULL is accepted.")
    values: tuple[Scalar, ...] = Field(min_length=1, description="The values that it may have.")


class ValueRange(Strict):
    """The least and the greatest value of a column."""

    column: Text = Field(description="Column whose values are looked at; NULL is accepted.")
    min: Scalar | None = Field(default=None, description="The least value, itself included.")
    max: Scalar | None = Field(default=None, description="The greatest value, itself included.")

    @model_validator(mode="after")
    def _has_an_end(self) -> ValueRange:
        if self.min is None and self.max is None:
            raise mistake("has no end: give `min`, `max` or both")
        if _is_plain(self.min) and _is_plain(self.max) and self.max < self.min:  # type: ignore[operator]
            raise mistakes([about(self.max, f"is less than `min`, which is {self.min}", at=("max",))])
        return self


def _is_plain(value: Any) -> bool:
    """Whether it is a number in every comparison; a text may be anything."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class RowCount(Strict):
    """How many rows an increment has; of a table, how many rows the table has."""

    min: int | None = Field(default=None, ge=0, description="At least this many rows.")
    max: int | None = Field(default=None, ge=0, description="At most this many rows.")

    @model_validator(mode="after")
    def _has_an_end(self) -> RowCount:
        if self.min is None and self.max is None:
            raise mistake("has no end: give `min`, `max` or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise mistakes([about(self.max, f"is less than `min`, which is {self.min}", at=("max",))])
        return self


class Reference(Strict):
    """A foreign key: each value of a column is in a column of another node's table."""

    column: Text = Field(description="Column whose values are looked up; NULL is accepted.")
    node: Text = Field(description="The other node: `node` of this pipeline, or `pipeline.node`. It runs first.")
    key: Text | None = Field(default=None, description="Column of the other node's table; by default, the same name.")


class Freshness(Strict):
    """How old the newest row may be."""

    column: Text = Field(description="Column of times or dates.")
    within: Duration = Field(description="The newest value is at most this long ago, as in `26h`.")
    _written: str = PrivateAttr(default="")

    @model_validator(mode="wrap")
    @classmethod
    def _keep_the_words(cls, data: Any, handler: ModelWrapValidatorHandler[Freshness]) -> Freshness:
        made = handler(data)
        if isinstance(data, Mapping):
            made._written = str(data.get("within"))
        return made

    @property
    def within_text(self) -> str:
        """The time span as the file has it."""
        return self._written or str(self.within)


KINDS = (
    "not_null", "unique", "accepted_values", "range", "row_count", "expression", "sql", "references", "freshness",
)  # fmt: skip
"""The keys of a check that say what is checked."""
BY_ROW = frozenset({"not_null", "unique", "accepted_values", "range", "expression", "references"})
"""Kinds of which one can say which rows fail."""


class CheckConfig(Strict):
    """One check: exactly one kind, and how severe it is."""

    not_null: OneOrMoreColumns | None = Field(default=None, description="Columns without NULL; a check for each.")
    unique: OneOrMoreColumns | None = Field(
        default=None, description="Columns whose values, taken together, come once. Rows with a NULL are not compared."
    )
    accepted_values: AcceptedValues | None = Field(default=None, description="Values that a column may have.")
    range: ValueRange | None = Field(default=None, description="The least and the greatest value of a column.")
    row_count: RowCount | None = Field(default=None, description="How many rows there are.")
    expression: Text | None = Field(
        default=None, description="A condition in Spark SQL that no row makes false, as in `amount >= fee`."
    )
    sql: Text | None = Field(
        default=None, description="A query over the view `df` that gives the rows that are wrong, and else none."
    )
    references: Reference | None = Field(default=None, description="A foreign key into another node's table.")
    freshness: Freshness | None = Field(default=None, description="How old the newest value of a column may be.")
    severity: Severity = Field(
        default="error", description="`error` stops the increment; `warn` says so and lets it through."
    )
    name: Name | None = Field(default=None, description="Name of the check; made of its kind and columns by default.")

    @model_validator(mode="after")
    def _exactly_one(self) -> CheckConfig:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if not kinds:
            raise mistake(f"checks nothing: give one of {one_of(KINDS)}")
        if len(kinds) > 1:
            raise mistake(f"has `{'` and `'.join(kinds)}`: make a check of each", at=(kinds[-1],))
        if self.name is not None and self.not_null is not None and len(self.not_null) > 1:
            raise mistake("is one name for a check of each column: make a check of each", at=("name",))
        if self.name in TAKEN_NAMES:
            raise mistakes([about(self.name, "is a name of the node's own: give another one", at=("name",))])
        return self

    @property
    def kind(self) -> str:
        """What is checked: one of :data:`KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def compared(self) -> list[tuple[str | int, bool | int | float | date | str]]:
        """The ends of a range, by their keys, or the accepted values, by their index."""
        if self.range is not None:
            ends = (("min", self.range.min), ("max", self.range.max))
            return [(key, value) for key, value in ends if value is not None]
        return list(enumerate(self.accepted_values.values)) if self.accepted_values is not None else []


@dataclass(frozen=True)
class Check:
    """One check of a node, as it is evaluated, shown and recorded.

    Attributes:
        name: unique in its node.
        kind: one of :data:`KINDS`.
        columns: the columns that it looks at, as far as the file names them.
        config: what the file says of it.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    config: CheckConfig

    @property
    def blocks(self) -> bool:
        """Whether an increment that fails it is not committed."""
        return self.config.severity == "error"

    @property
    def by_row(self) -> bool:
        """Whether one can say which rows fail it."""
        return self.kind in BY_ROW


def checks_of(configs: Sequence[CheckConfig]) -> Iterator[tuple[int, Check]]:
    """Each check that is evaluated, with the index of what it is made of: ``not_null`` makes one of each column."""
    for index, config in enumerate(configs):
        kind = config.kind
        if config.not_null is not None:
            for column in config.not_null:
                yield index, Check(config.name or _slug(kind, column), kind, (column,), config)
            continue
        settings = getattr(config, kind)
        columns = settings if kind == "unique" else (settings.column,) if hasattr(settings, "column") else ()
        text = settings if isinstance(settings, str) else "_".join(columns)
        yield index, Check(config.name or _slug(kind, text), kind, tuple(columns), config)


def repeated_names(configs: Sequence[CheckConfig]) -> Iterator[Mistake]:
    """Checks of one name."""
    seen: set[str] = set()
    for index, check in checks_of(configs):
        if check.name in seen:
            text = f"is the second check named `{check.name}`: give it a `name` of its own"
            yield Mistake(text, plain="is the second check of its name: give it a `name` of its own", at=(index,))
        seen.add(check.name)


def _slug(kind: str, text: str) -> str:
    for sign, word in _SIGNS:
        text = text.replace(sign, f" {word} ")
    words = re.findall(r"[A-Za-z0-9_]+", text)
    return "_".join([kind, *words])[:_LONGEST_NAME].rstrip("_")
