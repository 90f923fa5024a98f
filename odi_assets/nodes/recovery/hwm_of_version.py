"""Which HWM belongs to the rows of a version of a node's table."""

from __future__ import annotations

from odi_assets.delta.history import restored_version
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.target_check import ForeignChange, rows_removed_since
from odi_assets.state.backend import StateBackend


def hwm_of_version(node: Node, state: StateBackend, handle: TableHandle) -> CommittedHwm | None:
    """The HWM that belongs to the rows of ``handle``, a version of the node's table. None: that version had no HWM.

    Raises:
        StateError: neither the table's log nor state goes back that far.
    """
    if not node.following:
        return None
    stamp = handle.last_stamp(app_id(node.key), carrying="hwm")
    change = None if stamp is None else rows_removed_since(stamp.version, handle)
    if change is not None:
        return _after_change(node, state, handle, change)
    if stamp is not None:
        return CommitFacts.of(stamp).hwm
    version = int(handle.version or 0)
    known = _known_of(node, state, range(version + 1))
    if known is not None:
        return known
    if any(commit.version == 0 for commit in handle.commits()):
        return None
    raise StateError(
        f"{node}: which HWM belongs to version {version} is not known any more: the log was cleaned since",
        fix=f"choose a later version (odi state rewind {node} --list), or rebuild the table with odi run "
        f"{node.command} --full-refresh",
        node=str(node),
        version=version,
    )


def _after_change(node: Node, state: StateBackend, handle: TableHandle, change: ForeignChange) -> CommittedHwm | None:
    """The HWM after somebody else changed the table: that of an accepted version, or of the version they restored."""
    version = int(handle.version or 0)
    accepted = _known_of(node, state, range(change.commit.version, version + 1))
    if accepted is not None:
        return accepted
    restored = restored_version(change.commit.operation, change.commit.parameters)
    if restored is not None:
        return hwm_of_version(node, state, TableHandle.open(handle.location, restored))
    raise StateError(
        f"{node}: no HWM belongs to version {version}: the table was {change}",
        fix=f"choose a version before that (odi state rewind {node} --list)",
        node=str(node),
        version=version,
    )


def _known_of(node: Node, state: StateBackend, versions: range) -> CommittedHwm | None:
    """The newest HWM in state that was written for one of ``versions`` of the node's table."""
    for entry in state.history(node.state_key):
        if entry.target_commit in versions and not entry.deleted:
            return CommittedHwm.of(entry.value)
    return None
