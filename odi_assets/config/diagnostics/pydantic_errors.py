"""Pydantic's errors as mistakes: in plain words, with what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from odi_assets.config.diagnostics.locations import Locations
from odi_assets.config.diagnostics.mistakes import ERROR_TYPE, Mistake, Path, about, closest, one_of
from odi_assets.config.models import (
    NodeConfig,
    PartitionConfig,
    PipelineConfig,
    ProjectConfig,
    ReadConfig,
    TransformConfig,
    WriteConfig,
)
from odi_assets.config.models.fields import DISCRIMINATORS, PATTERNS
from odi_assets.config.models.reads import built_in_settings, settings_of

_SHOWABLE_KEY = re.compile(r"[A-Za-z0-9_.-]{1,60}")

_WANTED = {
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

_LISTS: dict[str | int, str] = {
    "tags": "tags", "depends_on": "names", "packages": "names", "keys": "columns", "partition_by": "columns",
}  # fmt: skip
"""What the lists of texts hold: one text is easily given without brackets."""

ELSEWHERE = {
    "performance": "`performance` does not exist here: set `spark: {conf: …}`",
    "transformer": "`transformer` does not exist here: use `transform`",
    "enabled": "`enabled` does not exist here: leave the node out",
    "query": "`query` does not exist here: read a path, and filter in `transform`",
}
"""Keys that people bring from Odibi, and what to write instead."""


def explain(error: ValidationError, locations: Locations) -> list[Mistake]:
    """Return a mistake for every error, in plain words. A missing key that is there misspelt is one mistake."""
    mistakes: list[Mistake] = []
    for details in error.errors(include_input=False, include_url=False):
        mistakes.extend(_explain_one(details, locations))
    misspelt = {(*mistake.at[:-1], mistake.suggestion) for mistake in mistakes if mistake.where == "key"}
    return [mistake for mistake in mistakes if mistake.where != "parent" or mistake.at not in misspelt]


def _explain_one(details: ErrorDetails, locations: Locations) -> Iterator[Mistake]:
    kind, target = details["type"], _follow(tuple(details["loc"]), locations)
    context = details.get("ctx", {})
    if kind == ERROR_TYPE:
        for mistake in context["mistakes"]:
            yield replace(mistake, at=(*target.path, *mistake.at))
    elif kind == "extra_forbidden":
        message, meant = _unknown_key(target, locations)
        yield Mistake(message, at=target.path, suggestion=meant, where="key")
    elif kind == "missing":
        message = f"missing key `{target.path[-1]}`{_meaning(target)}"
        yield Mistake(message, at=target.path, where="parent")
    elif kind == "union_tag_not_found":
        message = f"missing key `{target.discriminator}`: one of {one_of(target.variants)}"
        yield Mistake(message, at=(*target.path, target.discriminator), where="parent")
    elif kind == "union_tag_invalid":
        yield _unknown_value((*target.path, target.discriminator), target.variants, locations)
    elif kind in ("enum", "literal_error"):
        allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        yield _unknown_value(target.path, allowed, locations)
    elif kind == "string_pattern_mismatch":
        value = str(locations.find(target.path).value)
        is_word_for_owner = "team:" in context["pattern"] and re.fullmatch(r"[\w-]+", value)
        suggestion = f"team:{value}" if is_word_for_owner else None
        yield about(value, PATTERNS[context["pattern"]], at=target.path, suggestion=suggestion)
    elif kind != "too_short" or not _has_items(target.path, locations):
        yield Mistake(_value_message(kind, context, target.path, locations, details["msg"]), at=target.path)


def _has_items(path: Path, locations: Locations) -> bool:
    """Tell whether a list that pydantic found too short holds items: those were wrong, and are reported."""
    value = locations.find(path).value
    return isinstance(value, list) and bool(value)


def _meaning(target: _Target) -> str:
    fields = target.model.model_fields.items() if target.model is not None else ()
    text = next((field.description for name, field in fields if target.path[-1] in (name, field.alias)), None)
    return f": {text[0].lower()}{text[1:].rstrip('.')}" if text else ""


def _unknown_key(target: _Target, locations: Locations) -> tuple[str, str | None]:
    """Return the message, and the key that was probably meant."""
    key = str(target.path[-1])
    if not _SHOWABLE_KEY.fullmatch(key):
        return "unknown key; a `key: value` needs a space after the colon" if ":" in key else "unknown key", None
    message = f"unknown key `{key}`"
    if target.model is None:
        return message, None
    elsewhere = _of_other_kinds(target.model, key)
    if elsewhere is not None:
        return elsewhere, None
    known = keys_of(target.model)
    present = locations.find(target.path[:-1]).value
    meant = closest(key, [name for name in known if name not in present])
    if meant is not None:
        return message, meant
    if target.path[0] == "pipelines" and len(sections := _sections_with(key)) == 1:
        return f"{message}: it belongs in {sections[0]}", None
    return f"{message}: {ELSEWHERE[key]}" if key in ELSEWHERE else f"{message}; known here: {', '.join(known)}", None


def _of_other_kinds(model: type[BaseModel], key: str) -> str | None:
    """Return what to say of a key of a ``read`` that is one of other kinds of sources; None if it is none."""
    if not issubclass(model, ReadConfig):
        return None
    if key in model.MISPLACED:
        return model.MISPLACED[key]
    kinds = [name for name, other in built_in_settings().items() if key in keys_of(other)]
    return f"is for `format: {'`, `'.join(kinds)}`" if kinds else None


def _sections_with(key: str) -> list[str]:
    """Return the parts of a pipeline that know a key."""
    sections: dict[str, type[BaseModel]] = {
        "`transform`": TransformConfig, "`partition`": PartitionConfig, "`write`": WriteConfig,
        "the node": NodeConfig, "the pipeline": PipelineConfig,
    }  # fmt: skip
    parts = ["`read`"] if any(key in keys_of(model) for model in built_in_settings().values()) else []
    return parts + [name for name, model in sections.items() if key in keys_of(model)]


def _unknown_value(path: Path, allowed: Iterable[str], locations: Locations) -> Mistake:
    allowed = tuple(allowed)
    value = locations.find(path).value
    if value is not None and not isinstance(value, str | list | dict):
        return Mistake(f"must be {one_of(allowed)}, not {_shape_of(value)}", at=path)
    shown = locations.quote(path)
    meant = closest(value, allowed) if shown and isinstance(value, str) else None
    return Mistake(f"unknown value{f' {shown}' if shown else ''}: must be {one_of(allowed)}", at=path, suggestion=meant)


def _value_message(kind: str, context: dict[str, Any], path: Path, locations: Locations, otherwise: str) -> str:
    if kind in _WANTED:
        return _wrong_kind(kind, path, locations)
    if kind == "too_short":
        return "must not be empty: give at least one"
    if kind == "string_too_short":
        return "must not be empty"
    limits = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    if kind in limits:
        return f"must be {kind.replace('_', ' ').replace('than equal', 'than or equal to')} {context[limits[kind]]}"
    return otherwise[:1].lower() + otherwise[1:]


def _wrong_kind(kind: str, path: Path, locations: Locations) -> str:
    value = locations.find(path).value
    message = f"must be {_WANTED[kind]}"
    if value is None:
        return f"{message}; it is empty"
    if isinstance(value, str) and kind == "tuple_type" and path[-1] in _LISTS:
        return f"must be a list of {_LISTS[path[-1]]}: put `[ ]` around it"
    if isinstance(value, str):
        return f"{message}, not {locations.quote(path) or 'text'}"
    is_number_for_text = kind == "string_type" and not isinstance(value, list | dict)
    return f"{message}, not {_shape_of(value)}{'; put it in quotes' if is_number_for_text else ''}"


def _shape_of(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "`true` or `false`" if isinstance(value, bool) else "a number"


@dataclass(frozen=True)
class _Target:
    """What one of pydantic's locations leads to.

    Attributes:
        path: the location without the tags that pydantic puts in for the members of a union.
        model: the model that owns the last key of the path; None where the key is of a free mapping.
        variants: the values of ``mode`` or ``type`` that are allowed, where the path ends at a union of models.
        discriminator: ``mode`` or ``type``, likewise.
    """

    path: Path
    model: type[BaseModel] | None
    variants: tuple[str, ...]
    discriminator: str


def _follow(location: Path, locations: Locations) -> _Target:
    """Follow one of pydantic's locations through the models."""
    here: Any = ProjectConfig
    owner: type[BaseModel] | None = None
    path: Path = ()
    for part in location:
        _, members = _members(here)
        if part in members:
            here = members[str(part)]
            continue
        owner = here if _is_model(here) else None
        path = (*path, part)
        here = _step(here, part)
        if here is ReadConfig:
            here = settings_of(locations.find(path).value)
    discriminator, members = _members(here)
    return _Target(path, owner, tuple(members), discriminator)


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys that a model knows, as the project file writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _step(here: Any, part: str | int) -> Any:
    if _is_model(here):
        model_field = next((field for name, field in here.model_fields.items() if part in (name, field.alias)), None)
        return _plain(model_field.annotation) if model_field is not None else None
    if get_origin(here) in (dict, tuple):
        arguments = get_args(here)
        return _plain(arguments[1] if get_origin(here) is dict else arguments[0])
    return None


def _plain(annotation: Any) -> Any:
    """Take ``Annotated`` and ``| None`` away."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        others = [argument for argument in get_args(annotation) if argument is not NoneType]
        if len(others) == 1:
            return _plain(others[0])
    return annotation


def _members(annotation: Any) -> tuple[str, dict[str, type[BaseModel]]]:
    """Return the key by which the models of a union differ, and the models by its value."""
    models = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    for name in DISCRIMINATORS:
        if models and all(_is_model(model) and name in model.model_fields for model in models):
            values = {model: get_args(model.model_fields[name].annotation) for model in models}
            return name, {str(value): model for model in models for value in values[model]}
    return "", {}
