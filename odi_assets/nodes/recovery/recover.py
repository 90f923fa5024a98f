"""Repairs state from the tables' logs, as the next run would, for those who do not want to wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateConflictError
from odi_assets.nodes.commit_facts import CommitFacts, HwmOrigin
from odi_assets.nodes.mark import NodeMark, mark_text
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.start import committed_hwm, unrecorded_stamp
from odi_assets.nodes.planning.target_check import what_is_behind
from odi_assets.nodes.project import Project
from odi_assets.state.backend import StateBackend


@dataclass(frozen=True)
class Recovery:
    """An HWM that was committed and is not in state: its run died in between, or state was lost.

    Attributes:
        version: the version of the node's table whose commit carries it.
        run_id: the run that committed it.
        expected: the state revision that it replaces; None if the key is not set.
        origin: what the HWM is of.
    """

    key: NodeKey
    hwm_before: NodeMark | None
    hwm_after: NodeMark | None
    version: int
    run_id: str | None
    expected: int | None
    origin: HwmOrigin

    def to_json(self) -> dict[str, Any]:
        """The recovery as JSON-ready values."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "hwm_before": mark_text(self.hwm_before),
            "hwm_after": mark_text(self.hwm_after),
            "table_version": self.version,
            "run_id": self.run_id,
        }


def find_recovery(project: Project, state: StateBackend, key: NodeKey) -> Recovery | None:
    """The HWM of a node that state lacks; None if it lacks none. Changes nothing.

    Raises:
        ConfigError: there is no such node.
    """
    node = Node.of(project, key)
    if not node.following:
        return None
    entry = state.get_entry(node.state_key, deleted=True)
    target = TableHandle.open(node.target.location)
    stamp = unrecorded_stamp(app_id(node.key), entry, target)
    if stamp is None:
        return None
    current = entry if entry is not None and not entry.deleted else None
    after = committed_hwm(stamp)
    if after is None and current is None:
        return None
    return Recovery(
        key,
        NodeMark.in_state(current),
        after,
        stamp.version,
        CommitFacts.of(stamp).run_id,
        current.revision if current else None,
        CommitFacts.of(stamp).origin(target.table_id),
    )


def what_state_is_ahead_of(project: Project, state: StateBackend, key: NodeKey) -> str | None:
    """What became of the table of which state has an HWM, to complete "the table …"; None if it holds its rows.

    A recovery brings nothing back here: ``odi doctor`` names the ways on.
    """
    node = Node.of(project, key)
    entry = state.get_entry(node.state_key) if node.following else None
    target = None if entry is None else TableHandle.open(node.target.location)
    return None if entry is None or target is None else what_is_behind(key, entry, target, look_at_files=False)


def recover_hwm(project: Project, state: StateBackend, key: NodeKey) -> Recovery | None:
    """Write the HWM that state lacks, and say what was written; None if it lacks none, or a run was first."""
    while (recovery := find_recovery(project, state, key)) is not None:
        try:
            apply_recovery(project, state, recovery)
        except StateConflictError:
            continue
        return recovery
    return None


def apply_recovery(project: Project, state: StateBackend, recovery: Recovery) -> None:
    """Write the HWM that the table's log carries into state.

    Raises:
        StateConflictError: somebody else changed it since; their value stays.
    """
    name = Node.of(project, recovery.key).state_key
    if recovery.hwm_after is None:
        state.delete_hwm(name, expected_revision=recovery.expected)
        return
    state.compare_and_set(
        name,
        recovery.hwm_after.value,
        expected_revision=recovery.expected,
        target_commit=recovery.version,
        run_id=recovery.run_id,
        origin=recovery.origin.of_version(project.target(recovery.key), recovery.version).to_json(),
    )
