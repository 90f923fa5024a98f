"""What can be read of a project file that has mistakes, so that one mistake hides no other from the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from odi_assets.config.models import (
    Connection,
    DrivingCursor,
    InputConfig,
    NodeConfig,
    PartitionConfig,
    PipelineConfig,
    ProjectConfig,
    StreamSettings,
    SystemConfig,
    TransformConfig,
    WriteConfig,
)
from odi_assets.config.models.apply import ApplyConfig, written_out
from odi_assets.config.models.nodes import named_inputs
from odi_assets.config.models.reads import settings_of

Model = TypeVar("Model", bound=BaseModel)
Kind = TypeVar("Kind", str, list[Any], dict[str, Any])


def read_partial(data: Mapping[str, Any]) -> ProjectConfig:
    """Return what can be read of a project file, as models that were not validated as a whole.

    What cannot be read is as empty as possible, so that no check stumbles over it: a text is ``""``, a section has
    its defaults, a connection is None; ``connections`` is None where it is no mapping.
    """
    connections, system = data.get("connections"), data.get("system")
    sections: dict[str, Any] = {
        "connections": _connections(connections) if isinstance(connections, Mapping) else None,
        "requires": tuple(_as(str, name) for name in _as(list, data.get("requires"))),
        "pipelines": tuple(_pipeline(_as(dict, value)) for value in _as(list, data.get("pipelines"))),
        "system": None if system is None else _section(SystemConfig, system),
    }
    return ProjectConfig.model_construct(**sections)


def _pipeline(data: Mapping[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_construct(
        pipeline=_as(str, data.get("pipeline")),
        nodes=tuple(_node(_as(dict, value)) for value in _as(list, data.get("nodes"))),
    )


_SECTIONS: dict[str, type[BaseModel]] = {
    "transform": TransformConfig, "partition": PartitionConfig, "write": WriteConfig,
    "stream": StreamSettings, "apply": ApplyConfig,
    "cursor": DrivingCursor,
}  # fmt: skip


def _node(node: Mapping[str, Any]) -> NodeConfig:
    data = written_out(node)
    fields: dict[str, Any] = {
        "name": _as(str, data.get("name")),
        "depends_on": tuple(_as(str, text) for text in _as(list, data.get("depends_on"))),
        "inputs": _inputs(data.get("inputs")),
        "write": _section(WriteConfig, {}),
    }
    fields |= {key: _section(model, data[key]) for key, model in _SECTIONS.items() if data.get(key) is not None}
    if data.get("read") is not None:
        fields["read"] = _section(settings_of(data["read"]), data["read"])
    return NodeConfig.model_construct(**fields)


def _inputs(data: Any) -> dict[str, InputConfig]:
    try:
        named = _as(dict, named_inputs(data))
    except PydanticCustomError:
        return {}  # two inputs of one name: reported by the model; which one a later message would mean is not clear
    return {view: _section(InputConfig, value) for view, value in named.items()}


def _connections(data: Mapping[str, Any]) -> dict[str, Connection | None]:
    adapter: TypeAdapter[Connection] = TypeAdapter(Connection)
    connections: dict[str, Connection | None] = {}
    for name, value in data.items():
        try:
            connections[name] = adapter.validate_python(value)
        except ValidationError:
            connections[name] = None
    return connections


_TEXTS = ("connection", "path", "format", "column", "node", "changes")
"""Keys without a default that the checks look at."""


def _section(model: type[Model], data: Any) -> Model:
    """Return a section as its model, if need be without the keys that are wrong, or else with its texts alone."""
    left = data
    for _ in range(2):
        try:
            return model.model_validate(left)
        except ValidationError as error:
            wrong = {details["loc"][0] for details in error.errors(include_input=False) if details["loc"]}
            left = {key: value for key, value in _as(dict, data).items() if key not in wrong}
    texts: dict[str, Any] = {name: _as(str, _as(dict, data).get(name)) for name in _TEXTS if name in model.model_fields}
    return model.model_construct(**texts)


def _as(kind: type[Kind], value: Any) -> Kind:
    """Return a value of a kind; an empty one where it is of another kind."""
    return value if isinstance(value, kind) else kind()
