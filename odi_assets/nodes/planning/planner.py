"""The plan of one node: what it will read, how it will write, and the fence it will take. No Spark, no Dagster."""

from __future__ import annotations

from dataclasses import replace

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.fences import app_id, range_app_id
from odi_assets.nodes.planning.plan import NodePlan, combined_hwm
from odi_assets.nodes.planning.range_plan import bounded
from odi_assets.nodes.planning.range_support import require_ranges
from odi_assets.nodes.planning.read_scope import incremental
from odi_assets.nodes.planning.sources import hwm_of, memories, source_specs, waited_positions
from odi_assets.nodes.planning.starting_hwm import require_memory, trusted_hwm
from odi_assets.nodes.planning.target_check import require_target
from odi_assets.nodes.planning.time_range import Bounds
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.hwm_of_version import holds_rows_of_runs, remembers
from odi_assets.sources.reads import plan_source
from odi_assets.state.backend import StateBackend


def plan_node(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    *,
    full_refresh: bool = False,
    bounds: Bounds | None = None,
) -> NodePlan:
    """Decide what a run of ``key`` will do: look at state, the target's fence and the sources. Changes nothing.

    Raises:
        ConfigError: no such node, or it cannot be run with these bounds.
        TargetBehindStateError: state knows an HWM, and the target that should hold its rows is gone or older.
        IncrementError, SourceError, TableError: a source cannot be planned.
    """
    node = project.node(key)
    if bounds is not None:
        require_ranges(project, (key,), bounds)
    target = TableHandle.open(project.target(key))
    entry = state.get_entry(state_key(key, node), deleted=True)
    hwm, repaired = trusted_hwm(entry, target, app_id(key))
    if bounds is None and not full_refresh:
        require_target(key, state_key(key, node), hwm, entry, target)
        if node.write.mode is WriteMode.APPEND and any(spec.incremental for spec in source_specs(project, key)):
            require_memory(key, state_key(key, node), entry, target, app_id(key))
        # Without an HWM all is read; added to what earlier runs left in the table, it would be there twice.
        full_refresh = hwm is None and remembers(node) and holds_rows_of_runs(key, target)
    start = None if full_refresh or bounds is not None else hwm
    typed = repaired or entry is None or entry.value_type is not None
    known = memories(node, target, key, start, typed=typed)
    specs = source_specs(project, key, target.location if bounds is None else None)
    sources = {spec.name: plan_source(spec, hwm_of(start, spec, key), known.get(spec.name)) for spec in specs}
    plan = NodePlan(
        project=project,
        key=key,
        node=node,
        reads=tuple(source.plan for source in sources.values()),
        target=target,
        mode=node.write.mode,
        number=target.transaction_number(range_app_id(key) if bounds else app_id(key)) + 1,
        hwm_before=hwm,
        hwm_after=hwm,
        entry=entry,
        bounds=bounds,
        full_refresh=full_refresh,
        repaired=repaired,
        inputs={**waited_positions(project, key), **{name: s.plan.position for name, s in sources.items()}},
    )
    if bounds is not None:
        return bounded(plan, bounds)
    if full_refresh:
        return _with_hwm(replace(plan, mode=WriteMode.OVERWRITE, reads=tuple(r.whole() for r in plan.reads)))
    return _with_hwm(incremental(plan, sources))


def _with_hwm(plan: NodePlan) -> NodePlan:
    return plan if plan.nothing_new else replace(plan, hwm_after=combined_hwm(plan))
