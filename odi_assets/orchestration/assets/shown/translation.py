"""What a user shows of nodes otherwise than the project file does: keys, groups, owners, tags and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.nodes import node_asset
from odi_assets.orchestration.assets.sources import Sources

ShownAs = Callable[[NodeKey, dg.AssetSpec], dg.AssetSpec]
_DECIDED = {
    "deps": "give the node `inputs` or `depends_on` in the project file",
    "partitions_def": "give the node a `partition` in the project file",
    "code_version": "leave it out: it follows the node's definition",
    "skippable": "leave it out: a node's step always gives its table",
}
"""What the project file alone decides of a node, with what to do instead."""


@dataclass(frozen=True)
class Translation:
    """A project whose nodes are shown in another way.

    Attributes:
        project: with the keys that its nodes have in Dagster.
        specs: by node, its spec as the project file has it, and as it is shown.
    """

    project: Project
    specs: Mapping[NodeKey, tuple[dg.AssetSpec, dg.AssetSpec]] = field(default_factory=dict)

    def applied(self, key: NodeKey, asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
        """The asset of a node, as it is shown."""
        return asset.map_asset_specs(partial(self._shown, key)) if key in self.specs else asset

    def _shown(self, key: NodeKey, spec: dg.AssetSpec) -> dg.AssetSpec:
        own, shown = self.specs[key]
        shown_spec = shown.replace_attributes(key=spec.key, deps=spec.deps)
        if shown.automation_condition == own.automation_condition:
            # The node's own condition names assets above it, which have their keys by now.
            shown_spec = shown_spec.replace_attributes(automation_condition=spec.automation_condition)
        return shown_spec


def translated(project: Project, asset_spec: ShownAs) -> Translation:
    """A project whose nodes are shown as ``asset_spec`` gives their specs.

    Raises:
        ConfigError: it changes what the project file decides, or gives one key to two nodes.
    """
    sources = Sources(project)
    specs: dict[NodeKey, tuple[dg.AssetSpec, dg.AssetSpec]] = {}
    nodes: dict[dg.AssetKey, NodeKey] = {}
    for key in project.graph.order():
        (own,) = node_asset(project, key, sources).specs
        shown = asset_spec(key, own)
        for name, remedy in _DECIDED.items():
            if getattr(shown, name) != getattr(own, name):
                raise ConfigError(f"`{name}` of {key} is changed where it is shown", fix=remedy, node=str(key))
        if shown.key in nodes:
            raise ConfigError(
                f"{nodes[shown.key]} and {key} are both shown as `{shown.key.to_user_string()}`",
                fix="make the key of the node's pipeline and name, as in `{{ node.pipeline }}/{{ node.name }}`",
                node=str(key),
            )
        nodes[shown.key], specs[key] = key, (own, shown)
    keys = {key: tuple(shown.key.path) for key, (own, shown) in specs.items() if shown.key != own.key}
    return Translation(replace(project, asset_keys=keys), specs)
