"""A sensor that says what is wrong with a project, to whom ``alerts`` of the project file names.

Dagster has sensors of its own for failed runs alone, one for each receiver. This one also sees runs of the shell and
what no run shows, and holds back what it has said. No secret is in its cursor, log or text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.monitoring.alerts.alert import Alert
from odi_assets.monitoring.alerts.outbox import Outbox, wanted
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.orchestration.automation.alert_levels import Levels, look_at_levels, why_failed
from odi_assets.orchestration.automation.alert_runs import ended_runs
from odi_assets.orchestration.automation.sensors import default_status, read_cursor
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.util.words import counted

LOOKING = 25.0
"""Seconds of a tick for looks at sources."""
DELIVERING = 15.0
"""Seconds of a tick in which deliveries begin; Dagster ends a tick after 60."""
_STATUS = {"on_stale": "STALE", "on_lag": "LAG", "on_given_up": "GIVEN UP"}
_MOST_REMEMBERED = 500


def alert_sensor(project: Project, sources: Sources) -> dg.SensorDefinition:
    """``<project>_alerts``."""
    config = project.config
    watches = [
        Watch(project, pipeline, nodes)
        for pipeline in project.pipelines
        if wanted(config.alerts, "on_lag") and (nodes := sources.watched(pipeline))
    ]
    receivers = ", ".join(f"{receiver.type} ({', '.join(receiver.on_events)})" for receiver in config.alerts)

    @dg.sensor(
        name=DagsterNames.of(project).of_project(project, "alerts"),
        minimum_interval_seconds=max(1, int(config.automation.interval.total_seconds())),
        default_status=default_status(project),
        description=f"Says what is wrong with {config.project}: {receivers}. Requests no runs.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return tick(context, project, watches)

    return sensor


def tick(
    context: dg.SensorEvaluationContext, project: Project, watches: Sequence[Watch], now: float | None = None
) -> dg.SkipReason:
    """One tick.

    Args:
        watches: of the pipelines whose sources are looked at.
        now: the time, in seconds since 1970; by default, now.
    """
    now = time.time() if now is None else now
    cursor = read_cursor(context.cursor)
    outbox = Outbox(project.config.alerts, cursor, now)
    alerts, seen = ended_runs(project, context.instance, cursor.get("seen", {}))
    levels = look_at_levels(project, context.instance, watches, cursor.get("behind", {}), now, LOOKING)
    changes, said = _changes(project, levels, cursor.get("said", {}))
    for alert in (*alerts, *changes):
        outbox.put(alert)
    outbox.deliver(context.log.warning, DELIVERING)
    for trouble in outbox.troubles:
        context.log.error(trouble)
    behind = dict(list({str(key): since for key, since in levels.behind.items()}.items())[:_MOST_REMEMBERED])
    context.update_cursor(json.dumps({"seen": seen, "said": said, "behind": behind, **outbox.remember()}))
    lasting = [f"{name}: {', '.join(nodes)}" for name, nodes in said.items() if nodes]
    notes = [f"{key} cannot be looked at: {why}" for key, why in levels.unknown.items()]
    what = f"{counted(outbox.delivered, 'alert')} delivered" if outbox.delivered else "Nothing to say"
    waiting = [f"{counted(outbox.waiting, 'alert')} wait{'s' * (outbox.waiting == 1)} for another try"]
    return dg.SkipReason(". ".join([what, *outbox.troubles, *waiting * bool(outbox.waiting), *lasting, *notes]) + ".")


def _changes(
    project: Project, levels: Levels, said: Mapping[str, Sequence[str]]
) -> tuple[list[Alert], dict[str, list[str]]]:
    """Alerts about what has begun or ended since the last look, and what lasts."""
    alerts: list[Alert] = []
    lasting: dict[str, list[str]] = {}
    for event, wrong in levels.wrong.items():
        before, unknown = set(said.get(event, ())), {str(key) for key in levels.unknown}
        now = {str(key): text for key, text in wrong.items()}
        for name in [name for name in now if name not in before]:
            more = why_failed(project, NodeKey.parse(name)) if event == "on_given_up" else ""
            alerts.append(_alert(project, event, name, _STATUS[event], f"{now[name]} {more}".strip()))
        known = {str(key) for key in project.graph.nodes}
        over = [name for name in sorted(before - now.keys()) if name in known and name not in unknown]
        alerts += [_alert(project, event, name, "OVER", f"`{_STATUS[event]}` is over.") for name in over]
        lasting[event] = [*now, *sorted((before & unknown) - now.keys())][:_MOST_REMEMBERED]
    return alerts, lasting


def _alert(project: Project, event: str, name: str, status: str, text: str) -> Alert:
    facts = {"node": str(NodeKey.parse(name))}
    return Alert(event, project.config.project, project.environment or "", name, status, text, facts)
