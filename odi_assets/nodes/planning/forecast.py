"""What a whole run would do: the plan of each node, given what the nodes before it would write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError
from odi_assets.nodes.planning.planner import NEW_DATA, plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.state.backend import StateBackend

if TYPE_CHECKING:
    from odi_assets.sources.losses import Loss


@dataclass
class Forecast:
    """What one node would do in a run.

    Attributes:
        action: ``write``; ``nothing``; ``follow``, if it depends on what the nodes before it write in the same run;
            ``error``.
        summary: what would be read, in words.
        facts: the plan as JSON-ready values; empty if there is no plan.
        error: why there is no plan.
        losses: what its table holds and a full refresh does not bring back.
    """

    key: NodeKey
    action: str
    summary: str
    facts: dict[str, Any] = field(default_factory=dict)
    error: OdiError | None = None
    losses: tuple[Loss, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The forecast as JSON-ready values: those of the plan, with action and summary of the whole run."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            **self.facts,
            "action": self.action,
            "summary": self.summary,
            "error": str(self.error) if self.error else None,
        }


def forecast(
    project: Project,
    state: StateBackend,
    keys: Sequence[NodeKey],
    request: RunRequest = NEW_DATA,
) -> list[Forecast]:
    """Forecasts of ``keys``, given in the order they run. Changes nothing; a node's error goes into its forecast."""
    found: dict[NodeKey, Forecast] = {}
    for key in keys:
        above = [up for up in project.graph.upstream(key) if up in found]
        writing = [up for up in above if found[up].action in {"write", "follow"}]
        idle = [up for up in above if found[up].action == "nothing"]
        waits = bool(missing_inputs(project, key, idle))
        found[key] = _forecast(project, state, key, writing, replace(request, inputs_wait=waits))
    return list(found.values())


def missing_inputs(project: Project, key: NodeKey, above: Iterable[NodeKey]) -> list[NodeKey]:
    """Those of the nodes ``above`` a node that are inputs of it, and have no table."""
    inputs = {project.graph.resolve(key, one.node) for one in project.graph.node(key).inputs.values() if one.node}
    return [up for up in above if up in inputs and not TableHandle.open(project.target(up)).exists]


def _forecast(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    writing: Sequence[NodeKey],
    request: RunRequest,
) -> Forecast:
    missing = [up for up in writing if not TableHandle.open(project.target(up)).exists]
    if missing:
        return Forecast(key, "follow", f"what {_names(missing, key)} will hold: not written yet")
    try:
        plan = plan_node(project, state, key, replace(request, accept_loss=True))
    except OdiError as error:
        return Forecast(key, "error", "cannot be planned, see below", error=error)
    if plan.nothing_new and writing:
        return Forecast(key, "follow", f"what {_names(writing, key)} will gain", plan.to_json())
    action = "nothing" if plan.nothing_new else "write"
    return Forecast(key, action, plan.summary, plan.to_json(), losses=plan.losses)


def _names(others: Sequence[NodeKey], key: NodeKey) -> str:
    return ", ".join(other.node if other.pipeline == key.pipeline else str(other) for other in others)
