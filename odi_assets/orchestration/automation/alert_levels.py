"""What is wrong for as long as it lasts: tables without new rows, nodes behind their sources, nodes given up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError
from odi_assets.monitoring.alerts.outbox import wanted
from odi_assets.nodes.history.capture_lag import lag_of
from odi_assets.nodes.history.freshness import freshness_of
from odi_assets.nodes.project import Project
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.orchestration.metadata import UP_TO_DATE
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunStatus

_LOOKED_BACK = 20


@dataclass(frozen=True)
class Levels:
    """What is wrong now.

    Attributes:
        wrong: by event, by node: what is wrong, in words.
        unknown: what could not be looked at, and why; what was wrong with it before may last.
        behind: by node that is behind its sources, since when, in seconds since 1970.
    """

    wrong: dict[str, dict[NodeKey, str]] = field(default_factory=dict)
    unknown: dict[NodeKey, str] = field(default_factory=dict)
    behind: dict[NodeKey, float] = field(default_factory=dict)


def look_at_levels(
    project: Project,
    instance: dg.DagsterInstance,
    watches: Sequence[Watch],
    behind: Mapping[str, float],
    now: float,
    seconds: float,
) -> Levels:
    """What is wrong now, as far as ``alerts`` of the project file asks for it.

    Args:
        watches: one for each pipeline.
        behind: by node, since when it was found to be behind.
        now: the time, in seconds since 1970.
        seconds: how long the look at sources may take.
    """
    levels, configs = Levels(), project.config.alerts
    if wanted(configs, "on_stale"):
        levels.wrong["on_stale"] = {}
        for key, text in _stale(project, datetime.fromtimestamp(now, UTC), levels.unknown):
            levels.wrong["on_stale"][key] = text
    if wanted(configs, "on_given_up"):
        levels.wrong["on_given_up"] = dict(_given_up(project, instance))
    if wanted(configs, "on_lag"):
        _look_at_sources(project, watches, behind, now, seconds, levels)
        longest = project.config.automation.max_lag.total_seconds()
        levels.wrong["on_lag"] = {
            key: f"Its sources have had something new for {_span(now - since)} that it has not read."
            for key, since in levels.behind.items()
            if now - since > longest
        } | dict(_captures_behind(project, levels.unknown))
    return levels


def _stale(project: Project, now: datetime, unknown: dict[NodeKey, str]) -> Iterator[tuple[NodeKey, str]]:
    for key in project.graph.order():
        try:
            freshness = freshness_of(project, key)
        except OdiError as error:
            unknown[key] = error.message
            continue
        if freshness is not None and freshness.gained is not None and freshness.is_stale(now):
            last = freshness.gained.isoformat(timespec="seconds")
            yield key, f"Its table gained rows last at {last}; `freshness` allows {freshness.within}."


def _given_up(project: Project, instance: dg.DagsterInstance) -> Iterator[tuple[NodeKey, str]]:
    names = DagsterNames.of(project)
    checks = {dg.AssetCheckKey(names.asset(key), UP_TO_DATE): key for key in project.graph.order()}
    storage = instance.event_log_storage
    latest = storage.get_latest_asset_check_execution_by_key([*checks])
    for check, key in checks.items():
        evaluation = _evaluation(latest.get(check))
        if check in latest and evaluation is None:
            # A run is to evaluate it, or failed before it did.
            history = storage.get_asset_check_execution_history(check, limit=_LOOKED_BACK)
            evaluation = next((earlier for record in history if (earlier := _evaluation(record)) is not None), None)
        # Of severity ERROR, only the sensor reports this check.
        if evaluation is not None and not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR:
            yield key, (evaluation.description or "").removeprefix("given up: ") + "."


def why_failed(project: Project, key: NodeKey) -> str:
    """What the last run of a node failed at, in it or in a node above it, or why it did not come to the node, as a
    sentence; empty if no run failed."""
    try:
        state = project.open_state()
        last = next(iter(state.list_runs(pipeline=key.pipeline, node=key.node, limit=1)), None)
        rows = state.list_runs(run_id=last.run_id) if last is not None and not last.status.succeeded else []
    except OdiError as error:
        return f"What the last run failed at cannot be read: {error.message}"
    failed = (row for row in rows if row.error and row.status is not RunStatus.SKIPPED)
    errors = {NodeKey(row.pipeline_name, row.node_name): row.error for row in failed}
    failed_node = next((above for above in _with_above(project, key) if above in errors), None)
    if failed_node is not None:
        return f"The last run failed at {failed_node}: {errors[failed_node]}"
    return f"The last run did not come to it: {last.error}" if last is not None and rows and last.error else ""


def _with_above(project: Project, key: NodeKey) -> Iterator[NodeKey]:
    """A node, and those above it, the nearest first."""
    waiting, seen = deque([key]), set[NodeKey]()
    while waiting:
        if (above := waiting.popleft()) not in seen:
            seen.add(above)
            waiting += project.graph.upstream(above)
            yield above


def _span(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _evaluation(record: AssetCheckExecutionRecord | None) -> dg.AssetCheckEvaluation | None:
    event = None if record is None or record.event is None else record.event.dagster_event
    if event is None or event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    return event.asset_check_evaluation_data


def _look_at_sources(
    project: Project,
    watches: Sequence[Watch],
    behind: Mapping[str, float],
    now: float,
    seconds: float,
    levels: Levels,
) -> None:
    """A node is behind since its sources were found ahead, or since it has last read them, whichever is later."""
    until, state = time.monotonic() + seconds, project.open_state()
    for watch in watches:
        positions = watch.look(max(1.0, until - time.monotonic()))
        levels.unknown.update(positions.errors)
        # Nodes that wait for the first run of others are behind with those.
        for key in positions.ahead.keys() - positions.follow:
            levels.behind[key] = max(behind.get(str(key), now), _last_read(state, key))
        for key in (*positions.errors, *positions.unseen):
            if str(key) in behind:
                levels.behind[key] = behind[str(key)]


def _last_read(state: StateBackend, key: NodeKey) -> float:
    rows = state.list_runs(pipeline=key.pipeline, node=key.node, limit=_LOOKED_BACK)
    return next((row.timestamp.timestamp() for row in rows if row.status.succeeded), 0.0)


def _captures_behind(project: Project, unknown: dict[NodeKey, str]) -> Iterator[tuple[NodeKey, str]]:
    for key in project.graph.order():
        if not project.graph.node(key).captures_server:
            continue
        try:
            capture_lag = lag_of(project, project.open_state(), key)
        except OdiError as error:
            unknown[key] = error.message
            continue
        if capture_lag is not None and capture_lag.is_beyond:
            yield key, capture_lag.text
