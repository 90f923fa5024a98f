"""Pydantic's errors in plain words, with what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from odi_assets.config.diagnostics.locations import Finding, Places, Where
from odi_assets.config.diagnostics.mistakes import ERROR_TYPE, Mistake, closest, one_of
from odi_assets.config.diagnostics.model_paths import Place, follow, keys_of
from odi_assets.config.models import (
    NodeConfig,
    PartitionConfig,
    PipelineConfig,
    ReadConfig,
    TransformConfig,
    WriteConfig,
)
from odi_assets.config.yaml.document import Mapping, Path, Scalar, Sequence

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,60}")

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "`true` or `false`",
    "bool_parsing": "`true` or `false`",
    "dict_type": "a mapping of keys and values",
    "mapping_type": "a mapping of keys and values",
    "model_type": "a mapping of keys and values",
    "model_attributes_type": "a mapping of keys and values",
    "tuple_type": "a list",
    "list_type": "a list",
    "date_type": "a date, as in 2013-01-31",
    "date_parsing": "a date, as in 2013-01-31",
    "date_from_datetime_parsing": "a date, as in 2013-01-31",
    "date_from_datetime_inexact": "a date without a time, as in 2013-01-31",
}

ELSEWHERE = {
    "vars": "`vars` does not exist here: use environment variables, `${NAME}`",
    "environments": "`environments` does not exist here: set `environment`, and use environment variables, `${NAME}`",
    "performance": "`performance` does not exist here: set `spark: {conf: …}`",
    "transformer": "`transformer` does not exist here: use `transform`",
    "enabled": "`enabled` does not exist here: leave the node out",
    "query": "`query` does not exist here: read a path, and filter in `transform`",
}
"""Keys that people bring from Odibi, and what to write instead."""


def explain(error: ValidationError, places: Places) -> list[Finding]:
    """Return a finding for every error, in plain words. A missing key that is there misspelt is one mistake."""
    found: list[Finding] = []
    for details in error.errors(include_input=False, include_url=False):
        found.extend(_explain_one(details, places))
    misspelt = {(*one.path[:-1], one.mistake.suggestion) for one in found if one.where is Where.KEY}
    return [one for one in found if one.where is not Where.PARENT or one.path not in misspelt]


def _explain_one(details: ErrorDetails, places: Places) -> Iterator[Finding]:
    kind, location = details["type"], tuple(details["loc"])
    place = follow(location)
    context = details.get("ctx", {})
    if kind == ERROR_TYPE:
        for mistake in context["mistakes"]:
            yield Finding(place.path, mistake, Where.KEY if mistake.of_key else Where.VALUE)
    elif kind == "extra_forbidden":
        yield Finding(place.path, _unknown_key(place, places), Where.KEY)
    elif kind == "missing":
        yield _missing(place)
    elif kind == "union_tag_not_found":
        tag = place.discriminator
        message = f"missing key `{tag}`: one of {one_of(place.variants)}"
        yield Finding((*place.path, tag), Mistake(message), Where.PARENT)
    elif kind == "union_tag_invalid":
        yield _unknown_value((*place.path, place.discriminator), place.variants, places)
    elif kind in ("enum", "literal_error"):
        yield _unknown_value(place.path, _quoted_words(str(context.get("expected", ""))), places)
    elif kind != "too_short" or not _has_items(place.path, places):
        yield Finding(place.path, Mistake(_value_message(kind, context, place.path, places, details["msg"])))


def _missing(place: Place) -> Finding:
    field = _field(place)
    what = f": {field[0].lower()}{field[1:].rstrip('.')}" if field else ""
    return Finding(place.path, Mistake(f"missing key `{place.path[-1]}`{what}"), Where.PARENT)


def _field(place: Place) -> str:
    if place.model is None:
        return ""
    fields = place.model.model_fields.items()
    return next((field.description or "" for name, field in fields if place.path[-1] in (name, field.alias)), "")


def _unknown_key(place: Place, places: Places) -> Mistake:
    key = str(place.path[-1])
    if not _WORD.fullmatch(key):
        return Mistake("unknown key; a `key: value` needs a space after the colon" if ":" in key else "unknown key")
    if place.model is None:
        return Mistake(f"unknown key `{key}`")
    parent = places.spot(place.path[:-1]).node
    present = set(parent.values) if isinstance(parent, Mapping) else set()
    keys = keys_of(place.model)
    meant = closest(key, [known for known in keys if known not in present])
    if meant is None and place.path[0] == "pipelines" and len(sections := _sections_with(key)) == 1:
        return Mistake(f"unknown key `{key}`: it belongs in {sections[0]}")
    if meant is None and key in ELSEWHERE:
        return Mistake(f"unknown key `{key}`: {ELSEWHERE[key]}")
    if meant is None:
        return Mistake(f"unknown key `{key}`; known here: {', '.join(keys)}")
    return Mistake(f"unknown key `{key}`", suggestion=meant)


def _sections_with(key: str) -> list[str]:
    """Return the parts of a pipeline that know a key."""
    sections: dict[str, type[BaseModel]] = {
        "`read`": ReadConfig, "`transform`": TransformConfig, "`partition`": PartitionConfig, "`write`": WriteConfig,
        "the node": NodeConfig, "the pipeline": PipelineConfig,
    }  # fmt: skip
    return [name for name, model in sections.items() if key in keys_of(model)]


def _unknown_value(path: Path, allowed: Iterable[str], places: Places) -> Finding:
    allowed = tuple(allowed)
    shown = places.quote(path)
    node = places.spot(path).node
    if isinstance(node, Scalar) and node.value is not None and not isinstance(node.value, str):
        return Finding(path, Mistake(f"must be {one_of(allowed)}, not {_shape_of(node)}"))
    meant = closest(str(node.value), allowed) if shown and isinstance(node, Scalar) else None
    return Finding(
        path, Mistake(f"unknown value{f' {shown}' if shown else ''}: must be {one_of(allowed)}", None, (), meant)
    )


def _quoted_words(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected)


def _has_items(path: Path, places: Places) -> bool:
    """Tell whether a list that pydantic found too short holds items: those were wrong, and are reported."""
    node = places.spot(path).node
    return isinstance(node, Sequence) and bool(node.items)


def _value_message(kind: str, context: dict[str, Any], path: Path, places: Places, otherwise: str) -> str:
    if kind in _KINDS:
        return _wrong_kind(kind, path, places)
    if kind == "too_short":
        return "must not be empty: give at least one"
    if kind == "string_too_short":
        return "must not be empty"
    limits = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    if kind in limits:
        return f"must be {kind.replace('_', ' ').replace('than equal', 'than or equal to')} {context[limits[kind]]}"
    return otherwise[:1].lower() + otherwise[1:]


def _wrong_kind(kind: str, path: Path, places: Places) -> str:
    node = places.spot(path).node
    wanted = _KINDS[kind]
    if isinstance(node, Scalar) and node.value is None:
        return f"must be {wanted}; it is empty"
    shown = places.quote(path)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return f"must be {wanted}, not {shown}" if shown else f"must be {wanted}, not text"
    advice = "; put it in quotes" if kind == "string_type" and isinstance(node, Scalar) else ""
    return f"must be {wanted}, not {_shape_of(node)}{advice}"


def _shape_of(node: Any) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node.value, bool):
        return "`true` or `false`"
    return "a number" if isinstance(node.value, int | float) else "text"
