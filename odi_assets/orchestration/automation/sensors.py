"""A sensor per pipeline that requests a run when a source is ahead of its HWM."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.orchestration.automation.source_lag import Positions, look, watched_nodes
from odi_assets.orchestration.naming import asset_key
from odi_assets.orchestration.runs.reconcile import repair_history, run_in_flight
from odi_assets.util.words import counted

POSITION_TAG = "odi/source_position"
INTERVAL = 30
"""Seconds between two ticks."""
BUDGET = 40.0
"""Seconds that a tick may take to look at sources; Dagster ends a tick after 60."""
FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0
"""Seconds until a run is requested again for a position that a run did not take in; doubled with each such run."""
_RECENT = 12


def new_data_sensor(project: Project, pipeline: str, job: dg.JobDefinition) -> dg.SensorDefinition | None:
    """``<pipeline>_new_data``; None if the pipeline has no source whose position is known without reading it."""
    watched = watched_nodes(project, pipeline)
    if not watched:
        return None

    @dg.sensor(
        name=f"{pipeline}_new_data",
        job=job,
        minimum_interval_seconds=INTERVAL,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Runs pipeline `{pipeline}` when there are new files, table versions or rows for "
        + ", ".join(f"`{key.node}`" for key in watched)
        + ".",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return evaluate(context, project, pipeline)

    return sensor


def evaluate(
    context: dg.SensorEvaluationContext, project: Project, pipeline: str, now: float | None = None
) -> dg.RunRequest | dg.SkipReason:
    """One tick. Its cursor is only displayed: HWMs and earlier runs decide whether to request a run."""
    keys = [asset_key(key) for key in project.graph.order(pipeline)]
    running = run_in_flight(context.instance, pipeline, keys)
    if running is not None:
        return dg.SkipReason(f"Run {running.run_id} of {pipeline} is {running.status.value.lower()}.")
    repair_history(project, context.instance, pipeline=pipeline)
    positions = look(project, pipeline, BUDGET)
    context.update_cursor(_shown(positions))
    if not positions.ahead:
        return dg.SkipReason(_nothing(positions))
    tries, ended = _tries(context.instance, pipeline, positions.fingerprint)
    wait = _wait(tries) - ((now or time.time()) - ended)
    if tries and wait > 0:
        return dg.SkipReason(
            f"{_list(positions.ahead)}. {counted(tries, 'run')} for this did not take it in; "
            f"the next one is requested in {wait:.0f} s.{_troubles(positions)}"
        )
    context.log.info("Ahead: %s.%s", _list(positions.ahead), _troubles(positions))
    # No run key: Dagster would not request a run with the key of one that failed.
    return dg.RunRequest(tags={POSITION_TAG: positions.fingerprint})


def _tries(instance: dg.DagsterInstance, pipeline: str, fingerprint: str) -> tuple[int, float]:
    """How many of the last dozen runs were for a position, and when the last of them ended."""
    records = instance.get_run_records(
        dg.RunsFilter(job_name=pipeline, tags={POSITION_TAG: fingerprint}), limit=_RECENT
    )
    ends = [record.end_time or record.update_timestamp.timestamp() for record in records]
    return len(records), max(ends, default=0.0)


def _wait(tries: int) -> float:
    return min(FIRST_WAIT * 2.0 ** (tries - 1), LONGEST_WAIT)


def _nothing(positions: Positions) -> str:
    seen = ", ".join(f"{key.node} at {text}" for key, text in positions.current.items())
    return f"Nothing new: {seen}.{_troubles(positions)}" if seen else f"No source answered.{_troubles(positions)}"


def _troubles(positions: Positions) -> str:
    text = "".join(f" {key}: {error}." for key, error in positions.errors.items())
    if positions.unseen:
        text += f" No time was left for {', '.join(str(key) for key in positions.unseen)}."
    return text


def _list(nodes: Mapping[NodeKey, str]) -> str:
    return "; ".join(f"{key.node}: {text}" for key, text in nodes.items())


def _shown(positions: Positions) -> str:
    groups = {"ahead": positions.ahead, "current": positions.current, "errors": positions.errors}
    shown = {name: {str(key): text for key, text in nodes.items()} for name, nodes in groups.items() if nodes}
    return json.dumps({"position": positions.fingerprint, **shown})
