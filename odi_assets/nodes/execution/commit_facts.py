"""What a node's commit says of itself in the log of its table."""

from __future__ import annotations

from typing import Any

from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.result import PARTIAL, RunInfo
from odi_assets.sources.cursor.window import Memory
from odi_assets.state.values import encode


def commit_facts(plan: NodePlan, run: RunInfo) -> dict[str, Any]:
    """What the commit says of itself: enough to repair state from the target's log alone."""
    facts: dict[str, Any] = {
        "node": str(plan.key),
        "run_id": run.run_id,
        "attempt": run.attempt,
        "mode": plan.mode.value,
        "increment": plan.summary,
        "code_version": run.code_version,
        "positions": dict(plan.inputs),
        "state_revision": plan.entry.revision if plan.entry else 0,
        "state_updated_at": plan.entry.updated_at.isoformat() if plan.entry else None,
        "inputs": _input_versions(plan),
    }
    if run.partial:
        facts[PARTIAL] = True
    if plan.bounds is not None:
        facts["bounds"] = [plan.bounds.start.isoformat(), plan.bounds.end.isoformat()]
    if plan.moves_hwm:
        after = encode(plan.hwm_after)
        facts["hwm"] = {"value": after.json, "type": after.type}
        remembered = {read.name: found for read in plan.reads if (found := Memory.facts(read))}
        if remembered:
            facts["hwm"]["reads"] = remembered
    return facts


def _input_versions(plan: NodePlan) -> dict[str, int]:
    """By upstream node, the version of its table that the rows were read from: what a rewind there would undo here."""
    handles = {read.name: read.handle for read in plan.reads}
    found: dict[str, int] = {}
    for name, given in plan.node.inputs.items():
        handle = handles.get(name)
        if handle is not None and handle.version is not None:
            found[str(plan.project.graph.resolve(plan.key, given.node))] = handle.version
    return found
