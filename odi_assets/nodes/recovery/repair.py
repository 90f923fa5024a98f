"""Repairs tables that a power cut has torn: what is torn is set aside, and state goes back with the table.

A commit that is set aside was never acknowledged, or its rows are read again: the node's mark goes back to the mark of
the last whole commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.damage import LOG
from odi_assets.delta.errors import STATE
from odi_assets.delta.maintenance.repair import Repair, apply_repair, plan_repair
from odi_assets.delta.maintenance.restore import LostFile, forget_lost_files
from odi_assets.delta.maintenance.verify import unreadable_files
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.writers import quarantine_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.recovery.table_versions import at_version
from odi_assets.state.backend import StateBackend
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.state.local.backend import LocalJSONStateBackend

RECOVER = "odi state recover"


@dataclass(frozen=True)
class Repaired:
    """What was set aside of a table, or would be.

    Attributes:
        what: the node or the system table; the path of any other table.
        faults: what was wrong.
        moved: what was moved, relative to ``uri``.
        version: of the table afterwards; None if there is none then.
        aside: where to; None in a dry run.
        next: what to type next.
    """

    what: str
    uri: str
    faults: tuple[str, ...]
    moved: tuple[str, ...]
    version: int | None
    aside: str | None
    next: str

    def to_json(self) -> dict[str, Any]:
        """The repair as JSON-ready values."""
        return {
            "what": self.what,
            "uri": self.uri,
            "faults": list(self.faults),
            "moved": list(self.moved),
            "version": self.version,
            "aside": self.aside,
            "next": self.next,
        }


def tables_of(project: Project, key: NodeKey) -> dict[str, Location]:
    """The tables of a node by their names in messages: its own, its quarantine, and what its kind keeps beside."""
    node = Node.of(project, key)
    beside, quarantine = node.kind.tables_beside(node), quarantine_of(node)
    if quarantine is not None:
        beside["quarantine"] = quarantine
    return {str(key): project.target(key), **{f"{key} ({which})": location for which, location in beside.items()}}


def find_tables(project: Project, name: str) -> list[tuple[NodeKey | None, str, Location]]:
    """The tables that ``name`` means: all tables of a node, or the table at a path.

    Raises:
        ConfigError: it means none.
    """
    for key in project.graph.order():
        tables = tables_of(project, key)
        for what, location in tables.items():
            if location.uri == name:
                return [(key if what == str(key) else None, what, location)]
        node = Node.of(project, key)
        if node.kind.has_folder(node, name):
            return [(key, str(key), tables[str(key)])]
    if (Path(name) / LOG).is_dir():
        return [(None, name, Location(str(Path(name).absolute())))]
    key = project.node_named(name)
    return [
        (key if what == str(key) else None, what, table_location)
        for what, table_location in tables_of(project, key).items()
    ]


def repair_table(
    project: Project, state: StateBackend, key: NodeKey | None, what: str, location: Location, *, dry_run: bool
) -> Iterator[Repaired]:
    """Repair the log of a table, and what notes how far its node has read, as far as they are torn.

    Args:
        key: the node whose table it is, and whose mark goes back with it, if any.

    Raises:
        TableError: the table cannot be looked at, or a file cannot be moved.
    """
    plan = plan_repair(location)
    if plan is not None:
        yield _of_log(project, state, key, what, plan, dry_run=dry_run)
    if key is not None and not (plan and dry_run):
        node = Node.of(project, key)
        yield from node.kind.repair(node, dry_run=dry_run)


def _of_log(
    project: Project, state: StateBackend, key: NodeKey | None, what: str, plan: Repair, *, dry_run: bool
) -> Repaired:
    aside = None if dry_run else apply_repair(plan)
    following = _next_of(_owner(project, what), plan)
    if key is not None and plan.version is not None and not dry_run:
        following = _mark_back(project, state, key) or following
    return _repaired(what, plan, aside, following)


def _repaired(what: str, plan: Repair, aside: str | None, following: str) -> Repaired:
    return Repaired(what, plan.location.uri, plan.faults, plan.moves, plan.version, aside, following)


def _owner(project: Project, what: str) -> NodeKey | None:
    """The node that has the table ``what``; None if no node has it."""
    return next((key for key in project.graph.order() if what in tables_of(project, key)), None)


def _next_of(key: NodeKey | None, plan: Repair) -> str:
    if key is None:
        return "run the nodes that write it, or put it back from a copy" if plan.whole else "run the nodes that read it"
    command = f"odi run {key.pipeline} --node {key.node}"
    return f"{command} --full-refresh, or put the table back from a copy" if plan.whole else command


def _mark_back(project: Project, state: StateBackend, key: NodeKey) -> str | None:
    """Put the mark of a node (a stream's checkpoint, too) where its table is; what to do if that cannot be done."""
    table = TableHandle.open(project.target(key))
    try:
        plan = plan_rewind(project, state, key, at_version(int(table.version or 0)))
        apply_rewind(project, state, plan)
    except OdiError as error:
        return f"its mark could not go back with it: {error.message}: {error.fix or f'odi doctor {key.pipeline}'}"
    return None


# -- the system tables -------------------------------------------------------------------------------------------------


def system_tables(project: Project, state: StateBackend) -> dict[str, Location]:
    """The Delta tables of state by their names; without ``system`` only the table of the batches of streams."""
    batches = project.open_batches().location
    if not isinstance(state, CatalogStateBackend):
        return {"meta_batches": batches}
    return {**state.locations, "meta_batches": batches}


def repair_system(project: Project, state: StateBackend, *, dry_run: bool) -> Iterator[Repaired]:
    """Repair the logs of the system tables, and take files out that cannot be read; their rows are set aside with them.

    Raises:
        StateError: a table cannot be looked at, or a file cannot be moved.
    """
    yield from _state_file(state, dry_run=dry_run)
    for name, location in system_tables(project, state).items():
        plan = plan_repair(location)
        following = "nothing: runs go on" if name == "meta_batches" else RECOVER
        if plan is not None:
            aside = None if dry_run else apply_repair(plan)
            yield _repaired(name, plan, aside, following)
            if dry_run:
                continue
        handle = TableHandle.open_once(location, owner=STATE)
        lost = unreadable_files(handle) if handle.exists else []
        if lost:
            yield _without(name, handle, lost, following, dry_run=dry_run)


def _without(name: str, handle: TableHandle, lost: list[LostFile], following: str, *, dry_run: bool) -> Repaired:
    aside, version = None, handle.version
    if not dry_run:
        aside = forget_lost_files(handle, lost)
        version = TableHandle.open_once(handle.location, owner=STATE).version
    moved = tuple(file.path for file in lost if file.size is not None)
    return Repaired(name, handle.location.uri, tuple(map(str, lost)), moved, version, aside, following)


def _state_file(state: StateBackend, *, dry_run: bool) -> Iterator[Repaired]:
    if not isinstance(state, LocalJSONStateBackend):
        return
    for path, fault in state.damaged_files().items():
        aside = None if dry_run else str(state.set_aside(path))
        yield Repaired(path.name, str(path), (fault.message,), (path.name,), None, aside, RECOVER)
