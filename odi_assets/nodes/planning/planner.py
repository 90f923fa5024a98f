"""The plan of one node: what it will read, how it will write, and the fence it will take. No Spark, no Dagster."""

from __future__ import annotations

from dataclasses import replace

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id, range_app_id
from odi_assets.nodes.planning.increment import planned_increment
from odi_assets.nodes.planning.plan import NodePlan, WritePlan
from odi_assets.nodes.planning.start import Start, marks_of, require_memory, start_of
from odi_assets.nodes.planning.target_check import require_target
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.state.backend import StateBackend

NEW_DATA = RunRequest()
"""The request of a run that takes in what is new."""


def plan_node(project: Project, state: StateBackend, key: NodeKey, request: RunRequest = NEW_DATA) -> NodePlan:
    """Decide what a run of ``key`` will do: look at state, the target's fence and the sources. Changes nothing.

    Raises:
        ConfigError: no such node, or it cannot be run as requested.
        TargetBehindStateError: state knows an HWM, and the target that should hold its rows is gone or older.
        IncrementError, SourceError, TableError: a source cannot be planned.
    """
    node = Node.of(project, key)
    target = TableHandle.open(node.target.location)
    start = start_of(node, state.get_entry(node.state_key, deleted=True), target)
    fence = app_id(key) if request.bounds is None else range_app_id(key)
    plan = NodePlan(
        node,
        request,
        target,
        start,
        WritePlan(node.config.write.mode, fence, target.transaction_number(fence) + 1),
        reads=(),
        waited={str(other): TableHandle.open(project.target(other)).position for other in node.waits_for()},
    )
    if request.bounds is not None:
        from odi_assets.nodes.planning.range import planned_range

        return planned_range(plan, request.bounds)
    if request.full_refresh or _starts_over(node, start, target):
        return _full_refresh(plan)
    marks = marks_of(node, start, target)
    return planned_increment(replace(plan, reads=tuple(source.plan(marks.get(source.name)) for source in node.sources)))


def _starts_over(node: Node, start: Start, target: TableHandle) -> bool:
    """Whether the table has to be replaced: without an HWM all is read, and added to what earlier runs left in the
    table, it would be there twice.

    Raises:
        TargetBehindStateError: rows below the HWM are gone from the target.
        StateError: nothing tells any more up to where the table was loaded.
    """
    require_target(node, start, target)
    if not node.config.write.mode.traits.takes_rows_again and node.following:
        require_memory(node, start, target)
    return start.hwm is None and bool(node.following) and holds_rows_of_runs(node, target)


def holds_rows_of_runs(node: Node, target: TableHandle) -> bool:
    """Whether a node's table, as it stands, may hold rows of its increments: not if they were all undone."""
    if not target.transaction_number(app_id(node.key)):
        return False
    last = target.last_stamp(app_id(node.key))
    return last is None or not CommitFacts.of(last).before_first_run


def _full_refresh(plan: NodePlan) -> NodePlan:
    reads = tuple(source.plan(None).whole() for source in plan.node.sources)
    request = RunRequest(full_refresh=True)
    return replace(plan, request=request, write=replace(plan.write, mode=WriteMode.OVERWRITE), reads=reads)
