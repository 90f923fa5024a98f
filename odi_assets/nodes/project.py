"""A loaded project: its file, its graph of nodes, and where its tables and state are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from odi_assets.config.graph import Graph, NodeKey
from odi_assets.config.loader import load_project_file
from odi_assets.config.models import PipelineConfig, ProjectConfig
from odi_assets.config.models.connections import SCHEME
from odi_assets.connections.location import Location, resolve
from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.factory import create_state_backend
from odi_assets.util.collector import collector_paused

if TYPE_CHECKING:
    from odi_assets.state.delta.batches import BatchLog

DEFAULT_PROJECT_FILE = "odibi.yaml"
PROJECT_VARIABLE = "ODI_PROJECT"
ENVIRONMENT_VARIABLE = "ODI_ENV"


_shared: dict[tuple[Path, str | None], Project] = {}


@dataclass(frozen=True)
class Project:
    """A loaded project file with its graph of nodes.

    Attributes:
        path: the file, absolute.
        root: its folder; relative paths start from here.
        graph: its nodes, and which of them need which.
        environment: the environment of the state keys: from ``system``, else the project's.
        warnings: what is valid in the file but looks like a mistake.
        chosen: which of the file's ``environments`` was chosen; None for the file as it is.
        key_prefix: what other systems put before pipeline and node, so that several projects have different names.
        resource_prefix: what they put before the names of what its nodes share: Spark, state.
        asset_keys: what they call a node that they do not call by prefix, pipeline and node.
        places: by pipeline and node, the file and the line where the node is defined.
    """

    config: ProjectConfig
    path: Path
    root: Path
    graph: Graph
    environment: str | None
    warnings: tuple[str, ...] = ()
    chosen: str | None = None
    key_prefix: tuple[str, ...] = ()
    resource_prefix: str = ""
    asset_keys: Mapping[NodeKey, tuple[str, ...]] = field(default_factory=dict)
    places: Mapping[tuple[str, str], tuple[Path, int]] = field(default_factory=dict, repr=False, compare=False)
    _targets: dict[NodeKey, Location] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environment: str | None = None,
        *,
        nodes: Sequence[Callable[..., Any]] = (),
    ) -> Project:
        """Load ``path``, else the file that ``$ODI_PROJECT`` names, else ``odibi.yaml`` of the current folder.

        Args:
            environment: which of the file's ``environments``; the one that ``$ODI_ENV`` names unless given.
        nodes: functions decorated with ``@odi_assets.node``, in addition to the nodes of the file.

        Raises:
            ConfigErrors: all mistakes of the file.
        """
        chosen = environment or os.environ.get(ENVIRONMENT_VARIABLE) or None
        path = path or os.environ.get(PROJECT_VARIABLE) or DEFAULT_PROJECT_FILE
        with collector_paused():
            loaded = load_project_file(path, environment=chosen, functions=nodes)
        config = loaded.config
        of_state = (config.system.environment if config.system else None) or config.environment
        return cls(
            config, loaded.path, loaded.root, Graph(config), of_state, loaded.warnings, chosen, places=loaded.places
        )

    @classmethod
    def shared(cls, path: str | Path, chosen: str | None = None) -> Project:
        """The project that this process shares for ``path``, so that a run and its resources load it once.

        Args:
            chosen: which of the file's ``environments``.

        Raises:
            ConfigErrors: it was not loaded before, and the file has mistakes.
        """
        return _shared.get((Path(path), chosen)) or cls.load(path, chosen).share()

    def share(self) -> Project:
        """Make this the project of the process for its path, and return it."""
        _shared[self.path, self.chosen] = self
        return self

    @property
    def history(self) -> str:
        """Where the rows of its runs are: their table or file, and the environment that they are of.

        A place in the project's folder is named from there, so that the project may be moved.
        """
        system = self.config.system
        if system is None:
            location = Location(str(self.root / ".odibi"))
        else:
            location = self.location(system.connection, system.meta_runs_path or f"{system.path}/meta_runs")
        inside = f"{os.path.realpath(self.root)}/"
        return f"{location.true_path().removeprefix(inside)}#{self.environment or ''}"

    @cached_property
    def pipelines(self) -> Mapping[str, PipelineConfig]:
        """The pipelines by their names."""
        return {pipeline.pipeline: pipeline for pipeline in self.config.pipelines}

    @cached_property
    def nodes_by_asset(self) -> Mapping[tuple[str, ...], NodeKey]:
        """The nodes of :attr:`asset_keys`, by what they are called."""
        return {asset: key for key, asset in self.asset_keys.items()}

    def timezone_of(self, pipeline: str) -> str:
        """The time zone of a pipeline's schedule, and of the conditions of its nodes."""
        return self.pipelines[pipeline].timezone or self.config.automation.timezone

    def nodes_with(self, tags: Iterable[str]) -> tuple[NodeKey, ...]:
        """The nodes that have one of some tags, or whose pipeline has, in the order they run."""
        wanted = {*tags}
        return tuple(
            key
            for key in self.graph.order()
            if wanted & {*self.graph.node(key).tags, *self.pipelines[key.pipeline].tags}
        )

    def pipeline_nodes(self, pipeline: str | None = None, nodes: Sequence[str] = ()) -> tuple[NodeKey, ...]:
        """Nodes of a pipeline (of all, if None) in the order they run; if ``nodes`` names any, only those.

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

    def find_node(self, name: str) -> NodeKey | None:
        """The node that ``name`` means: `PIPELINE.NODE`, or `NODE` if one pipeline alone has it; None if there is none.

        Raises:
            ConfigError: several pipelines have one.
        """
        keys = [key for key in self.graph.nodes if name in (key.node, str(key))]
        if len(keys) > 1:
            names = ", ".join(map(str, keys))
            raise ConfigError(f"several pipelines have a node `{name}`", fix=f"name one of {names}")
        return keys[0] if keys else None

    def node_named(self, name: str) -> NodeKey:
        """The node that ``name`` means, as `find_node`.

        Raises:
            ConfigError: there is none, or several pipelines have one.
        """
        node_key = self.find_node(name)
        if node_key is None:
            raise _unknown("node", name, [str(key) for key in self.graph.nodes])
        return node_key

    def target(self, key: NodeKey) -> Location:
        """The node's Delta table."""
        if key not in self._targets:
            write = self.graph.node(key).write
            self._targets[key] = self.location(write.connection, write.path)
        return self._targets[key]

    def location(self, connection: str, path: str) -> Location:
        """A path on a connection of the project file."""
        return resolve(self.config.connections[connection], path, self.root, name=connection, retry=self.config.retry)

    def place(self, connection: str | None, path: str) -> Location:
        """A path on a connection; without one a URI, or a path from the project file's folder."""
        if connection is not None:
            return self.location(connection, path)
        return Location(path if SCHEME.match(path) else str(self.root / path))

    @property
    def stores(self) -> Location:
        """The folder of the state stores of nodes: ``stores`` beside ``meta_state``, or below ``.odibi``.

        A named environment has its stores in a folder of its name.
        """
        inside = f"stores/{self.environment}" if self.environment else "stores"
        system = self.config.system
        if system is None:
            return Location(str(self.root / ".odibi")).child(inside)
        folder = PurePosixPath(system.meta_state_path or f"{system.path}/meta_state").parent
        return self.location(system.connection, str(folder / inside))

    def open_batches(self) -> BatchLog:
        """The batches of the project's stream nodes: ``meta_batches`` beside ``meta_state``, or below ``.odibi``."""
        from odi_assets.delta.retry import Retry
        from odi_assets.state.delta.batches import BatchLog

        system = self.config.system
        if system is None:
            location = Location(str(self.root / ".odibi")).child("meta_batches")
        else:
            folder = PurePosixPath(system.meta_state_path or f"{system.path}/meta_state").parent
            location = self.location(system.connection, str(folder / "meta_batches"))
        return BatchLog(location, self.environment, Retry(self.config.retry))

    def store(self, key: NodeKey) -> Location:
        """The state store of a node, which its function may ask for."""
        return self.stores.child(str(key))

    def open_state(self) -> StateBackend:
        """The state backend that the project file names."""
        return create_state_backend(self.config, self.root)


def _unknown(what: str, name: str, known: Sequence[str]) -> ConfigError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(known) or 'none'}"
    return ConfigError(f"there is no {what} named `{name}`", fix=hint, name=name)
