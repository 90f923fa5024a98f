"""Which nodes of a Dagster run do not run because another one ended."""

from __future__ import annotations

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import is_cancellation
from odi_assets.orchestration.runs.at_once import is_one_process, nodes_of


def skipped_with(project: Project, key: NodeKey, job: dg.JobDefinition, error: BaseException) -> list[NodeKey]:
    """The nodes of a run that do not run because ``key`` ended with ``error``: those below it; all others, if the run
    was cancelled and one process runs all of its steps."""
    selected = nodes_of(job, project)
    if is_cancellation(error) and is_one_process(project, job):
        return [other for other in project.graph.order(None) if other in selected and other != key]
    skipped: list[NodeKey] = []
    waiting = [key]
    while waiting:
        for below in project.graph.downstream(waiting.pop(0)):
            # Two nodes of the run do not wait for each other if only nodes outside the run connect them.
            if below in selected and below not in skipped:
                skipped.append(below)
                waiting.append(below)
    return skipped
