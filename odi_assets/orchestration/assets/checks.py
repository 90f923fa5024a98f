"""A node's asset checks, evaluated in the step that writes its rows: whether it is up to date, and what its rows are.

A run of checks alone reports what the last run has found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from dagster._core.events import DagsterEvent

from odi_assets.config.graph import NodeKey
from odi_assets.config.models.checks import Check
from odi_assets.errors import ChecksFailedError
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import CHECKS, ROWS_BELOW
from odi_assets.nodes.run_history import RunHistory
from odi_assets.orchestration.metadata import UP_TO_DATE, check_metadata, last_metadata
from odi_assets.state.records import RunRecord

_LOOKED_AT = 50
"""Rows of history that are asked for the last evaluated checks."""
_SHOWN = ("rows_failed", "rows", "severity", "samples")


def check_specs(project: Project, key: NodeKey, asset: dg.AssetKey) -> dict[str, dg.AssetCheckSpec]:
    """The checks of a node, by their names. Those that stop an increment are blocking."""
    node = project.graph.node(key)
    quarantines = node.quarantine is not None
    return {
        check.name: dg.AssetCheckSpec(
            check.name,
            asset=asset,
            description=_description(check, node.quarantine),
            blocking=check.blocks and not (quarantines and check.by_row),
        )
        for check in node.all_checks
    }


def up_to_date(project: Project, key: NodeKey, asset: dg.AssetKey, history: RunHistory) -> dg.AssetCheckResult:
    """Whether rows arrived at or below the node's high-water mark, and when it was looked at."""
    result = history.results.get(key)
    last = None if result is not None else _last_run(history, key)
    metrics = result.metrics if result is not None else {} if last is None else last.metrics
    return dg.AssetCheckResult(
        passed=not any(metrics.get(name) for name in ROWS_BELOW),
        severity=dg.AssetCheckSeverity.WARN,
        asset_key=asset,
        check_name=UP_TO_DATE,
        description=None
        if result is not None
        else "It has not run yet."
        if last is None
        else f"As of run {last.run_id[:8]}.",
        metadata=check_metadata(project, result) if result is not None else last_metadata(project, key, last),
    )


def _last_run(history: RunHistory, key: NodeKey) -> RunRecord | None:
    """The last run that looked at the node's sources and succeeded."""
    rows = history.state.list_runs(pipeline=key.pipeline, node=key.node, limit=_LOOKED_AT)
    return next((row for row in rows if row.status.succeeded), None)


def check_results(
    project: Project, key: NodeKey, asset: dg.AssetKey, history: RunHistory
) -> Iterator[dg.AssetCheckResult | dg.Output[None]]:
    """What a node's step gives for each of its checks, once its rows are committed. Where there was nothing new, the
    last increment's results count: Dagster would show checks without a result as skipped."""
    checks, result = project.graph.node(key).all_checks, history.results.get(key)
    metrics: Mapping[str, Any] = {} if result is None else result.metrics
    text = ""
    if checks and CHECKS not in metrics:
        metrics, text = _last(history, key)
    outcomes = {outcome["check"]: outcome for outcome in metrics.get(CHECKS) or ()}
    for check in checks:
        if check.name in outcomes:
            # The increment is committed: whatever failed did not stop it.
            yield _result(asset, outcomes[check.name], dg.AssetCheckSeverity.WARN, text)
        else:
            yield dg.Output(None, check.name)


def _last(history: RunHistory, key: NodeKey) -> tuple[Mapping[str, Any], str]:
    """The metrics of the last run of the node in which its checks were evaluated, and which run that was, in words."""
    for row in history.state.list_runs(pipeline=key.pipeline, node=key.node, limit=_LOOKED_AT):
        if row.metrics.get(CHECKS):
            return row.metrics, f" (nothing new since; run {row.run_id[:8]})"
    return {}, ""


def report_stopped(context: dg.OutputContext, error: ChecksFailedError) -> None:
    """Record the checks of an increment that was not committed. Its step gives no more events: it fails."""
    for outcome in error.checks:
        severity = dg.AssetCheckSeverity.WARN if outcome["severity"] == "warn" else dg.AssetCheckSeverity.ERROR
        result = _result(context.asset_key, outcome, severity)
        # An event of a step is stored when it is made.
        step = context.step_context
        DagsterEvent.asset_check_evaluation(step, result.to_asset_check_evaluation(step))


def _result(
    asset: dg.AssetKey, outcome: Mapping[str, Any], severity: dg.AssetCheckSeverity, text: str = ""
) -> dg.AssetCheckResult:
    shown = {name: _value(outcome[name]) for name in _SHOWN if outcome[name] not in (None, [])}
    return dg.AssetCheckResult(
        passed=bool(outcome["passed"]),
        asset_key=asset,
        check_name=outcome["check"],
        severity=severity,
        description=f"{outcome['text']}{text}",
        metadata=shown,
    )


def _value(value: Any) -> Any:
    return "\n".join(value) if isinstance(value, list) else value


def _description(check: Check, quarantine: str | None) -> str:
    config = check.config
    condition = config.expression or config.sql
    what = f"{check.kind} of {', '.join(check.columns)}" if check.columns else check.kind
    text = f"{what}: {condition}" if condition else what
    if not check.blocks:
        return f"{text}. Says so; the increment is committed."
    if quarantine is not None and check.by_row:
        return f"{text}. Rows that fail go to `{quarantine}`."
    return f"{text}. An increment that fails is not committed."
