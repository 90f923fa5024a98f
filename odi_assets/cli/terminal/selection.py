"""The nodes that a command is about, by PIPELINE and ``--node``."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project


def selected_nodes(
    project: Project, pipeline: str | None, nodes: Sequence[str] | None, *, downstream: bool = False
) -> tuple[NodeKey, ...]:
    """The nodes meant by PIPELINE and ``--node``, in the order they run; with those below them, if asked for.

    Raises:
        ConfigError: there is no such pipeline or node.
    """
    if pipeline is not None and pipeline.endswith((".yaml", ".yml")):
        raise ConfigError(
            f"`{pipeline}` is a file, and a pipeline is named here", fix=f"name the file with -c {pipeline}"
        )
    keys = project.pipeline_nodes(pipeline, tuple(nodes or ()))
    return _with_downstream(project, keys) if downstream else keys


def _with_downstream(project: Project, keys: Sequence[NodeKey]) -> tuple[NodeKey, ...]:
    selected, waiting = set(keys), list(keys)
    while waiting:
        below = [key for key in project.graph.downstream(waiting.pop()) if key not in selected]
        selected.update(below)
        waiting += below
    return tuple(key for key in project.graph.order(None) if key in selected)


def pipelines_in_order(project: Project, keys: Sequence[NodeKey]) -> dict[str, list[NodeKey]]:
    """``keys`` by pipeline, each pipeline after those it reads from.

    Raises:
        ConfigError: two pipelines read from each other, so neither can run as a whole before the other.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for key in keys:
        sorter.add(key.pipeline)
        for above in project.graph.upstream(key):
            if above in keys and above.pipeline != key.pipeline:
                sorter.add(key.pipeline, above.pipeline)
    try:
        order = list(sorter.static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise ConfigError(
            f"these pipelines read from each other: {circle}", fix="run them one by one, with --node where needed"
        ) from error
    return {name: [key for key in keys if key.pipeline == name] for name in order}
