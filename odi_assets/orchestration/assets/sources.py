"""What nodes read from outside the project, as assets that Dagster shows but does not run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import chain

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import NodeConfig, ReadConfig
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.orchestration.metadata import columns_of
from odi_assets.orchestration.naming import SOURCES_GROUP, DagsterNames, source_keys
from odi_assets.sources.marks import READ
from odi_assets.sources.source import Source


def is_eager(config: NodeConfig) -> bool:
    """Whether Dagster requests a node once what it reads has changed, as the project file says."""
    return config.automation is not None and config.automation.on_cron is None


def is_watched(node: Node) -> bool:
    """Whether the sensor looks at a node: a source can say without being read that it is ahead, or that it has
    changed where Dagster waits for that."""
    return node.kind.follows_every_source or any(source.watchable or _awaited(node, source) for source in node.sources)


def looked_at(node: Node) -> list[Source]:
    """The sources of a node whose positions the sensor asks for."""
    every = node.kind.follows_every_source
    return [source for source in node.sources if every or source.follows or _awaited(node, source)]


def _awaited(node: Node, source: Source) -> bool:
    return is_eager(node.config) and bool(source.connection) and source.shows_changes


class Sources:
    """The sources of a project and which node reads which."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._nodes = {project.target(key).uri: key for key in project.graph.nodes}
        self._names = DagsterNames.of(project)
        self._made: dict[NodeKey, Node] = {}
        self._reads: dict[dg.AssetKey, list[tuple[str, ReadConfig, str]]] = defaultdict(list)
        """By source, where it is, who reads it, and what is read, in words."""
        self._outside: dict[NodeKey, list[tuple[ReadConfig, str]]] = {}
        """By node, what it reads from outside its pipeline, and where each is."""
        for key, config in project.graph.nodes.items():
            uris = {source.name: source.uri for source in self._node(key).sources}
            reads = [(read, uris[at[1] if len(at) > 1 else READ]) for at, read in config.reads.items()]
            self._outside[key] = reads
            for read, uri in reads:
                if uri in self._nodes and read.asset is not None:
                    raise ConfigError(
                        f"{key}: `asset` of its `read` is of no use: {self._nodes[uri]} writes that table",
                        fix="leave `asset` out: the table is the asset of that node",
                        node=str(key),
                    )
                if uri not in self._nodes:
                    for asset, shown in source_keys(project, read).items():
                        self._reads[asset].append((uri, read, shown))

    def of(self, key: NodeKey) -> list[dg.AssetKey]:
        """What the node reads from outside its pipeline: sources, or the nodes that write tables it reads by path."""
        known = {key, *self._project.graph.upstream(key)}
        assets: list[dg.AssetKey] = []
        for read, uri in self._outside[key]:
            writer = self._nodes.get(uri)
            if writer is None:
                assets += source_keys(self._project, read)
            elif writer not in known:
                assets.append(self._names.asset(writer))
        return list(dict.fromkeys(assets))

    def by_name(self, key: NodeKey) -> dict[str, list[dg.AssetKey]]:
        """The assets of what a node reads from outside the project, by the name of the source."""
        names = (at[1] if len(at) > 1 else READ for at in self._project.graph.node(key).reads)
        return {
            name: list(source_keys(self._project, read))
            for name, (read, uri) in zip(names, self._outside[key], strict=True)
            if uri not in self._nodes
        }

    @cached_property
    def readers(self) -> Mapping[dg.AssetKey, Collection[NodeKey]]:
        """The nodes that read each source."""
        nodes_by_source: dict[dg.AssetKey, set[NodeKey]] = defaultdict(set)
        for key in self._outside:
            for asset in chain.from_iterable(self.by_name(key).values()):
                nodes_by_source[asset].add(key)
        return nodes_by_source

    def unseen(self, key: NodeKey) -> list[dg.AssetKey]:
        """The assets of the project that a node reads and of which no sensor reports anything."""
        read = chain.from_iterable(self.by_name(key).values())
        return [asset for asset in read if self.owns(asset) and asset not in self._reported]

    @cached_property
    def _reported(self) -> Collection[dg.AssetKey]:
        reported: set[dg.AssetKey] = set()
        for key in self._outside:
            node, assets = self._node(key), self.by_name(key)
            for source in looked_at(node) if is_watched(node) else ():
                reported.update(assets.get(source.name, ()) if source.shows_changes else ())
        return reported

    def owns(self, asset: dg.AssetKey) -> bool:
        """Whether the asset of a source is the project's, and not somebody else's."""
        return not all(read.asset is not None and read.asset.is_elsewhere for _, read, _ in self._reads[asset])

    def watched(self, pipeline: str) -> tuple[NodeKey, ...]:
        """The nodes of a pipeline that its sensor looks at."""
        return tuple(key for key in self._project.graph.order(pipeline) if is_watched(self._node(key)))

    def specs(self) -> Iterable[dg.AssetSpec]:
        """One asset per source, but for those that somebody else defines, with the key that the project file gives."""
        return [self._spec(key, readers) for key, readers in self._reads.items() if self.owns(key)]

    def _spec(self, key: dg.AssetKey, readers: list[tuple[str, ReadConfig, str]]) -> dg.AssetSpec:
        reads = [read for _, read, _ in readers]
        connection = self._project.config.connections[reads[0].connection]
        shown = list(dict.fromkeys(text for _, _, text in readers))
        assets = [read.asset for read in reads if read.asset is not None]
        return dg.AssetSpec(
            key,
            group_name=next((asset.group for asset in assets if asset.group), SOURCES_GROUP),
            owners=list(dict.fromkeys(owner for asset in assets for owner in asset.every_owner)),
            deps=list(dict.fromkeys(dg.AssetKey(above) for asset in assets for above in asset.upstream)),
            kinds={read.format for read in reads},
            description=f"`{'`, `'.join(shown)}` of connection `{reads[0].connection}` ({connection.type}).",
            metadata={"dagster/uri": readers[0][0], **_declared(reads)},
        )

    def _node(self, key: NodeKey) -> Node:
        if key not in self._made:
            self._made[key] = Node.of(self._project, key)
        return self._made[key]


def _declared(reads: Iterable[ReadConfig]) -> dict[str, dg.TableSchema]:
    """The columns of a source, if the project file declares them: column lineage leads to them."""
    ddl = next((read.declared for read in reads if read.declared is not None), None)
    columns = () if ddl is None else columns_of(ddl)
    return {"dagster/column_schema": dg.TableSchema.from_name_type_dict(dict(columns))} if columns else {}
