"""The project as runs see it: its file, its graph, and where everything lives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from odi_assets.config.graph import Graph, NodeKey
from odi_assets.config.loader import load_project_file
from odi_assets.config.models import NodeConfig, ProjectConfig
from odi_assets.connections.location import Location, resolve
from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.factory import create_state_backend

DEFAULT_PROJECT_FILE = "odibi.yaml"
PROJECT_VARIABLE = "ODI_PROJECT"


_shared: dict[Path, Project] = {}


@dataclass(frozen=True)
class Project:
    """A loaded project file with its graph of nodes.

    Attributes:
        path: the file, absolute.
        root: its folder, which relative paths start from.
        warnings: what is not wrong in the file and worth a word.
    """

    config: ProjectConfig
    path: Path
    root: Path
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path | None = None) -> Project:
        """Load ``path``, else the file that ``$ODI_PROJECT`` names, else ``odibi.yaml`` of the current folder.

        Raises:
            ConfigErrors: all mistakes of the file.
        """
        loaded = load_project_file(path or os.environ.get(PROJECT_VARIABLE) or DEFAULT_PROJECT_FILE)
        return cls(loaded.config, loaded.path, loaded.root, loaded.warnings)

    @classmethod
    def shared(cls, path: str | Path) -> Project:
        """The project of this process that was loaded from ``path``: a run and its resources have one.

        Raises:
            ConfigErrors: it was not loaded yet, and the file has mistakes.
        """
        found = _shared.get(Path(path))
        return found if found is not None else cls.load(path).share()

    def share(self) -> Project:
        """Make this the project of the process for its path, and return it."""
        _shared[self.path] = self
        return self

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.config)

    @property
    def environment(self) -> str | None:
        """The environment that keys of state belong to: that of ``system`` goes before that of the project."""
        return (self.config.system.environment if self.config.system else None) or self.config.environment

    def node(self, key: NodeKey) -> NodeConfig:
        """The node's configuration.

        Raises:
            ConfigError: there is no such node.
        """
        try:
            return self.graph.nodes[key]
        except KeyError:
            raise _unknown("node", str(key), [str(other) for other in self.graph.nodes]) from None

    def pipeline_nodes(self, pipeline: str | None = None, nodes: Sequence[str] = ()) -> tuple[NodeKey, ...]:
        """Nodes of a pipeline (of all, if None) in the order they run; only those named in ``nodes``, if any are.

        Raises:
            ConfigError: no such pipeline, or no such node in it.
        """
        names = [p.pipeline for p in self.config.pipelines]
        if pipeline is not None and pipeline not in names:
            raise _unknown("pipeline", pipeline, names)
        order = self.graph.order(pipeline)
        if not nodes:
            return order
        for name in nodes:
            if not any(name in (key.node, str(key)) for key in order):
                where = f" of pipeline {pipeline}" if pipeline else ""
                raise _unknown(f"node{where}", name, [key.node if pipeline else str(key) for key in order])
        return tuple(key for key in order if key.node in nodes or str(key) in nodes)

    def target(self, key: NodeKey) -> Location:
        """The node's Delta table."""
        write = self.node(key).write
        return self.location(write.connection, write.path)

    def location(self, connection: str, path: str) -> Location:
        """A path on a connection of the project file."""
        return resolve(self.config.connections[connection], path, self.root, name=connection, retry=self.config.retry)

    def open_state(self) -> StateBackend:
        """The state backend that the project file names."""
        return create_state_backend(self.config, self.root)


def _unknown(what: str, name: str, known: Sequence[str]) -> ConfigError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(known)}"
    return ConfigError(f"there is no {what} named `{name}`", fix=hint, name=name)
