"""Maintenance of nodes' tables, with an eye on what their next plan needs of the log."""

from __future__ import annotations

from dataclasses import replace

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.nodes.agreement import trusted_hwm
from odi_assets.nodes.fences import app_id
from odi_assets.nodes.project import Project
from odi_assets.state.backend import StateBackend
from odi_assets.tables.handle import TableHandle
from odi_assets.tables.maintenance import Maintenance, MaintenanceOptions, maintain


def maintain_node(
    project: Project, state: StateBackend, key: NodeKey, options: MaintenanceOptions
) -> Maintenance | None:
    """Maintain the table of ``key``; None if there is none yet.

    The log is left whole where it alone tells something that the next plan needs: the HWM of the last commit, if state
    has not got it; which rows at the HWM are loaded already, if the node follows a closed boundary without keys.

    Raises:
        TableConflictError, TableError: see :func:`odi_assets.tables.maintenance.maintain`.
    """
    location = project.target(key)
    handle = TableHandle.open(location)
    if not handle.exists:
        return None
    _, ahead = trusted_hwm(state.get_entry(state_key(key, project.node(key))), handle, app_id(key))
    tied = _remembers_ties(handle, app_id(key))
    done = maintain(location, replace(options, keep_log=options.keep_log or ahead or tied), {"node": str(key)})
    notes = [_AHEAD] if ahead else [_TIED] if tied else []
    return replace(done, notes=tuple(notes))


_AHEAD = (
    "its log was kept whole, because state has not got the HWM of its last commit yet; the node's next run mends it"
)
_TIED = (
    "its log was kept whole, because it tells which rows at the HWM are loaded already; with `write.keys` they would "
    "be looked up in the table instead"
)


def _remembers_ties(handle: TableHandle, fence: str) -> bool:
    stamp = handle.last_stamp(fence, carrying="hwm")
    reads = stamp.facts["hwm"].get("reads") or {} if stamp else {}
    return any("ties" in read for read in reads.values())
