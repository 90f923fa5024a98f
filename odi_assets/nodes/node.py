"""A node of a project: its configuration, its table, its sources, and the names it goes by in state and in logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import NodeConfig
from odi_assets.sources.marks import Mark, value_of_source
from odi_assets.sources.registry import source_of, table_source
from odi_assets.sources.source import Source, Target

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project


def app_id(key: NodeKey) -> str:
    """The Delta app transaction that fences a node's increments and full refreshes."""
    return f"odi_assets:{key}"


def range_app_id(key: NodeKey) -> str:
    """The Delta app transaction of a node's bounded commits, which leave the fence of its increments alone."""
    return f"{app_id(key)}:range"


def app_ids(key: NodeKey) -> tuple[str, str]:
    """Both: that of increments and full refreshes, and that of bounded runs."""
    return app_id(key), range_app_id(key)


@dataclass(frozen=True)
class Node:
    """One node of ``project``; make it with :meth:`of`.

    Attributes:
        state_key: the key of its HWM in state.
        target: its table, as its sources see it.
        partition_by: the columns that its table is partitioned by.
    """

    project: Project
    key: NodeKey
    config: NodeConfig
    state_key: str
    target: Target
    partition_by: tuple[str, ...]

    @classmethod
    def of(cls, project: Project, key: NodeKey) -> Node:
        """The node ``key``.

        Raises:
            ConfigError: there is no such node.
        """
        config = project.node(key)
        write, partition = config.write, config.partition
        target = Target(str(key), project.target(key), write.mode.traits, bool(write.keys))
        partition_by = write.partition_by or ((partition.column,) if partition else ())
        return cls(project, key, config, state_key(key, config), target, partition_by)

    def __str__(self) -> str:
        return str(self.key)

    @property
    def command(self) -> str:
        """How the shell names it in ``odi run``."""
        return f"{self.key.pipeline} --node {self.key.node}"

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """What its ``read`` names, then its inputs.

        Raises:
            ConfigError: a connection cannot be resolved.
        """
        config, project = self.config, self.project
        found: list[Source] = []
        if config.read is not None:
            connection = project.config.connections[config.read.connection]
            found.append(source_of(config.read, self.target, connection, project.location))
        for name, given in config.inputs.items():
            upstream = project.graph.resolve(self.key, given.node)
            table = project.target(upstream)
            found.append(table_source(name, str(upstream), self.target, given.incremental, table))
        return tuple(found)

    @cached_property
    def following(self) -> tuple[str, ...]:
        """The names of the sources that keep a mark; none for a node that keeps no HWM."""
        return tuple(source.name for source in self.sources if source.follows)

    def waits_for(self) -> tuple[NodeKey, ...]:
        """The nodes of ``depends_on``: they run first, and what this node takes from them is not ours to see."""
        return tuple(self.project.graph.resolve(self.key, name) for name in self.config.depends_on)

    def marks(self, hwm: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> dict[str, Mark]:
        """The marks of its sources that a stored HWM holds.

        Args:
            remembered: by source, what the commit of the HWM remembers beside it.
            typed: False for an HWM that another tool stored without its type.

        Raises:
            IncrementError: the HWM is not one of this node.
        """
        found: dict[str, Mark] = {}
        for source in self.sources:
            if source.follows:
                value = value_of_source(hwm, source.name, self.following, str(self.key))
                if value is not None:
                    found[source.name] = source.mark(value, remembered.get(source.name) or {}, typed=typed)
        return found
