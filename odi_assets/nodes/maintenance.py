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

    Where state has not got the HWM of the last commit, the log is left whole: it alone tells that HWM.

    Raises:
        TableConflictError, TableError: see :func:`odi_assets.tables.maintenance.maintain`.
    """
    location = project.target(key)
    handle = TableHandle.open(location)
    if not handle.exists:
        return None
    _, ahead = trusted_hwm(state.get_entry(state_key(key, project.node(key))), handle, app_id(key))
    done = maintain(location, replace(options, keep_log=options.keep_log or ahead), {"node": str(key)})
    if not ahead:
        return done
    note = (
        "its log was kept whole, because state has not got the HWM of its last commit yet; the node's next run mends it"
    )
    return replace(done, notes=(note,))
