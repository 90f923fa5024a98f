"""Looks at every file that nodes and system tables are made of: is it there, has it its size, can it be opened?

Stores are listed, and not asked for file by file. ``deep`` reads the data files and all commits, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.damage import data_beside_empty_log, read_log, repair_command
from odi_assets.delta.errors import STATE
from odi_assets.delta.maintenance.restore import LostFile, lost_files
from odi_assets.delta.maintenance.verify import dead_links, unreadable_files
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError, OdiError
from odi_assets.nodes.kinds import require_store
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.findings import Disagreement, Kind, lost_remedy, lost_text, over
from odi_assets.nodes.recovery.repair import RECOVER, system_tables, tables_of
from odi_assets.nodes.remedies import remedy_of
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.marks import LedgerPart
from odi_assets.state.backend import StateBackend
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets.util.words import counted


def files_of_node(node: Node, state: StateBackend, target: TableHandle, *, deep: bool) -> Iterator[Disagreement]:
    """What is wrong with the files of a node's table, its ledger and its state store."""
    yield from _of_table(node, target, deep=deep)
    mark = NodeMark.in_state(state.get_entry(node.state_key))
    for name in mark.ledger_parts() if mark is not None and target.exists else ():
        try:
            ledger.read_parts(target.location, [LedgerPart(name, 0)], str(node))
        except IncrementError as error:
            yield Disagreement(node.key, Kind.DAMAGED, error.message, str(remedy_of(node, error.fix)))


def files_without_hwm(node: Node, target: TableHandle, *, deep: bool) -> Iterator[Disagreement]:
    """What is wrong with the files of a node that has no HWM in state: its table, what notes how far it has read, and
    the tables beside."""
    yield from _of_table(node, target, deep=deep)
    yield from node.kind.examine_files(node)
    yield from files_beside(node, deep=deep)


def files_beside(node: Node, *, deep: bool) -> Iterator[Disagreement]:
    """What is wrong with the files of the tables that a node has beside its own: its quarantine, and what its kind
    keeps."""
    for what, location in tables_of(node.project, node.key).items():
        if what == str(node):
            continue
        try:
            kept = TableHandle.open(location)
        except OdiError as error:
            yield over(node.key, error)
            continue
        for disagreement in _log(node, location, deep=deep):
            yield replace(disagreement, message=f"{what}: {disagreement.message}")
        lost = _lost(kept, deep=deep)
        if lost:
            remedy = f"put them back; or odi run {node.command} --full-refresh"
            yield Disagreement(node.key, Kind.FILES_MISSING, f"{what}: {lost_text(kept, lost)}", remedy)


def files_of_system(project: Project, state: StateBackend, *, deep: bool) -> Iterator[Disagreement]:
    """What is wrong with the files of the system tables, or of the state file."""
    if isinstance(state, LocalJSONStateBackend):
        try:
            damaged = state.damaged_files()
        except OdiError as error:
            yield over(None, error)
            return
        for fault in damaged.values():
            yield Disagreement(None, Kind.DAMAGED, fault.message, str(fault.fix))
    for name, location in system_tables(project, state).items():
        yield from _of_system_table(name, location, deep=deep)


def _of_system_table(name: str, location: Location, *, deep: bool) -> Iterator[Disagreement]:
    remedy = f"{repair_command(location, STATE)}, and then {RECOVER}"
    try:
        handle = TableHandle.open_once(location, owner=STATE)
        faults, lost = read_log(location, every=deep).faults, _lost(handle, deep=deep)
    except OdiError as error:
        yield over(None, error)
        return
    if faults:
        yield Disagreement(None, Kind.DAMAGED, f"{name}: {faults[0]}", remedy)
    elif not handle.exists and data_beside_empty_log(location) is not None:
        yield Disagreement(None, Kind.DAMAGED, f"{name}: {_NO_VERSION}", remedy)
    if lost:
        yield Disagreement(None, Kind.FILES_MISSING, f"{name}: {lost_text(handle, lost)}", remedy)


_NO_VERSION = "its log holds no version, and there are data files beside it"


def _of_table(node: Node, target: TableHandle, *, deep: bool) -> Iterator[Disagreement]:
    yield from _log(node, target.location, deep=deep)
    lost = _lost(target, deep=deep)
    if lost:
        yield Disagreement(
            node.key,
            Kind.FILES_MISSING,
            lost_text(target, lost),
            lost_remedy(node, target, lost),
        )
    try:
        require_store(node, target)
    except OdiError as error:
        yield Disagreement(node.key, Kind.FILES_MISSING, error.message, str(remedy_of(node, error.fix)))
    for path in dead_links(target) if deep and target.exists else ():
        text = f"{path} in {target.location.uri} is a link that leads nowhere: unused files cannot be deleted"
        yield Disagreement(node.key, Kind.DAMAGED, text, "remove the link, or put the file back from a copy")


def _log(node: Node, location: Location, *, deep: bool) -> Iterator[Disagreement]:
    log = read_log(location, every=deep)
    if log.faults:
        more = f", and {counted(len(log.faults) - 1, 'file')} more" if len(log.faults) > 1 else ""
        yield Disagreement(node.key, Kind.DAMAGED, f"{log.faults[0]}{more}", repair_command(location))
    elif data_beside_empty_log(location) is not None:
        remedy = f"{repair_command(location)}, and then odi run {node.command} --full-refresh"
        yield Disagreement(node.key, Kind.DAMAGED, f"the table at {location.uri}: {_NO_VERSION}", remedy)


def _lost(handle: TableHandle, *, deep: bool) -> list[LostFile]:
    if not handle.exists:
        return []
    return unreadable_files(handle) if deep else lost_files(handle.location, handle.live_files)


# -- what is left out --------------------------------------------------------------------------------------------------


def not_looked_at(project: Project, keys: Sequence[NodeKey], *, deep: bool) -> list[Disagreement]:
    """What the examination of ``keys`` leaves out, each with what looks at it."""
    left_out = (
        [] if deep else [("what is inside data files, and commits before a checkpoint", "odi doctor --deep reads them")]
    )
    if deep:
        left_out.append(
            ("bytes of data files whose writer made no checksum of them", "Such files were decoded, not compared")
        )
    left_out.append(
        (
            "what earlier versions of tables alone need, data files and lists of loaded files",
            "odi tables maintain --dry-run says how far back each table can go, and a rewind looks before it goes",
        )
    )
    asked: dict[str, None] = {}
    for node in (Node.of(project, key) for key in keys):
        left_out += node.kind.not_looked_at(node)
        asked |= dict.fromkeys(source.label for source in node.sources if source.follows and source.only_plans_look)
    if asked:
        tables = f"{counted(len(asked), 'table')} of databases, {next(iter(asked))} among them"
        what = f"{tables}: whether rows lie below the mark, or a key or cursor was altered"
        left_out.append((what, "odi plan asks the databases"))
    if _is_folder(project.stores) and any(project.stores.local_path.iterdir()):
        left_out.append((f"what the state stores below {project.stores.uri} hold", "odi store check PATH reads one"))
    left = len(project.graph.order()) - len(keys)
    if left:
        left_out.append((f"{counted(left, 'node')} that the command did not name", "odi doctor looks at all"))
    return [Disagreement(None, Kind.NOT_LOOKED_AT, what, how) for what, how in left_out]


def _is_folder(location: Location) -> bool:
    return location.is_local and location.local_path.is_dir()
