"""Nodes that follow the versions of a table, and what they need of its log."""

from __future__ import annotations

from odi_assets.connections.location import Location
from odi_assets.delta.history import actions_at
from odi_assets.delta.maintenance.maintain import is_recent
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.start import marks_in_state
from odi_assets.nodes.project import Project
from odi_assets.sources.marks import VersionMark
from odi_assets.state.backend import StateBackend


def readers_of_old_log(project: Project, state: StateBackend, handle: TableHandle) -> list[str]:
    """The nodes of the project that need commits of a table which are older than its log's retention, each with why.

    Raises:
        CheckpointError, StateError, TableError: it cannot be seen how far a node has read.
    """
    readers = []
    for key in project.graph.nodes:
        node = Node.of(project, key)
        kind = node.kind
        try:
            version = _read_up_to(node, state, handle) if kind.keeps_hwm else kind.log_needed_from(node, handle)
        except IncrementError:
            readers.append(f"the HWM of {key} does not say up to which version it has read it")
            continue
        # What is gone from the log already does not come back.
        if version is not None and not is_recent(handle, version) and actions_at(handle.location, version) is not None:
            readers.append(f"{key} has read it up to version {version}")
    return readers


def has_readers_of_old_log(project: Project, state: StateBackend, location: Location) -> bool:
    """Whether there are :func:`readers_of_old_log` of the table at ``location`` as it is now."""
    return bool(readers_of_old_log(project, state, TableHandle.open(location)))


def _read_up_to(node: Node, state: StateBackend, handle: TableHandle) -> int | None:
    """The version up to which a node that follows the versions of a table has read it; None if it does not."""
    own = [source.name for source in node.sources if source.uri == handle.location.uri and source.follows]
    entry = state.get_entry(node.state_key) if own else None
    marks = marks_in_state(node, entry) if entry is not None else {}
    return min((mark.version for name in own if isinstance(mark := marks.get(name), VersionMark)), default=None)
