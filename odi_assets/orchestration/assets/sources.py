"""What nodes read from outside the project, as assets that Dagster shows but does not run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import ReadConfig
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import SOURCES_GROUP, Names


class Sources:
    """The sources of a project and which node reads which."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._nodes = {project.target(key).uri: key for key in project.graph.nodes}
        self._names = Names.of(project)
        self._made: dict[NodeKey, Node] = {}
        self._taken = {self._names.asset(key) for key in project.graph.nodes}
        self._reads: dict[dg.AssetKey, list[tuple[NodeKey, ReadConfig]]] = defaultdict(list)
        for key, node in project.graph.nodes.items():
            if node.read is not None and not self._written_by(key):
                self._reads[self._key(node.read)].append((key, node.read))

    def of(self, key: NodeKey) -> list[dg.AssetKey]:
        """What the node's ``read`` names: a source, or the node that writes the table it reads by its path."""
        node = self._project.graph.node(key)
        if node.read is None:
            return []
        writer = self._written_by(key)
        if writer is None:
            return [self._key(node.read)]
        return [] if writer in {key, *self._project.graph.upstream(key)} else [self._names.asset(writer)]

    def watched(self, pipeline: str) -> tuple[NodeKey, ...]:
        """The nodes of a pipeline with a source that tells its position without being read."""
        keys = self._project.graph.order(pipeline)
        return tuple(key for key in keys if any(source.watchable for source in self._node(key).sources))

    def specs(self) -> Iterable[dg.AssetSpec]:
        """One asset per source."""
        return [self._spec(key, readers) for key, readers in self._reads.items()]

    def _spec(self, key: dg.AssetKey, readers: list[tuple[NodeKey, ReadConfig]]) -> dg.AssetSpec:
        reads = [read for _, read in readers]
        connection = self._project.config.connections[reads[0].connection]
        shown = list(dict.fromkeys(read.shown for read in reads))
        return dg.AssetSpec(
            key,
            group_name=SOURCES_GROUP,
            kinds={read.format.value for read in reads},
            description=f"`{'`, `'.join(shown)}` of connection `{reads[0].connection}` ({connection.type}).",
            metadata={"dagster/uri": self._uri(readers[0][0])},
        )

    def _written_by(self, key: NodeKey) -> NodeKey | None:
        return self._nodes.get(self._uri(key))

    def _uri(self, key: NodeKey) -> str:
        return self._node(key).sources[0].uri

    def _node(self, key: NodeKey) -> Node:
        if key not in self._made:
            self._made[key] = Node.of(self._project, key)
        return self._made[key]

    def _key(self, read: ReadConfig) -> dg.AssetKey:
        found = self._names.source(read.connection, read.path)
        # A connection and a path may be named like a pipeline and a node.
        return found.with_prefix(SOURCES_GROUP) if found in self._taken else found
