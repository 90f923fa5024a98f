"""Which model stands at a place of the project file, from the models themselves."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from odi_assets.config.models import ProjectConfig
from odi_assets.config.yaml.document import Path

DISCRIMINATORS = ("mode", "type")


@dataclass(frozen=True)
class Place:
    """What :func:`follow` found.

    Attributes:
        path: the location without the tags that pydantic puts in for the members of a union.
        model: the model that owns the last key of the path; None where the key is of a free mapping.
        variants: the values of ``mode`` or ``type`` that are allowed, where the path ends at a union of models.
        discriminator: ``mode`` or ``type``, likewise.
    """

    path: Path
    model: type[BaseModel] | None
    variants: tuple[str, ...] = ()
    discriminator: str = ""


def follow(location: Path) -> Place:
    """Follow a location of a pydantic error through the models."""
    here: Any = ProjectConfig
    owner: type[BaseModel] | None = None
    clean: list[str | int] = []
    for part in location:
        members = _members(here)
        if part in members:
            here = members[str(part)]
            continue
        owner = here if isinstance(here, type) and issubclass(here, BaseModel) else None
        clean.append(part)
        here = _step(here, part)
    members = _members(here)
    return Place(tuple(clean), owner, tuple(members), _discriminator(here))


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys that a model knows, as the project file writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _step(here: Any, part: str | int) -> Any:
    if isinstance(here, type) and issubclass(here, BaseModel):
        by_key = {field.alias or name: field for name, field in here.model_fields.items()}
        field = by_key.get(str(part)) or here.model_fields.get(str(part))
        return _plain(field.annotation) if field is not None else None
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


def _members(annotation: Any) -> dict[str, type[BaseModel]]:
    """Return the models of a union by the value of their discriminator."""
    if get_origin(annotation) not in (Union, UnionType):
        return {}
    found = {}
    for model in get_args(annotation):
        for name in DISCRIMINATORS:
            if isinstance(model, type) and issubclass(model, BaseModel) and name in model.model_fields:
                found[str(get_args(model.model_fields[name].annotation)[0])] = model
    return found


def _discriminator(annotation: Any) -> str:
    for model in _members(annotation).values():
        return next(name for name in DISCRIMINATORS if name in model.model_fields)
    return ""
