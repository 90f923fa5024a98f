"""Going on with a table as it is, whatever became of it."""

from __future__ import annotations

from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.restore import forget_missing_files, missing_files
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.files import ledger
from odi_assets.sources.marks import FilesMark
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import NO_TABLE, HwmEntry


def accept(project: Project, state: StateBackend, key: NodeKey) -> HwmEntry | None:
    """Take a node's table as what its HWM stands for, whatever became of it; None if the node has no HWM.

    The next run goes on above the HWM: what the table no longer holds is not loaded again. Files of it that are gone
    leave it in a commit, for no reader could read it otherwise.

    Raises:
        StateConflictError: somebody else changed the HWM since.
    """
    node = Node.of(project, key)
    entry = state.get_entry(node.state_key)
    if entry is None:
        return None
    target = TableHandle.open(node.target.location)
    if target.exists and missing_files(target.location, target.live_files):
        forget_missing_files(target)
        target = target.refreshed()
    commit = NO_TABLE if target.version is None else target.version
    value = _without_lost_ledger(entry.value, target)
    return state.compare_and_set(node.state_key, value, expected_revision=entry.revision, target_commit=commit)


def _without_lost_ledger(hwm: Any, target: TableHandle) -> Any:
    """``hwm`` as it says by itself which files were loaded, if the ledger that it names left with its table."""
    if not isinstance(hwm, dict) or "ledger" not in hwm:
        return hwm
    parts = FilesMark.of(hwm, str(target.location)).parts or ()
    return hwm if ledger.is_there(target.location, parts) else {name: hwm[name] for name in hwm if name != "ledger"}
