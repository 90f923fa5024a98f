"""What a node's table stands for: whose fence it takes, and which HWM its versions hold."""

from __future__ import annotations

from typing import Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import NodeConfig, RollingWindowIncrement
from odi_assets.delta.history import restored_version
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.nodes.fences import BEFORE_FIRST_RUN, app_id
from odi_assets.nodes.planning.target_check import Undoing, undone_since
from odi_assets.nodes.project import Project
from odi_assets.state.backend import StateBackend
from odi_assets.state.values import encode


def remembers(node: NodeConfig) -> bool:
    """Whether a node keeps an HWM."""
    increments = [node.read.incremental if node.read else None, *(given.incremental for given in node.inputs.values())]
    return any(one is not None and not isinstance(one, RollingWindowIncrement) for one in increments)


def holds_rows_of_runs(key: NodeKey, target: TableHandle) -> bool:
    """Whether a node's table, as it stands, may hold rows of its increments: not if they were all undone."""
    if not target.transaction_number(app_id(key)):
        return False
    last = target.last_stamp(app_id(key))
    return last is None or not last.facts.get(BEFORE_FIRST_RUN)


def hwm_at(project: Project, state: StateBackend, key: NodeKey, handle: TableHandle) -> dict[str, Any] | None:
    """The HWM that belongs to the rows of ``handle``, a version of the node's table, as its commit carried it: value,
    type, and what its increments have to remember beside them; None: it had none.

    Raises:
        StateError: neither the table's log nor state goes back so far.
    """
    node = project.node(key)
    if not remembers(node):
        return None
    stamp = handle.last_stamp(app_id(key), carrying="hwm")
    undone = None if stamp is None else undone_since(stamp.version, handle)
    if undone is not None:
        return _after_undoing(project, state, key, handle, undone)
    if stamp is not None:
        return dict(stamp.facts["hwm"])
    version = int(handle.version or 0)
    known = _known_of(state, state_key(key, node), range(version + 1))
    if known is not None:
        return known
    if _begins_with_creation(handle):
        return None
    raise StateError(
        f"{key}: which HWM belongs to version {version} is not known any more: the log was cleaned since",
        fix=f"choose a later version (odi state rewind {key} --list), or rebuild the table with odi run {key.pipeline} "
        f"--node {key.node} --full-refresh",
        node=str(key),
        version=version,
    )


def _after_undoing(
    project: Project, state: StateBackend, key: NodeKey, handle: TableHandle, undone: Undoing
) -> dict[str, Any] | None:
    """The HWM of rows that somebody else made those of the table: of a version put back, that version's."""
    version = int(handle.version or 0)
    accepted = _known_of(state, state_key(key, project.node(key)), range(undone.commit.version, version + 1))
    if accepted is not None:
        return accepted
    restored = restored_version(undone.commit.operation, undone.commit.parameters)
    if restored is not None:
        return hwm_at(project, state, key, TableHandle.open(handle.location, restored))
    raise StateError(
        f"{key}: no HWM belongs to version {version}: the table was {undone}",
        fix=f"choose a version before that (odi state rewind {key} --list)",
        node=str(key),
        version=version,
    )


def _known_of(state: StateBackend, name: str, versions: range) -> dict[str, Any] | None:
    """The newest HWM that state knows to stand for one of ``versions`` of the node's table."""
    for entry in state.history(name):
        if entry.target_commit in versions and not entry.deleted:
            value = encode(entry.value)
            return {"value": value.json, "type": value.type}
    return None


def _begins_with_creation(handle: TableHandle) -> bool:
    return any(commit.version == 0 for commit in handle.commits())
