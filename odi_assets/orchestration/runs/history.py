"""The run history of a Dagster run: what Dagster knows of the run, for the rows of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.events import Listener, nobody
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.orchestration.runs.in_flight import nodes_of_job
from odi_assets.state.backend import StateBackend

TRIGGER_TAG = "odi/trigger"
BACKFILL_TAG = "dagster/backfill"
_TRIGGERS = {"dagster/schedule_name": "schedule", "dagster/sensor_name": "sensor", BACKFILL_TAG: "backfill"}


def run_trigger(run: dg.DagsterRun) -> str:
    """What started a run: ``cli``, ``schedule``, ``sensor``, ``backfill``, or ``manual`` from the UI or from Python."""
    if TRIGGER_TAG in run.tags:
        return run.tags[TRIGGER_TAG]
    return next((trigger for tag, trigger in _TRIGGERS.items() if tag in run.tags), "manual")


def is_partial(run: dg.DagsterRun, project: Project, pipeline: str) -> bool:
    """Whether a run is of only some of the pipeline's nodes."""
    nodes, chosen, names = project.graph.order(pipeline), run.asset_selection, DagsterNames.of(project)
    if not chosen:
        of_job = nodes_of_job(project, run.job_name)
        return of_job is not None and not {*nodes} <= {*of_job}
    return any(names.asset(key) not in chosen for key in nodes)


@dataclass
class DagsterRunHistory(RunHistory):
    """The history of one Dagster run.

    Attributes:
        shown_idle: nodes with nothing to do that were reported as materialized (see ``io_manager.idle_nodes_shown``).
    """

    shown_idle: set[NodeKey] = field(default_factory=set)

    @classmethod
    def of_run(
        cls,
        project: Project,
        state: StateBackend,
        run: dg.DagsterRun,
        listener: Listener = nobody,
        results: dict[NodeKey, NodeResult] | None = None,
    ) -> DagsterRunHistory:
        """The history of ``run``, which puts the results of its nodes into ``results``, if that is given."""
        return cls(
            project,
            state,
            run.run_id,
            run_trigger(run),
            int(run.tags.get("dagster/retry_number", 0)),
            partial(is_partial, run, project),
            listener,
            {} if results is None else results,
        )
