"""A sensor per pipeline that requests a run of the nodes whose sources are ahead of their HWMs."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import Any

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.delta.position import table_position
from odi_assets.errors import OdiError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.orchestration.automation.attempts import RequestDecision, due_tags, verdict
from odi_assets.orchestration.automation.blocked import held_back
from odi_assets.orchestration.automation.left_behind import left_behind
from odi_assets.orchestration.automation.pipeline_job import PipelineJob
from odi_assets.orchestration.automation.source_lag import Positions, Watch
from odi_assets.orchestration.metadata import UP_TO_DATE
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.orchestration.runs.in_flight import increments_in_flight, project_tags
from odi_assets.orchestration.runs.reconcile import repair_history

POSITION_TAG = "odi/source_position"
PIPELINE_TAG = "odi/pipeline"
BUDGET = 40.0
"""Seconds that a tick may take to look at sources; Dagster ends a tick after 60."""
REPORTING = 8.0
"""Seconds of a tick for reports of sources that moved: of a new instance, of all."""
_MOST_NAMED = 20
_MOST_REMEMBERED = 2_000
"""Nodes in the cursor: databases hold 64 KiB of it."""


def new_data_sensor(project: Project, pipeline: str, job: PipelineJob, sources: Sources) -> dg.SensorDefinition | None:
    """``<pipeline>_new_data``, for the nodes whose sources tell their position without being read; None for none."""
    watched = sources.watched(pipeline)
    if not watched:
        return None
    watch = Watch(project, pipeline, watched, sources)

    @dg.sensor(
        name=f"{DagsterNames.of(project).pipeline(pipeline)}_new_data",
        job=job,
        minimum_interval_seconds=max(1, int(project.config.automation.interval.total_seconds())),
        default_status=default_status(project),
        description=f"Runs nodes of `{pipeline}` for which there are new files, table versions or rows, and those "
        "below them, but for nodes that an automation condition requests, and observes the sources. It looks at the "
        f"sources of {_some(f'`{key.node}`' for key in watch.nodes)}.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return evaluate(context, project, pipeline, watch=watch)

    return sensor


def default_status(project: Project) -> dg.DefaultSensorStatus:
    """Whether sensors that nobody has switched on or off run."""
    return dg.DefaultSensorStatus[project.config.automation.default_status.upper()]


def condition_sensor(project: Project) -> dg.AutomationConditionSensorDefinition:
    """Evaluates the conditions of the project's nodes, as Dagster's own sensor would: that one waits to be switched
    on."""
    names = DagsterNames.of(project)
    return dg.AutomationConditionSensorDefinition(
        names.of_project(project, "conditions"),
        target=dg.AssetSelection.assets(*map(names.asset, project.graph.nodes)),
        default_status=default_status(project),
        description=f"Requests nodes of {project.config.project} once their automation conditions hold.",
    )


def evaluate(
    context: dg.SensorEvaluationContext,
    project: Project,
    pipeline: str,
    now: float | None = None,
    watch: Watch | None = None,
) -> dg.RunRequest | dg.SkipReason:
    """One tick. HWMs and earlier runs decide whether to request a run. The cursor is displayed, and spares a new
    process looks of which the outcome is known.

    Args:
        now: the time, in seconds; by default, now.
        watch: remembers what earlier ticks saw.
    """
    watch = watch or Watch(project, pipeline)
    cursor = read_cursor(context.cursor)
    watch.recall(cursor.get("seen", {}), cursor.get("definition", ""))
    in_flight = increments_in_flight(project, context.instance)
    running = {key: run for key, run in in_flight.items() if key.pipeline == pipeline}
    if running.keys() >= set(watch.nodes):
        runs = {run.run_id: run for run in running.values()}.values()
        return dg.SkipReason(" ".join(f"Run {run.run_id} of {pipeline} is {run.status.value.lower()}." for run in runs))
    positions = watch.look(BUDGET, leave_out=tuple(running))
    watch.observe(context.instance, in_flight, REPORTING)
    automated = _automated(context, project, pipeline)
    repair_history(project, context.instance, nodes=watch.to_repair())
    unfollowed = [key for key in project.graph.order(pipeline) if key not in {*watch.nodes, *running, *automated}]
    positions, verdicts = _judged(context.instance, project, pipeline, positions, automated, unfollowed, now)
    reported = _tell(context, project, positions, verdicts, cursor.get("told", {}), unfollowed)
    context.update_cursor(_shown(watch, positions, reported))
    due = [key for key, decision in verdicts.items() if decision.due]
    chosen = _with_others(project, due, running.keys(), automated)
    held = {key: "it waits for nodes above it" for key in due if key not in chosen and key not in running}
    held |= held_back(context, project, chosen)
    wanted = [key for key in chosen if key not in held]
    due = [key for key in due if key in wanted]
    notes = " ".join(filter(None, [_notes(positions, verdicts, running), *(f"{k}: {why}." for k, why in held.items())]))
    if not wanted:
        return dg.SkipReason(notes if positions.ahead else f"{_nothing(positions)} {notes}".strip())
    context.log.info("Due: %s. %s", _list({key: positions.ahead[key] for key in due}), notes)
    # No run key: Dagster would not request a run with the key of one that failed.
    return dg.RunRequest(
        asset_selection=[DagsterNames.of(project).asset(key) for key in wanted],
        tags={
            **_own_tags(project, pipeline),
            POSITION_TAG: positions.fingerprint,
            **due_tags({key: positions.marks[key] for key in due}),
        },
    )


def _own_tags(project: Project, pipeline: str) -> dict[str, str]:
    return {**project_tags(project), PIPELINE_TAG: pipeline}


def _automated(context: dg.SensorEvaluationContext, project: Project, pipeline: str) -> set[NodeKey]:
    """The nodes of a pipeline that an automation condition requests, of the project file or of a user's own."""
    nodes = project.graph.order(pipeline)
    if context.repository_def is None:
        return {key for key in nodes if project.graph.node(key).automation is not None}
    graph, names = context.repository_def.asset_graph, DagsterNames.of(project)
    assets = {key: names.asset(key) for key in nodes}
    return {
        key for key, asset in assets.items() if graph.has(asset) and graph.get(asset).automation_condition is not None
    }


def _judged(
    instance: dg.DagsterInstance,
    project: Project,
    pipeline: str,
    positions: Positions,
    automated: Container[NodeKey],
    unfollowed: Sequence[NodeKey],
    now: float | None,
) -> tuple[Positions, dict[NodeKey, RequestDecision]]:
    """The positions, with the nodes among ``unfollowed`` that were left behind, and for which to request a run."""
    now = now or time.time()
    left, unseen = left_behind(project, instance, pipeline, unfollowed, now)
    verdicts = _verdicts(instance, project, positions, automated, now)
    verdicts |= {key: node.decision for key, node in left.items()}
    ahead = {key: node.text for key, node in left.items()}
    marks = {key: node.mark for key, node in left.items()}
    return positions.joined(ahead, marks, unseen), verdicts


def _verdicts(
    instance: dg.DagsterInstance, project: Project, positions: Positions, automated: Container[NodeKey], now: float
) -> dict[NodeKey, RequestDecision]:
    if not positions.ahead:
        return {}
    state, automation = project.open_state(), project.config.automation
    decisions = {}
    for key, mark in positions.marks.items():
        if key in automated:
            decisions[key] = RequestDecision(False, "its automation condition requests its runs")
            continue
        tags, follows = _own_tags(project, key.pipeline), key in positions.follow
        decisions[key] = verdict(instance, state, automation, tags, key, mark, now, follows=follows)
    return decisions


def _with_others(
    project: Project, due: Sequence[NodeKey], running: Iterable[NodeKey], automated: Set[NodeKey]
) -> list[NodeKey]:
    """The nodes of the run for ``due`` ones: those, what is below them in their pipeline, and what these need that was
    never run. Nodes whose increment is in flight are left out, and those below them: their turn comes after that. So
    are nodes that a condition requests, and those below one that was never run."""
    first = [key for key in automated if _never_ran(project, key)] if due else []
    graph, busy = project.graph, _with_below(project, [*running, *first]) | automated
    chosen: set[NodeKey] = set()
    waiting = list(due)
    while waiting:
        key = waiting.pop()
        if key in busy or key in chosen:
            continue
        chosen.add(key)
        waiting += [below for below in graph.downstream(key) if below.pipeline == key.pipeline]
        # A node that is not there yet cannot be read.
        waiting += [
            above for above in graph.upstream(key) if above.pipeline == key.pipeline and _never_ran(project, above)
        ]
    return [key for key in graph.order(None) if key in chosen]


def _with_below(project: Project, keys: Iterable[NodeKey]) -> set[NodeKey]:
    reached: set[NodeKey] = set()
    waiting = list(keys)
    while waiting:
        if (key := waiting.pop()) not in reached:
            reached.add(key)
            waiting += project.graph.downstream(key)
    return reached


def _never_ran(project: Project, key: NodeKey) -> bool:
    try:
        return table_position(project.target(key))["version"] is None
    except OdiError:
        # Something is there. The look at the nodes that read it shows what is wrong.
        return False


def _tell(
    context: dg.SensorEvaluationContext,
    project: Project,
    positions: Positions,
    verdicts: Mapping[NodeKey, RequestDecision],
    reported: Mapping[str, str],
    unfollowed: Iterable[NodeKey],
) -> dict[str, str]:
    """Say once, as the outcome of a node's check, that nothing more is requested for it or that its source cannot be
    looked at; and once that this is over. Returns what was said of which nodes.

    Args:
        unfollowed: nodes that follow no source and were looked at: what is not said of one is over.
    """
    now = {str(key): f"given up: {decision.reason}" for key, decision in verdicts.items() if decision.given_up}
    now |= {str(key): error for key, error in positions.errors.items()}
    seen = {str(key) for key in (*positions.ahead, *positions.current, *unfollowed)}
    for name, text in now.items():
        if reported.get(name, "").partition(":")[0] != text.partition(":")[0]:
            given_up = text.startswith("given up")
            severity = dg.AssetCheckSeverity.ERROR if given_up else dg.AssetCheckSeverity.WARN
            context.log.error("%s: %s", name, text)
            _report_check(context.instance, project, name, text, severity)
    for name in reported.keys() - now.keys():
        if name in seen:
            _report_check(context.instance, project, name, None, dg.AssetCheckSeverity.WARN)
    return {**{name: text for name, text in reported.items() if name not in seen}, **now}


def _report_check(
    instance: dg.DagsterInstance, project: Project, name: str, trouble: str | None, severity: dg.AssetCheckSeverity
) -> None:
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=DagsterNames.of(project).asset(NodeKey.parse(name)),
            check_name=UP_TO_DATE,
            passed=trouble is None,
            metadata={"trouble": trouble or "over: the source answers, or has moved"},
            severity=severity,
            description=trouble,
        )
    )


def _notes(
    positions: Positions, verdicts: Mapping[NodeKey, RequestDecision], running: Mapping[NodeKey, dg.DagsterRun]
) -> str:
    parts = [
        f"{key.node}: {positions.ahead[key]}. {decision.reason[:1].upper()}{decision.reason[1:]}."
        for key, decision in verdicts.items()
        if not decision.due
    ]
    parts += [f"{key}: {error}." for key, error in positions.errors.items()]
    if positions.unseen:
        parts.append(f"No time was left for {_some(str(key) for key in positions.unseen)}.")
    runs: dict[str, list[str]] = {}
    for key, run in running.items():
        runs.setdefault(f"Run {run.run_id} is {run.status.value.lower()}", []).append(key.node)
    parts += [f"{text}: {_some(nodes)}." for text, nodes in runs.items()]
    return " ".join(parts)


def _nothing(positions: Positions) -> str:
    if not positions.current:
        return "No source answered." if positions.errors else "Nothing to look at."
    return f"Nothing new: {_some(f'{key.node} at {text}' for key, text in positions.current.items())}."


def _list(nodes: Mapping[NodeKey, str]) -> str:
    return "; ".join(f"{key.node}: {text}" for key, text in nodes.items())


def _some(texts: Iterable[str]) -> str:
    names = list(texts)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def read_cursor(text: str | None) -> dict[str, Any]:
    """What an earlier tick left in the cursor; nothing, if it was written by hand or by an earlier version."""
    try:
        cursor = json.loads(text or "{}")
    except ValueError:
        return {}
    return cursor if isinstance(cursor, dict) else {}


def _shown(watch: Watch, positions: Positions, reported: Mapping[str, str]) -> str:
    groups = {"ahead": positions.ahead, "errors": positions.errors}
    shown: dict[str, Any] = {
        name: {str(key): text for key, text in nodes.items()} for name, nodes in groups.items() if nodes
    }
    seen, definition = watch.remember()
    if len(seen) <= _MOST_REMEMBERED:
        shown |= {"seen": seen, "definition": definition}
    return json.dumps({"position": positions.fingerprint, **shown, **({"told": reported} if reported else {})})
