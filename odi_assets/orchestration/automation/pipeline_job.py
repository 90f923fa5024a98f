"""The job of a pipeline, or of tags: the assets of Dagster, with what a user has added, without partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from odi_assets.orchestration.assets.conditions import require_conditions_that_hold
from odi_assets.orchestration.assets.nodes import node_asset
from odi_assets.orchestration.naming import DagsterNames, node_of

if TYPE_CHECKING:
    from dagster._core.definitions.asset_key import AssetOrCheckKey

    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project
    from odi_assets.orchestration.assets.sources import Sources


class PipelineJob(UnresolvedAssetJobDefinition):
    """A job of assets that have no partitions in it, whatever they have outside of it.

    A run of a pipeline takes in what is new and writes to whichever partitions its rows belong to. Dagster 1.13 runs a
    partitioned asset below another one only if the run names partitions. So the job replaces the nodes that have
    partitions. Dagster resolves a job once it knows all definitions of a code location. So the job has the checks,
    owners, tags and policies that a user has given to the assets, in merged ``Definitions`` for example.
    """

    _project: Project
    _nodes: tuple[NodeKey, ...]
    _sources: Sources | None

    @classmethod
    def of(
        cls, project: Project, name: str, nodes: Sequence[NodeKey], sources: Sources | None, **shown: Any
    ) -> PipelineJob:
        """A job of nodes: of all that a pipeline has, or of those with a tag.

        Args:
            name: of the pipeline, or of the job in the project file.
            sources: the project's sources, for a job whose nodes may have automation conditions.
            shown: what ``dagster.define_asset_job`` takes besides.
        """
        names = DagsterNames.of(project)
        selection = dg.AssetSelection.assets(*map(names.asset, nodes))
        made = cls(name=names.pipeline(name), selection=selection, **shown)
        made._project, made._nodes, made._sources = project, tuple(nodes), sources
        return made

    def resolve(
        self,
        asset_graph: AssetGraph,
        default_executor_def: dg.ExecutorDefinition | None = None,
        resource_defs: Mapping[str, dg.ResourceDefinition] | None = None,
    ) -> dg.JobDefinition:
        """The job, as Dagster asks for it: of the assets of ``asset_graph`` and the checks on them.

        Raises:
            ConfigError: a user's own automation condition does not fit its node.
        """
        if self._sources is not None:
            require_conditions_that_hold(self._project, asset_graph, self._nodes, self._sources)
        run: set[AssetOrCheckKey] = {*self.selection.resolve(asset_graph), *self.selection.resolve_checks(asset_graph)}
        above = {key for asset in asset_graph.assets_defs_for_keys(run) for key in asset.dependency_keys}
        assets = asset_graph.assets_defs_for_keys([*run, *(above & asset_graph.get_all_asset_keys())])
        graph = AssetGraph.from_assets([self._without_partitions(asset) for asset in assets])
        return super().resolve(graph, default_executor_def, resource_defs)

    def with_metadata(self, metadata: Mapping[str, Any]) -> PipelineJob:
        """The job with other metadata."""
        made = cast("PipelineJob", super().with_metadata(metadata))
        made._project, made._nodes, made._sources = self._project, self._nodes, self._sources
        return made

    def _without_partitions(self, asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
        key = node_of(self._project, asset.key) if asset.partitions_def is not None and len(asset.keys) == 1 else None
        if key is None:
            return asset
        policy = asset.node_def.retry_policy if isinstance(asset.node_def, dg.OpDefinition) else None
        node = node_asset(self._project, key, partitioned=False, checked=True, retry_policy=policy)
        return node.map_asset_specs(partial(_as_shown, asset))


def _as_shown(shown: dg.AssetsDefinition, spec: dg.AssetSpec) -> dg.AssetSpec:
    return shown.get_asset_spec(spec.key).replace_attributes(deps=spec.deps, partitions_def=None)
