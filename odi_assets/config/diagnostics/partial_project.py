"""What could be read of a project file, section by section, so that one mistake hides no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from odi_assets.config.diagnostics.locations import Places
from odi_assets.config.models import (
    Connection,
    InputConfig,
    PartitionConfig,
    ReadConfig,
    SystemConfig,
    TransformConfig,
    WriteConfig,
)
from odi_assets.config.models.shorthand import named_inputs
from odi_assets.config.yaml.document import Path

Model = TypeVar("Model", bound=BaseModel)
_CONNECTION: TypeAdapter[Connection] = TypeAdapter(Connection)


@dataclass(frozen=True)
class Reference:
    """A node named by another: ``inputs`` or ``depends_on``."""

    path: Path
    text: str


@dataclass
class NodeView:
    """The sections of a node that could be read; one that could not, or is not there, is None.

    Attributes:
        path: where the node is.
        pipeline: its pipeline's name; empty when that is not readable.
        name: its name; empty likewise.
        shown: its name as messages may show it.
        given: the keys that the file gives it with something in them, readable or not.
        connections: the connections that it names, by the path of the name.
        references: the nodes that it names.
        source: the path that it reads; empty where it reads none.
        target: the path that it writes; empty where that is not readable.
    """

    path: Path
    pipeline: str
    name: str
    shown: str
    given: frozenset[str] = frozenset()
    connections: dict[Path, str] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)
    source: str = ""
    target: str = ""
    read: ReadConfig | None = None
    inputs: dict[str, InputConfig] = field(default_factory=dict)
    transform: TransformConfig | None = None
    partition: PartitionConfig | None = None
    write: WriteConfig | None = None


@dataclass
class PipelineView:
    path: Path
    name: str
    shown: str
    nodes: list[NodeView]


@dataclass
class Outline:
    """The readable parts of a project file.

    Attributes:
        root: the file's folder.
        connections: by name, None where one is not readable; None as a whole where the file has no mapping of them.
        system_connection: the connection that ``system`` names, readable or not.
    """

    root: FilePath
    connections: dict[str, Connection | None] | None
    pipelines: list[PipelineView]
    system: SystemConfig | None
    system_connection: str | None

    def connection(self, name: str) -> Connection | None:
        """Return a connection that is readable, or None."""
        return (self.connections or {}).get(name)

    @property
    def nodes(self) -> Iterator[NodeView]:
        """All nodes, in the order of the file."""
        return (node for pipeline in self.pipelines for node in pipeline.nodes)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], NodeView]:
        """The first node of each pipeline and name."""
        found: dict[tuple[str, str], NodeView] = {}
        for node in self.nodes:
            if node.name:
                found.setdefault((node.pipeline, node.name), node)
        return found

    def find(self, node: NodeView, reference: str) -> NodeView | None:
        """Return the node that a reference of ``node`` names, or None."""
        pipeline, _, name = reference.removeprefix("$").rpartition(".")
        return self.by_name.get((pipeline or node.pipeline, name))


def read_outline(data: Any, root: FilePath, places: Places) -> Outline:
    """Read what can be read of a project file's data."""
    data = _mapping(data)
    system = _mapping(data.get("system"))
    return Outline(
        root=root,
        connections=_connections(data.get("connections")),
        pipelines=[
            _pipeline(value, ("pipelines", i), places)
            for i, value in enumerate(_list(data.get("pipelines")))
            if isinstance(value, Mapping)
        ],
        system=_salvage(SystemConfig, system) if system else None,
        system_connection=_text(system.get("connection")) or None,
    )


def _pipeline(data: Mapping[str, Any], path: Path, places: Places) -> PipelineView:
    name = _text(data.get("pipeline"))
    nodes = [
        _node(value, (*path, "nodes", i), name, places)
        for i, value in enumerate(_list(data.get("nodes")))
        if isinstance(value, Mapping)
    ]
    return PipelineView(path, name, places.written((*path, "pipeline"), name), nodes)


def _node(data: Mapping[str, Any], path: Path, pipeline: str, places: Places) -> NodeView:
    name = _text(data.get("name"))
    view = NodeView(path, pipeline, name, places.written((*path, "name"), name))
    view.given = frozenset(key for key, value in data.items() if value not in (None, [], {}))
    view.read = _salvage(ReadConfig, data.get("read"))
    view.transform = _salvage(TransformConfig, data.get("transform"))
    view.partition = _salvage(PartitionConfig, data.get("partition"))
    view.write = _salvage(WriteConfig, data.get("write"))
    for section in ("read", "write"):
        connection = _text(_mapping(data.get(section)).get("connection"))
        if connection:
            view.connections[(*path, section, "connection")] = connection
    view.source = _text(_mapping(data.get("read")).get("path"))
    view.target = _text(_mapping(data.get("write")).get("path"))
    _read_inputs(view, data.get("inputs"))
    for i, text in enumerate(_list(data.get("depends_on"))):
        if _text(text):
            view.references.append(Reference((*path, "depends_on", i), text))
    return view


def _read_inputs(view: NodeView, data: Any) -> None:
    try:
        named = _mapping(named_inputs(data))
    except PydanticCustomError:
        return  # two inputs of one name: reported by the model; which one a later message would mean is not clear
    for name, value in named.items():
        reference = _text(_mapping(value).get("node")) or _text(value)
        if reference:
            view.references.append(Reference((*view.path, "inputs", name, "node"), reference))
        readable = _salvage(InputConfig, {"node": value} if isinstance(value, str) else value)
        if readable is not None:
            view.inputs[name] = readable


def _connections(data: Any) -> dict[str, Connection | None] | None:
    if not isinstance(data, Mapping):
        return None
    return {name: _connection(value) for name, value in data.items()}


def _connection(data: Any) -> Connection | None:
    try:
        return _CONNECTION.validate_python(data)
    except ValidationError:
        return None


def _salvage(model: type[Model], data: Any) -> Model | None:
    """Return a section as its model, if need be without the keys that are wrong; None when that is not enough."""
    if not isinstance(data, Mapping):
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        wrong = {details["loc"][0] for details in error.errors(include_input=False) if details["loc"]}
    try:
        return model.model_validate({key: value for key, value in data.items() if key not in wrong})
    except ValidationError:
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
