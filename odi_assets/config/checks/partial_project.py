"""What the checks look at: every part of a project file that can be read, so that one mistake hides no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from odi_assets.config.diagnostics.mistakes import Path
from odi_assets.config.models import (
    Connection,
    InputConfig,
    NodeConfig,
    PartitionConfig,
    PipelineConfig,
    ProjectConfig,
    ReadConfig,
    SystemConfig,
    TransformConfig,
    WriteConfig,
)
from odi_assets.config.models.shorthand import named_inputs, node_only
from odi_assets.config.yaml.document import Document

Model = TypeVar("Model", bound=BaseModel)
Kind = TypeVar("Kind", str, list[Any], dict[str, Any])


@dataclass
class PartialNode:
    """A node; a section that is not there, or that cannot be read, is None.

    Attributes:
        path: where the node is.
        data: its plain values.
        pipeline: its pipeline's name; empty when that is not readable.
        name: its name; empty likewise.
        shown: ``pipeline.name`` as messages may show it: variables as they are written.
        shown_name: the name alone, likewise.
        references: the nodes that it names in ``inputs`` and ``depends_on``, by path.
    """

    path: Path
    data: Mapping[str, Any]
    pipeline: str
    name: str
    shown: str
    shown_name: str
    read: ReadConfig | None
    transform: TransformConfig | None
    partition: PartitionConfig | None
    write: WriteConfig | None
    inputs: Mapping[str, InputConfig]
    references: dict[Path, str] = field(default_factory=dict)

    def gives(self, key: str) -> bool:
        """Tell whether the file gives it a key with something in it, readable or not."""
        return self.data.get(key) not in (None, [], {})

    def text(self, section: str, key: str) -> str:
        """Return a text of one of its sections; empty where there is none."""
        return _as(str, _as(dict, self.data.get(section)).get(key))


@dataclass
class PartialPipeline:
    """A pipeline; its name is empty when it is not readable."""

    path: Path
    name: str
    shown_name: str
    nodes: list[PartialNode] = field(default_factory=list)


@dataclass
class PartialProject:
    """The readable parts of a project file.

    Attributes:
        root: the file's folder.
        connections: by name, None where one is not readable; None as a whole where the file has no mapping of them.
        system_connection: the connection that ``system`` names, readable or not.
    """

    root: FilePath
    connections: Mapping[str, Connection | None] | None
    pipelines: list[PartialPipeline]
    system: SystemConfig | None
    system_connection: str

    def connection(self, name: str) -> Connection | None:
        """Return a connection that is readable, or None."""
        return (self.connections or {}).get(name)

    @property
    def nodes(self) -> Iterator[PartialNode]:
        """All nodes, in the order of the file."""
        return (node for pipeline in self.pipelines for node in pipeline.nodes)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], PartialNode]:
        """The first node of each pipeline and name."""
        found: dict[tuple[str, str], PartialNode] = {}
        for node in self.nodes:
            if node.name:
                found.setdefault((node.pipeline, node.name), node)
        return found

    def find(self, node: PartialNode, reference: str) -> PartialNode | None:
        """Return the node that a reference of ``node`` names, or None."""
        pipeline, _, name = reference.removeprefix("$").rpartition(".")
        return self.by_name.get((pipeline or node.pipeline, name))


def read_partial(document: Document, valid: ProjectConfig | None, root: FilePath) -> PartialProject:
    """Return what can be read of a project file.

    Args:
        document: what is in the file, variables filled in.
        valid: the same as models, where the models find nothing wrong.
        root: the file's folder.
    """
    data = document.data
    pipelines = [
        _pipeline(value, ("pipelines", i), document, valid.pipelines[i] if valid else None)
        for i, value in enumerate(_as(list, data.get("pipelines")))
        if isinstance(value, Mapping)
    ]
    return PartialProject(
        root=root,
        connections=valid.connections if valid else _connections(data.get("connections")),
        pipelines=pipelines,
        system=valid.system if valid else _salvage(SystemConfig, data.get("system")),
        system_connection=_as(str, _as(dict, data.get("system")).get("connection")),
    )


def _pipeline(data: Mapping[str, Any], path: Path, document: Document, valid: PipelineConfig | None) -> PartialPipeline:
    pipeline = PartialPipeline(path, *_name(data, path, "pipeline", document))
    for i, value in enumerate(_as(list, data.get("nodes"))):
        if isinstance(value, Mapping):
            node = valid.nodes[i] if valid else None
            pipeline.nodes.append(_node(value, (*path, "nodes", i), pipeline, document, node))
    return pipeline


_SECTIONS: dict[str, type[BaseModel]] = {
    "read": ReadConfig, "transform": TransformConfig, "partition": PartitionConfig, "write": WriteConfig,
}  # fmt: skip


def _node(
    data: Mapping[str, Any], path: Path, pipeline: PartialPipeline, document: Document, valid: NodeConfig | None
) -> PartialNode:
    name, shown_name = _name(data, path, "name", document)
    sections: dict[str, Any] = {
        key: getattr(valid, key) if valid else _salvage(model, data.get(key)) for key, model in _SECTIONS.items()
    }
    inputs = valid.inputs if valid else _inputs(data.get("inputs"))
    named = {(*path, "inputs", view, "node"): given.node for view, given in inputs.items()}
    needed = {(*path, "depends_on", i): _as(str, text) for i, text in enumerate(_as(list, data.get("depends_on")))}
    return PartialNode(
        path,
        data,
        pipeline.name,
        name,
        f"{pipeline.shown_name}.{shown_name}" if pipeline.name else shown_name,
        shown_name,
        inputs=inputs,
        references={at: text for at, text in {**named, **needed}.items() if text},
        **sections,
    )


def _name(data: Mapping[str, Any], path: Path, key: str, document: Document) -> tuple[str, str]:
    """Return a name, and the name as it is written in the file."""
    name = _as(str, data.get(key))
    return name, (document.places[*path, key].text or "") if name else ""


def _inputs(data: Any) -> dict[str, InputConfig]:
    try:
        named = _as(dict, named_inputs(data))
    except PydanticCustomError:
        return {}  # two inputs of one name: reported by the model; which one a later message would mean is not clear
    read = {view: _salvage(InputConfig, node_only(value)) for view, value in named.items()}
    return {view: given for view, given in read.items() if given is not None}


def _connections(data: Any) -> dict[str, Connection | None] | None:
    if not isinstance(data, Mapping):
        return None
    adapter: TypeAdapter[Connection] = TypeAdapter(Connection)
    found: dict[str, Connection | None] = {}
    for name, value in data.items():
        try:
            found[name] = adapter.validate_python(value)
        except ValidationError:
            found[name] = None
    return found


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


def _as(kind: type[Kind], value: Any) -> Kind:
    """Return a value of a kind; an empty one where it is of another kind."""
    return value if isinstance(value, kind) else kind()
