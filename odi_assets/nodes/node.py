"""A node of a project: its configuration, its table, its sources, and the names it goes by in state and in logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import NodeConfig
from odi_assets.connections.location import Location
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.marks import Mark, node_value, value_of_source
from odi_assets.sources.registry import source_of
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
    """One node of ``project``.

    Raises:
        ConfigError: there is no such node.
    """

    project: Project
    key: NodeKey

    def __str__(self) -> str:
        return str(self.key)

    @cached_property
    def config(self) -> NodeConfig:
        return self.project.node(self.key)

    @cached_property
    def location(self) -> Location:
        """The node's Delta table."""
        return self.project.target(self.key)

    @property
    def state_key(self) -> str:
        """The key of its HWM in state."""
        return state_key(self.key, self.config)

    @property
    def command(self) -> str:
        """How the shell names it in ``odi run``."""
        return f"{self.key.pipeline} --node {self.key.node}"

    @cached_property
    def target(self) -> Target:
        """Its table, as its sources see it."""
        write = self.config.write
        return Target(str(self.key), self.location, write.mode.traits, bool(write.keys))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """What its ``read`` names, then its inputs."""
        config, project = self.config, self.project
        found = [] if config.read is None else [source_of(config.read, self.target, project.location)]
        for name, given in config.inputs.items():
            upstream = project.graph.resolve(self.key, given.node)
            found.append(
                DeltaTableSource(
                    name=name,
                    label=str(upstream),
                    target=self.target,
                    increment=given.incremental,
                    location=project.target(upstream),
                )
            )
        return tuple(found)

    @cached_property
    def following(self) -> tuple[str, ...]:
        """The names of the sources that keep a mark."""
        return tuple(source.name for source in self.sources if source.follows)

    @property
    def remembers(self) -> bool:
        """Whether the node keeps an HWM."""
        return bool(self.following)

    @property
    def waits_for(self) -> tuple[NodeKey, ...]:
        """The nodes of ``depends_on``: they run first, and what this node takes from them is not ours to see."""
        return tuple(self.project.graph.resolve(self.key, name) for name in self.config.depends_on)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that its table is partitioned by."""
        if self.config.write.partition_by:
            return self.config.write.partition_by
        return (self.config.partition.column,) if self.config.partition else ()

    def hwm(self, marks: Mapping[str, Mark]) -> Any:
        """The node's HWM, as state stores it, of the marks of its sources."""
        return node_value(marks, self.following)

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
