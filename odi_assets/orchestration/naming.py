"""Keys and names in Dagster of what the project file names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig, ReadConfig
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project

SOURCES_GROUP = "sources"
_RANGES = "ranges"
_GLOB = re.compile(r"[*?\[{]")
_EXTENSIONS = re.compile(r"(\.[A-Za-z0-9]{1,7}){1,2}$")


def asset_key(key: NodeKey) -> dg.AssetKey:
    """``[pipeline, node]``: the asset of a node of a project without a prefix."""
    return DagsterNames().asset(key)


def node_key(key: dg.AssetKey) -> NodeKey:
    """The node of an asset key that :func:`asset_key` made."""
    pipeline, node = key.path[-2:]
    return NodeKey(pipeline, node)


def node_of(project: Project, key: dg.AssetKey) -> NodeKey | None:
    """The node of an asset; None if it is the asset of somebody else."""
    if len(key.path) < 2 or tuple(key.path) in project.nodes_by_asset:
        return project.nodes_by_asset.get(tuple(key.path))
    node = node_key(key)
    return node if node in project.graph.nodes and DagsterNames.of(project).asset(node) == key else None


@dataclass(frozen=True)
class DagsterNames:
    """What a project's parts are called in Dagster. Two projects in one code location need different prefixes.

    Attributes:
        prefix: comes before pipeline and node in asset keys, and in names of jobs, sensors, schedules, steps and pools.
        resources: comes before the keys of resources.
        keys: nodes with a key of another form.
    """

    prefix: tuple[str, ...] = ()
    resources: str = ""
    keys: Mapping[NodeKey, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, project: Project) -> DagsterNames:
        """The names of a project."""
        return cls(project.key_prefix, project.resource_prefix, project.asset_keys)

    def asset(self, key: NodeKey) -> dg.AssetKey:
        """The asset of a node."""
        return dg.AssetKey(self.keys.get(key) or [*self.prefix, key.pipeline, key.node])

    def source(self, connection: str, path: str) -> dg.AssetKey:
        """The asset of a source."""
        return source_key(connection, path).with_prefix(self.prefix) if self.prefix else source_key(connection, path)

    def step(self, key: NodeKey, *, of_ranges: bool = False) -> str:
        """The step that takes in what is new of a node, as run configuration names it; or the step of its backfills."""
        return "__".join([*self.prefix, key.pipeline, key.node, *([_RANGES] if of_ranges else [])])

    def partitions(self, key: NodeKey) -> str:
        """The name under which Dagster keeps the partitions of a node that runs add."""
        return self.asset(key).to_user_string()

    def pipeline(self, pipeline: str) -> str:
        """The job of a pipeline, and its group of assets; or a job of nodes with a tag."""
        return "_".join([*self.prefix, pipeline])

    def of_project(self, project: Project, what: str) -> str:
        """Something that the project has one of: a sensor."""
        return "_".join([*self.prefix, _word(project.config.project), what])

    def system(self, project: Project, table: str) -> dg.AssetKey:
        """The asset of a system table. No other project in the code location has it."""
        return dg.AssetKey([*self.prefix, _word(project.config.project), "system", table])


def _word(text: str) -> str:
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def pool_of(project: Project, key: NodeKey, *, of_ranges: bool = False) -> str:
    """The pool of a node's step; of its backfills, which may run beside increments, it is another one.

    It begins with the environment, if that has a name: runs of a node wait for each other in each environment alone.
    """
    step = DagsterNames.of(project).step(key, of_ranges=of_ranges)
    return f"{'_'.join(project.environment.split())}__{step}" if project.environment else step


def source_keys(project: Project, read: ReadConfig) -> dict[dg.AssetKey, str]:
    """The assets of what a node reads from outside its pipeline, each with what is read there, in words.

    Raises:
        ConfigError: the key that the project file gives to one is a node's.
    """
    names = DagsterNames.of(project)
    if read.asset is not None and read.asset.key is not None:
        chosen = dg.AssetKey(read.asset.key)
        if (node := node_of(project, chosen)) is not None:
            raise ConfigError(
                f"`asset: {chosen.to_user_string()}` of a `read` is the asset of the node {node}",
                fix=f"give another key, or take the node as an input: `inputs: [{node}]`",
                node=str(node),
            )
        return {chosen: read.shown}
    shown_by_asset = {names.source(read.connection, path): shown for path, shown in read.places.items()}
    # A connection and a path may be named like a pipeline and a node.
    return {
        key.with_prefix(SOURCES_GROUP) if node_of(project, key) is not None else key: shown
        for key, shown in shown_by_asset.items()
    }


def partition_of(project: Project, key: NodeKey) -> PartitionConfig | None:
    """The partitions that a node has in Dagster; None if it has none there.

    A node that Dagster requests by a condition has none: a condition asks for partitions, and an increment is none.
    """
    node = project.graph.node(key)
    if node.partition is None or node.automation is not None:
        return None
    wanted = node.partition.in_dagster
    return node.partition if (project.config.automation.partitions if wanted is None else wanted) else None


def source_key(connection: str, path: str) -> dg.AssetKey:
    """The key of a source: its connection, then its path up to the first wildcard, without a file extension.

    ``landing`` and ``flights/2013-*.csv`` give ``[landing, flights]``; ``airlines.csv`` gives ``[landing, airlines]``.
    """
    parts: list[str] = []
    for part in path.strip("/").split("/"):
        if _GLOB.search(part):
            return dg.AssetKey([connection, *parts])
        if part not in ("", "."):
            parts.append(part)
    if parts:
        parts[-1] = _EXTENSIONS.sub("", parts[-1]) or parts[-1]
    return dg.AssetKey([connection, *parts])
