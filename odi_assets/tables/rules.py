"""What a table made by others demands of its rows, and whether rows that were staged keep to it.

Delta leaves all of it to the writers (protocol, "Requirements for Writers"): NOT NULL, CHECK constraints, column
invariants, and the lengths of Spark's CHAR and VARCHAR. A reader that relies on it fails at rows that do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.schema_evolution import TEXT_TYPE
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, row_text
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Broken = Callable[[Column], Column]
    """Of a value: whether it breaks a rule; NULL counts as no."""

_CONSTRAINT = "delta.constraints."
_INVARIANT = "delta.invariants"
_LENGTH = re.compile(r"(?:var)?char\((\d+)\)")
_LONGEST_EXAMPLE = 200


@dataclass(frozen=True)
class _NotNull:
    """A place in a type that may not be NULL.

    Attributes:
        plain: the way there leads through structs alone.
        broken: whether a value of the outermost type has NULL there.
    """

    path: tuple[str, ...]
    plain: bool
    broken: Broken


@dataclass(frozen=True)
class Rule:
    """One demand on each row.

    Attributes:
        label: the rule as messages name it.
        broken: whether a row breaks it; NULL counts as no.
        not_null: the way through structs to the column that the rule forbids to be NULL; None for another rule.
    """

    label: str
    broken: Column
    not_null: tuple[str, ...] | None = None

    def is_proved_by(self, file: WrittenFile) -> bool:
        """Whether the statistics of ``file`` tell that none of its rows breaks the rule."""
        if self.not_null is None:
            return False
        if self.not_null[0] in file.partition:
            return file.partition[self.not_null[0]] is not None
        null_counts: Any = json.loads(file.stats)["nullCount"]
        for name in self.not_null:
            null_counts = null_counts.get(name) if isinstance(null_counts, dict) else None
        return bool(null_counts == 0)


def rules_of(handle: TableHandle, schema_json: str, rows: DataFrame) -> list[Rule]:
    """The rules of the table for rows with the columns of ``rows``, where the table gets the schema ``schema_json``.

    Raises:
        TableError: Spark cannot evaluate a rule for these columns.
    """
    rules = [
        *_of_columns(json.loads(schema_json)["fields"], handle.location.uri),
        *_constraints(handle.table.metadata().configuration),
    ]
    for rule in rules:
        _require_evaluable(rule, rows, handle.location.uri)
    return rules


def require_kept(rules: Sequence[Rule], files: Sequence[WrittenFile], rows: Callable[[], DataFrame], uri: str) -> None:
    """Raises TableError if a row of the staged ``files``, which hold ``rows``, breaks one of the rules."""
    open_ones = [rule for rule in rules if not all(map(rule.is_proved_by, files))]
    if not open_ones or not files:
        return
    staged = rows()
    text = row_text(staged.columns)
    figures = []
    for rule in open_ones:
        figures += [F.count_if(rule.broken), F.first(F.when(rule.broken, text), ignorenulls=True)]
    totals = staged.agg(*(figure.alias(f"f{number}") for number, figure in enumerate(figures))).collect()[0]
    broken = [(rule, totals[2 * i], totals[2 * i + 1]) for i, rule in enumerate(open_ones) if totals[2 * i]]
    if broken:
        breaches = (
            f"{counted(count, 'row')} of it {'breaks' if count == 1 else 'break'} {rule.label}, such as {_short(row)}"
            for rule, count, row in broken
        )
        raise TableError(
            f"the table at {uri} does not admit what is to be written: {'; '.join(breaches)}. Nothing was written.",
            fix="correct these rows in the transform, or leave them out there (WHERE); or take the rule off the table",
            uri=uri,
            rules=tuple(rule.label for rule, _, _ in broken),
            rows=tuple(count for _, count, _ in broken),
        )


def _constraints(properties: Mapping[str, str | None]) -> Iterator[Rule]:
    for name, text in properties.items():
        if name.startswith(_CONSTRAINT) and text:
            yield Rule(f"CHECK {name.removeprefix(_CONSTRAINT)} ({text})", _is_not_true(text))


def _of_columns(fields: Sequence[Mapping[str, Any]], uri: str) -> Iterator[Rule]:
    for field in fields:
        not_nulls = list(_nulls(field["type"], bool(field["nullable"]), (field["name"],)))
        if not not_nulls and not field.get("metadata") and isinstance(field["type"], str):
            # To ask Spark for a column takes milliseconds.
            continue
        column = F.col(quoted(field["name"]))
        for not_null in not_nulls:
            label = f"`{'.'.join(not_null.path)}` NOT NULL"
            yield Rule(label, not_null.broken(column), not_null.path if not_null.plain else None)
        for text in _invariants(field):
            yield Rule(f"the invariant {text} of `{field['name']}`", _is_not_true(text))
        yield from _lengths(field, column, uri)


def _nulls(kind: Any, nullable: bool, path: tuple[str, ...], *, plain: bool = True) -> Iterator[_NotNull]:
    """The NOT NULLs of a type, from its outside to its inside."""
    if not nullable:
        yield _NotNull(path, plain, lambda value: value.isNull())
    shape = kind["type"] if isinstance(kind, dict) else None
    if shape == "struct":
        for field in kind["fields"]:
            for rule in _nulls(field["type"], bool(field["nullable"]), (*path, field["name"]), plain=plain):
                yield replace(rule, broken=partial(_in_field, field["name"], rule.broken))
    elif shape == "array":
        for rule in _nulls(kind["elementType"], bool(kind["containsNull"]), (*path, "element"), plain=False):
            yield replace(rule, broken=partial(_in_one, lambda value: value, rule.broken))
    elif shape == "map":
        for rule in _nulls(kind["keyType"], True, (*path, "key"), plain=False):
            yield replace(rule, broken=partial(_in_one, F.map_keys, rule.broken))
        for rule in _nulls(kind["valueType"], bool(kind["valueContainsNull"]), (*path, "value"), plain=False):
            yield replace(rule, broken=partial(_in_one, F.map_values, rule.broken))


def _in_field(name: str, broken: Broken, value: Column) -> Column:
    return value.isNotNull() & broken(value.getField(name))


def _in_one(elements: Broken, broken: Broken, value: Column) -> Column:
    return F.exists(elements(value), broken)


def _invariants(field: Mapping[str, Any]) -> Iterator[str]:
    """The invariants of a column and of the columns within it, each as an expression of columns of the table."""
    stored = (field.get("metadata") or {}).get(_INVARIANT)
    if stored:
        yield str(json.loads(stored)["expression"]["expression"])
    kind = field["type"]
    for inner in kind.get("fields", ()) if isinstance(kind, dict) else ():
        yield from _invariants(inner)


def _lengths(field: Mapping[str, Any], column: Column, uri: str) -> Iterator[Rule]:
    text = (field.get("metadata") or {}).get(TEXT_TYPE)
    if not text:
        return
    length = _LENGTH.fullmatch(text)
    if length is None:
        raise TableError(
            f"column `{field['name']}` of the table at {uri} is {text}; the lengths of such texts cannot be kept",
            fix="write it with Spark's own Delta connector, or to a table with a plain STRING there",
            uri=uri,
            column=field["name"],
        )
    yield Rule(f"`{field['name']}` {text.upper()}", F.char_length(column) > int(length[1]))


def _is_not_true(text: str) -> Column:
    # As Delta has it, NULL does not pass.
    return ~F.coalesce(F.expr(text), F.lit(False))


def _require_evaluable(rule: Rule, rows: DataFrame, uri: str) -> None:
    try:
        rows.select(rule.broken).schema  # noqa: B018  Spark Connect analyses only now
    except PySparkException as error:
        raise TableError(
            f"{rule.label} of the table at {uri} cannot be evaluated for the rows to write: {error}",
            fix="give the rows the columns that it needs, or take it off the table",
            uri=uri,
            rule=rule.label,
        ) from error


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[:_LONGEST_EXAMPLE]}…"
