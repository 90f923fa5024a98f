"""What the checks look at: the models of a project file, and where its nodes are in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from odi_assets.config.diagnostics.mistakes import Path
from odi_assets.config.models import Connection, NodeConfig, ProjectConfig
from odi_assets.config.yaml.document import YamlDocument


@dataclass(frozen=True)
class NodeView:
    """A node and where it is.

    Attributes:
        path: where the node is.
        pipeline: its pipeline's name; empty when that is not readable.
        config: the node. A name in it that is not readable is empty.
        shown_name: its name as messages may show it: variables as they are written.
        shown: the same as ``pipeline.name``.
    """

    path: Path
    pipeline: str
    config: NodeConfig
    shown_name: str
    shown: str


class ProjectView:
    """A project file as the checks see it.

    Attributes:
        config: the file as models. Of a file with mistakes, what :mod:`partial_project` could read of it.
        root: the file's folder.
        connections: by name, None where one is not readable; None as a whole where the file has no mapping of them.
        nodes: all nodes, in the order of the file.
        by_name: the first node of each pipeline and name.
        shown_pipelines: the names of the pipelines as messages may show them.
    """

    def __init__(self, config: ProjectConfig, document: YamlDocument, root: FilePath) -> None:
        self.config = config
        self.root = root
        self.connections: Mapping[str, Connection | None] | None = config.connections
        self.nodes: list[NodeView] = []
        self.by_name: dict[tuple[str, str], NodeView] = {}
        self.shown_pipelines: list[str] = []
        for i, pipeline in enumerate(config.pipelines):
            place = document.places.get(("pipelines", i, "pipeline"))
            shown_pipeline = (place and place.text) or ""
            self.shown_pipelines.append(shown_pipeline)
            for j, node in enumerate(pipeline.nodes):
                path: Path = ("pipelines", i, "nodes", j)
                place = document.places.get((*path, "name"))
                name = (place and place.text) or ""
                both = f"{shown_pipeline}.{name}" if pipeline.pipeline else name
                self.nodes.append(NodeView(path, pipeline.pipeline, node, name, both))
                if node.name:
                    self.by_name.setdefault((pipeline.pipeline, node.name), self.nodes[-1])

    def connection(self, name: str) -> Connection | None:
        """Return a connection that is readable, or None."""
        return (self.connections or {}).get(name)

    def find(self, node: NodeView, reference: str) -> NodeView | None:
        """Return the node that a reference of ``node`` names, or None."""
        pipeline, _, name = reference.removeprefix("$").rpartition(".")
        return self.by_name.get((pipeline or node.pipeline, name))
