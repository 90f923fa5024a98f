"""Nodes below which nothing runs for now, because a blocking check that a user gave them has failed.

Dagster keeps back what is below such a check within its run alone: the sensor's next run would read its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg
from dagster import AssetCheckKey
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.orchestration.metadata import UP_TO_DATE
from odi_assets.orchestration.naming import DagsterNames


def held_back(context: dg.SensorEvaluationContext, project: Project, wanted: Sequence[NodeKey]) -> dict[NodeKey, str]:
    """The nodes of ``wanted`` that are to wait, each with the reason. What runs before them in the same run does not
    hold them back: its checks are evaluated in it."""
    blocked: dict[NodeKey, str] = {}
    for key in _above(project, wanted) - {*wanted}:
        if failed := _failed(context, project, key):
            blocked[key] = f"the check `{failed}` of {key} has failed: evaluate it once more, or run {key}"
    reasons = {}
    for key in wanted:
        reason = next((blocked[up] for up in sorted(_above(project, [key]) & blocked.keys())), None)
        if reason is not None:
            reasons[key] = reason
    return reasons


def _above(project: Project, keys: Iterable[NodeKey]) -> set[NodeKey]:
    above: set[NodeKey] = set()
    waiting = list(keys)
    while waiting:
        for up in project.graph.upstream(waiting.pop()):
            if up not in above:
                above.add(up)
                waiting.append(up)
    return above


def _failed(context: dg.SensorEvaluationContext, project: Project, key: NodeKey) -> str | None:
    """The name of a blocking check of a node that did not pass when it was last evaluated; None if there is none.

    Checks of the project file do not count: an increment that they stop is not in the table.
    """
    if context.repository_def is None:
        return None
    graph, asset = context.repository_def.asset_graph, DagsterNames.of(project).asset(key)
    own = {UP_TO_DATE, *(check.name for check in project.graph.node(key).all_checks)}
    if not graph.has(asset):
        return None
    checks = [
        check
        for check in sorted(graph.get_check_keys_for_assets({asset}), key=lambda check: check.name)
        if check.name not in own and graph.get(check).blocking
    ]
    return next((check.name for check in checks if not _passed(context.instance, check)), None)


def _passed(instance: dg.DagsterInstance, check: AssetCheckKey) -> bool:
    """Whether a check passed, or was never evaluated. One of which a run ended before its turn came did not."""
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).get(check)
    if record is None or record.status is CheckStatus.SUCCEEDED:
        return True
    evaluation = None if record.event is None else record.event.asset_check_evaluation
    return evaluation is not None and evaluation.severity is dg.AssetCheckSeverity.WARN
