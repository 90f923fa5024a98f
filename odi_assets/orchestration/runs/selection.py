"""Which nodes a Dagster run holds."""

from __future__ import annotations

import dagster as dg

from odi_assets.config.graph import Graph, NodeKey
from odi_assets.orchestration.naming import asset_key


def nodes_of(job: dg.JobDefinition, graph: Graph) -> set[NodeKey]:
    """The nodes that a job, or the part of it that was selected for a run, materializes."""
    keys = job.asset_layer.executable_asset_keys
    return {key for key in graph.nodes if asset_key(key) in keys}


def skipped_with(key: NodeKey, graph: Graph, job: dg.JobDefinition) -> list[NodeKey]:
    """The nodes of a run that Dagster skips because ``key`` failed."""
    selected = nodes_of(job, graph)
    found: list[NodeKey] = []
    waiting = [key]
    while waiting:
        for below in graph.downstream(waiting.pop(0)):
            # Two nodes of the run do not wait for each other if only nodes outside the run connect them.
            if below in selected and below not in found:
                found.append(below)
                waiting.append(below)
    return found
