"""The nodes of a project, and which of them each node needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError
from types import MappingProxyType

from odi_assets.config.diagnostics.mistakes import closest
from odi_assets.config.models import NodeConfig, ProjectConfig
from odi_assets.errors import ConfigError
from odi_assets.util.graphs import find_cycles, topological_order


@dataclass(frozen=True, order=True)
class NodeKey:
    """A node's identity: its pipeline and its name. As text, ``pipeline.node``."""

    pipeline: str
    node: str

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.node}"

    @classmethod
    def parse(cls, text: str) -> NodeKey:
        """Return the key for ``pipeline.node``, or Odibi's ``$pipeline.node``.

        Raises:
            ConfigError: the text is something else.
        """
        pipeline, dot, node = text.removeprefix("$").partition(".")
        if not (dot and pipeline and node) or "." in node:
            raise ConfigError(f"`{text}` names no node", fix="write `pipeline.node`, as in `flights.raw_flights`")
        return cls(pipeline, node)

    def resolve(self, reference: str) -> NodeKey:
        """Return the key that a reference of this node means: ``node`` of the same pipeline, or ``pipeline.node``."""
        name = reference.removeprefix("$")
        return NodeKey.parse(name) if "." in name else NodeKey(self.pipeline, name)


class Graph:
    """The nodes of a project and their dependencies, ``inputs`` and ``depends_on`` together.

    Raises:
        ConfigError: a reference names no node, or nodes depend on each other in a circle. A configuration that the
            loader returned has neither.
    """

    def __init__(self, config: ProjectConfig) -> None:
        self.nodes: Mapping[NodeKey, NodeConfig] = MappingProxyType(
            {NodeKey(pipeline.pipeline, node.name): node for pipeline in config.pipelines for node in pipeline.nodes}
        )
        self._upstream = {
            key: tuple(dict.fromkeys(self.resolve(key, name) for name in node.references.values()))
            for key, node in self.nodes.items()
        }
        self._downstream: dict[NodeKey, list[NodeKey]] = {key: [] for key in self.nodes}
        for key, needed in self._upstream.items():
            for other in needed:
                self._downstream[other].append(key)
        try:
            self._order = topological_order(self._upstream)
        except CycleError:
            circle = find_cycles(self._upstream)[0][::-1]
            text = f"nodes depend on each other in a circle: {' → '.join(map(str, circle))}"
            raise ConfigError(text, cycle=circle) from None

    def node(self, key: NodeKey) -> NodeConfig:
        """Return a node's configuration.

        Raises:
            ConfigError: there is no such node.
        """
        if key not in self.nodes:
            raise _no_such_node(key, self.nodes)
        return self.nodes[key]

    def resolve(self, key: NodeKey, reference: str) -> NodeKey:
        """Return the node that a reference of another means: ``node`` of its pipeline, or ``pipeline.node``.

        Raises:
            ConfigError: there is no such node.
        """
        node_key = key.resolve(reference)
        if node_key not in self.nodes:
            raise _no_such_node(node_key, self.nodes, needed_by=key)
        return node_key

    def upstream(self, key: NodeKey) -> tuple[NodeKey, ...]:
        """Return the nodes that a node needs directly: its inputs, then what it depends on; each once."""
        self.node(key)
        return self._upstream[key]

    def downstream(self, key: NodeKey) -> tuple[NodeKey, ...]:
        """Return the nodes that need a node directly, in the order of the file."""
        self.node(key)
        return tuple(self._downstream[key])

    def order(self, pipeline: str | None = None) -> tuple[NodeKey, ...]:
        """Return the nodes of a pipeline, or all, each after what it needs; else in the order of the file.

        Raises:
            ConfigError: there is no such pipeline.
        """
        if pipeline is None:
            return self._order
        keys = tuple(key for key in self._order if key.pipeline == pipeline)
        if not keys:
            names = list(dict.fromkeys(key.pipeline for key in self.nodes))
            meant = closest(pipeline, names)
            fix = f"did you mean `{meant}`?" if meant else f"pipelines here: {', '.join(names) or 'none'}"
            raise ConfigError(f"there is no pipeline `{pipeline}`", fix=fix, pipeline=pipeline)
        return keys


def _no_such_node(key: NodeKey, nodes: Iterable[NodeKey], needed_by: NodeKey | None = None) -> ConfigError:
    known = {str(node): node for node in nodes}
    same_name = [text for text, node in known.items() if node.node == key.node]
    meant = same_name[0] if len(same_name) == 1 else closest(str(key), known)
    fix = f"did you mean `{meant}`?" if meant else f"nodes here: {', '.join(known) or 'none'}"
    by = f", which `{needed_by}` needs" if needed_by else ""
    return ConfigError(f"there is no node `{key}`{by}", fix=fix, node=str(key))


def state_key(key: NodeKey, node: NodeConfig) -> str:
    """Return the key of a node's high-water mark: ``<pipeline>.<node>``, unless its increment gives a ``state_key``."""
    state_keys = (getattr(increment, "state_key", None) for increment in node.increments.values())
    return next(filter(None, state_keys), str(key))
