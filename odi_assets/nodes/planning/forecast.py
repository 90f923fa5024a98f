"""What a whole run would do: the plan of each node, given what the nodes before it would write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError
from odi_assets.nodes.kinds import require_store
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.apply import AppliedLogs
from odi_assets.nodes.planning.known_rows import require_known_rows
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.planner import NEW_DATA, KnownHwms, plan_node
from odi_assets.nodes.planning.refresh import require_consent
from odi_assets.nodes.project import Project
from odi_assets.nodes.remedies import remedies_named, remedy_of
from odi_assets.nodes.request import RunRequest
from odi_assets.state.backend import StateBackend

if TYPE_CHECKING:
    from odi_assets.nodes.planning.start import Hwms
    from odi_assets.sources.losses import Loss


@dataclass(frozen=True)
class Forecast:
    """What one node would do in a run.

    Attributes:
        action: ``write``; ``nothing``; ``follow``, if it depends on what the nodes before it write in the same run;
            ``error``.
        summary: what would be read, in words.
        plan: None if the node cannot be planned, or not before others have written.
        error: why it cannot be planned, or what its run ends with.
        bytes: size of the files that would be read; an upper bound if the run has to read to know. None if not known.
    """

    key: NodeKey
    action: Literal["write", "nothing", "follow", "error"]
    summary: str
    plan: NodePlan | None = None
    error: OdiError | None = None
    bytes: int | None = None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What its table holds and a full refresh does not bring back."""
        return self.plan.losses if self.plan and self.action == "write" else ()

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The plan as JSON-ready values; empty if there is none."""
        return self.plan.to_json() if self.plan else {}

    def to_json(self) -> dict[str, Any]:
        """The forecast as JSON-ready values: the plan's, with action and summary of the whole run."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            **self.facts,
            "action": self.action,
            "summary": self.summary,
            "error": str(self.error) if self.error else None,
        }


def forecast(
    project: Project, state: StateBackend, keys: Sequence[NodeKey], request: RunRequest = NEW_DATA
) -> list[Forecast]:
    """Forecasts of ``keys``, given in the order they run. Changes nothing; a node's error goes into its forecast."""
    return list(forecasts(project, state, keys, request))


def forecasts(
    project: Project, state: StateBackend, keys: Sequence[NodeKey], request: RunRequest = NEW_DATA
) -> Iterator[Forecast]:
    """The same, one after the other: each is made when it is asked for."""
    forecast_by_key: dict[NodeKey, Forecast] = {}
    hwms, logs = _hwms(state, keys), AppliedLogs(project)
    for key in keys:
        above = [forecast_by_key[up] for up in project.graph.upstream(key) if up in forecast_by_key]
        writing = [node_forecast for node_forecast in above if node_forecast.action in {"write", "follow"}]
        inputs = table_inputs(project, key)
        waits = any(
            node_forecast.action == "nothing" and node_forecast.key in inputs and not _has_table(project, node_forecast)
            for node_forecast in above
        )
        forecast_by_key[key] = _forecast(logs, hwms, key, writing, replace(request, inputs_wait=waits))
        yield forecast_by_key[key]


def _hwms(state: StateBackend, keys: Sequence[NodeKey]) -> Hwms:
    """State for several nodes: looked at once, if that is possible; else each node says why it is not."""
    try:
        return KnownHwms.of(state) if len(keys) > 1 else state
    except OdiError:
        return state


def table_inputs(project: Project, key: NodeKey) -> set[NodeKey]:
    """The nodes whose tables are inputs of a node."""
    return {
        project.graph.resolve(key, node_input.node)
        for node_input in project.graph.node(key).inputs.values()
        if node_input.node
    }


def missing_inputs(project: Project, key: NodeKey, above: Iterable[NodeKey]) -> list[NodeKey]:
    """The nodes ``above`` a node that are inputs of it and have no table."""
    inputs = table_inputs(project, key)
    return [up for up in above if up in inputs and not TableHandle.open(project.target(up)).exists]


def _has_table(project: Project, node_forecast: Forecast) -> bool:
    return (
        node_forecast.plan.target if node_forecast.plan else TableHandle.open(project.target(node_forecast.key))
    ).exists


def _forecast(
    logs: AppliedLogs,
    state: Hwms,
    key: NodeKey,
    writing: Sequence[Forecast],
    request: RunRequest,
) -> Forecast:
    project = logs.project
    missing = [node_forecast.key for node_forecast in writing if not _has_table(project, node_forecast)]
    if missing:
        summary = f"what {_names(missing, key)} will hold: not written yet"
        stop = None if request.full_refresh else _stop_of_edit(project, key)
        if stop is not None:
            return Forecast(key, "error", summary, error=stop)
        return Forecast(key, "follow", summary, bytes=_first(project, key, writing))
    try:
        plan = plan_node(project, state, key, replace(request, accept_loss=True, log=logs.of(key)))
    except OdiError as error:
        return Forecast(key, "error", "cannot be planned, see below", error=error)
    stop = next((read.stop for read in plan.reads if read.stop is not None), None)
    if stop is not None:
        stop.fix = remedy_of(plan.node, stop.fix)
        return Forecast(key, "error", plan.summary, plan, error=stop)
    if not request.full_refresh:
        try:
            # Nobody was asked: such a run comes without a mark.
            require_consent(replace(plan, request=request), plan.losses)
            if not (plan.nothing_new or request.is_bounded or (plan.node.following and plan.start.hwm is None)):
                require_store(plan.node, plan.target)
        except OdiError as error:
            return Forecast(key, "error", plan.summary, plan, error=error)
    gains = [node_forecast.bytes for node_forecast in writing]
    if plan.nothing_new and writing:
        names = _names([node_forecast.key for node_forecast in writing], key)
        return Forecast(key, "follow", f"what {names} will gain", plan, bytes=_sum(plan.bytes_beside_gains, *gains))
    if plan.nothing_new:
        return Forecast(key, "nothing", plan.summary, plan, bytes=0)
    return Forecast(key, "write", plan.summary, plan, bytes=_sum(plan.bytes, *gains))


def _stop_of_edit(project: Project, key: NodeKey) -> OdiError | None:
    """What stops a node whose inputs are not written yet, as far as its definition and its own table say it."""
    node, target = Node.of(project, key), TableHandle.open(project.target(key))
    try:
        with remedies_named(node):
            require_known_rows(node, target)
    except OdiError as error:
        return error
    return None


def _first(project: Project, key: NodeKey, writing: Sequence[Forecast]) -> int | None:
    """What a node reads of nodes that write their tables for the first time, if it reads nothing else."""
    config = project.graph.node(key)
    others = table_inputs(project, key) - {node_forecast.key for node_forecast in writing}
    reads = config.read or any(node_input.read for node_input in config.inputs.values())
    return None if reads or others else _sum(*(node_forecast.bytes for node_forecast in writing))


def _sum(*sizes: int | None) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _names(others: Sequence[NodeKey], key: NodeKey) -> str:
    return ", ".join(other.node if other.pipeline == key.pipeline else str(other) for other in others)
