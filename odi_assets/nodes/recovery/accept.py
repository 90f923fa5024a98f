"""Accepts a table as it is, whatever happened to it."""

from __future__ import annotations

from dataclasses import replace

from odi_assets.config.graph import NodeKey
from odi_assets.delta.maintenance.restore import forget_lost_files, lost_files
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import HwmOrigin
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import require_hwm_not_taken, same_sources
from odi_assets.nodes.planning.start import table_and_start
from odi_assets.nodes.planning.writers import require_written_by_itself
from odi_assets.nodes.project import Project
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.marks import FilesMark
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import NO_TABLE, HwmEntry


def accept(project: Project, state: StateBackend, key: NodeKey) -> HwmEntry | None:
    """Accept the node's table as it is: all rows up to its HWM count as loaded. None if the node has no HWM. If state
    was lost, the HWM comes from the table's log, as in a run.

    The next run goes on above the HWM: what the table no longer holds is not loaded again. A commit removes files that
    are gone or cut from the table, because nobody could read it otherwise.

    Raises:
        IdentityMismatchError: another node wrote the table, or writes the table that the HWM is of.
        StateConflictError: somebody else changed the HWM since.
    """
    node = Node.of(project, key)
    target, start = table_and_start(node, state)
    require_written_by_itself(node, target)
    require_hwm_not_taken(node, start.origin)
    if start.hwm is None:
        return None
    lost = lost_files(target.location, target.live_files)
    if lost:
        forget_lost_files(target, lost)
        target = target.refreshed()
    commit = NO_TABLE if target.version is None else target.version
    mark, origin = _as_sources_are(node, _without_lost_ledger(start.hwm, target), start.origin)
    if origin is not None:
        origin = replace(origin, table_id=target.table_id if target.exists else None, accepted=True)
        origin = origin.of_version(target.location, target.version)
    return state.compare_and_set(
        node.state_key,
        mark.value,
        expected_revision=start.current.revision if start.current else None,
        target_commit=commit,
        origin=None if origin is None else origin.to_json(),
    )


def _as_sources_are(node: Node, hwm: NodeMark, origin: HwmOrigin | None) -> tuple[NodeMark, HwmOrigin | None]:
    """``hwm`` and what it is of, taken for marks of the sources as they are now: of whatever history."""
    if origin is None or not origin.measures:
        return hwm, origin
    names = same_sources(node, origin)
    marks = node.marks(hwm, measures=origin.measures, names=names)
    now = {source.name: source.as_it_is(marks[source.name]) for source in node.sources if source.name in marks}
    measures = {names[name]: mark.measures for name, mark in now.items() if mark.measures is not None}
    kept = {names[name]: mark for name, mark in now.items()}
    mark = NodeMark.of(kept, tuple(origin.measures)) if now != marks else hwm
    return mark or hwm, replace(origin, measures={**origin.measures, **measures})


def _without_lost_ledger(hwm: NodeMark, target: TableHandle) -> NodeMark:
    """``hwm`` without its ledger, if that is gone: then all files up to the newest one count as loaded."""
    value = hwm.value
    if not isinstance(value, dict) or "ledger" not in value:
        return hwm
    parts = FilesMark.of(value, str(target.location)).parts or ()
    if ledger.is_there(target.location, parts):
        return hwm
    return NodeMark({name: part for name, part in value.items() if name != "ledger"})
