"""Maintenance of nodes' tables, which keeps what their next plan needs of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from odi_assets.config.graph import NodeKey
from odi_assets.delta.damage import damaged, read_log
from odi_assets.delta.errors import DamagedTableError
from odi_assets.delta.history import actions_at
from odi_assets.delta.maintenance.maintain import (
    ORPHAN_HOURS,
    Maintenance,
    MaintenanceOptions,
    is_recent,
    rewindable_from,
)
from odi_assets.delta.maintenance.restore import LostFile, lost_files, presence
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.checks.bad_rows import BadRows
from odi_assets.nodes.execution.checks.quarantine import bring_in_step
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node, app_id, app_ids
from odi_assets.nodes.planning.readers import readers_of_old_log
from odi_assets.nodes.planning.start import start_of
from odi_assets.nodes.planning.writers import other_quarantiner, quarantine_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.findings import lost_remedy, lost_text
from odi_assets.sources.files.loaded import ledger
from odi_assets.state.backend import StateBackend
from odi_assets.tables.engine import engine_of
from odi_assets.util.words import counted


def maintain_node(
    project: Project, state: StateBackend, key: NodeKey, options: MaintenanceOptions
) -> Maintenance | None:
    """Maintain the table of ``key``; None if there is none yet.

    The log is not cleaned if a commit that is older than the log's retention is still needed: by the node's next plan,
    as the last one that says how its rows are read and known; or by a node of the project that follows the table's
    versions and has read up to that commit. Files that stream nodes of the project have not read yet stay.

    Raises:
        DamagedTableError: data files are gone or cut.
        TableConflictError, TableError: as the table engine's ``maintain`` does.
    """
    location = project.target(key)
    handle = TableHandle.open(location)
    if not handle.exists:
        return None
    _require_whole(f"the table of {key}", handle, lambda lost: lost_remedy(Node.of(project, key), handle, lost))
    why = _needed_for(Node.of(project, key), state, handle)
    options, of_readers = _for_readers(project, state, handle, options)
    options = replace(options, keep_log=options.keep_log or why is not None)
    done = engine_of(location).maintain(location, options, {"node": str(key)})
    age = timedelta(hours=max(options.retain_hours, ORPHAN_HOURS))
    now = TableHandle.open(location)
    named = _named_parts(Node.of(project, key), state, now, done.rewindable_from)
    swept = ledger.sweep(location, named, age, dry_run=options.dry_run)
    oldest, lost = _rewindable_by_ledger(Node.of(project, key), now, done.rewindable_from)
    return replace(
        done,
        vacuumed=tuple(sorted({*done.vacuumed, *swept})),
        vacuumed_bytes=done.vacuumed_bytes + sum(swept.values()),
        rewindable_from=oldest,
        notes=tuple(
            note for note in (why, lost, *of_readers, _of_young_orphans(done.young_orphans)) if note is not None
        ),
    )


def maintain_quarantine(
    project: Project, state: StateBackend, key: NodeKey, options: MaintenanceOptions, oldest: int
) -> Maintenance | None:
    """Maintain the quarantine of ``key``; None if the node has none, or another node's rows are in it.

    Bad rows that a run left beside it are put in first. Files that a rewind of the node may need stay.

    Args:
        oldest: the oldest version of the node's table that can be gone back to.

    Raises:
        DamagedTableError: data files are gone or cut.
        TableConflictError, TableError: as the table engine's ``maintain`` does.
    """
    node, location = Node.of(project, key), quarantine_of(Node.of(project, key))
    if location is None or not (handle := TableHandle.open(location)).exists or other_quarantiner(node, handle):
        return None
    target = TableHandle.open(project.target(key))
    if not options.dry_run:
        bring_in_step(node, target)
        handle = TableHandle.open(location)
    _require_whole_beside(node, "quarantine", handle)
    options, of_readers = _for_readers(project, state, handle, options)
    kept = (*options.keep_versions, *_before_removals(target, handle, oldest))
    done = engine_of(location).maintain(location, replace(options, keep_versions=kept), {"node": str(key)})
    return replace(done, notes=tuple(filter(None, (*of_readers, _of_young_orphans(done.young_orphans)))))


def maintain_beside(
    project: Project, state: StateBackend, key: NodeKey, options: MaintenanceOptions
) -> dict[str, Maintenance]:
    """Maintain the tables that the kind of ``key`` keeps beside its own, such as rows that a stream gives up; by their
    keys in the project file.

    The log of one is not cleaned where a commit, older than the log's retention, is the last one under its fence.

    Raises:
        DamagedTableError: data files are gone or cut.
        TableConflictError, TableError: as the table engine's ``maintain`` does.
    """
    node, done = Node.of(project, key), dict[str, Maintenance]()
    for which, location in node.kind.tables_beside(node).items():
        handle = TableHandle.open(location)
        if not handle.exists:
            continue
        _require_whole_beside(node, which, handle)
        options_here, of_readers = _for_readers(project, state, handle, options)
        last = {stamp.app_id: stamp.version for stamp in reversed(list(handle.stamps()))}
        keep_log = options_here.keep_log or not all(map(partial(is_recent, handle), last.values()))
        options_here = replace(options_here, keep_log=keep_log)
        maintenance = engine_of(location).maintain(location, options_here, {"node": str(key)})
        notes = (*of_readers, _of_young_orphans(maintenance.young_orphans))
        done[which] = replace(maintenance, notes=tuple(filter(None, notes)))
    return done


def _before_removals(target: TableHandle, quarantine: TableHandle, oldest: int) -> tuple[int, ...]:
    """Versions of a quarantine that together have all files that it held since the node's version ``oldest``."""
    named = ((stamp.version, BadRows.of(stamp)) for stamp in target.stamps())
    apps = {bad.app_id for version, bad in named if bad is not None and version > oldest}
    first = min((stamp.version for stamp in quarantine.stamps() if stamp.app_id in apps), default=None)
    if first is None:
        return ()
    now = int(quarantine.version or 0)
    versions = range(max(first, rewindable_from(quarantine) + 1), now + 1)
    commits = ((version, actions_at(quarantine.location, version) or ()) for version in versions)
    # The compaction to come removes files of the version of now.
    return (*(version - 1 for version, actions in commits if any("remove" in action for action in actions)), now)


def _for_readers(
    project: Project, state: StateBackend, handle: TableHandle, options: MaintenanceOptions
) -> tuple[MaintenanceOptions, list[str]]:
    """``options`` that leave what nodes of the project have yet to read of a table, and what they leave, in words."""
    unread, readers = _unread_versions(project, handle), readers_of_old_log(project, state, handle)
    kept = sorted({*options.keep_versions, *(version for versions in unread.values() for version in versions)})
    notes = [f"its log was kept whole, because {' and '.join(readers)}"] if readers else []
    notes += [note] if (note := _of_unread(unread)) is not None else []
    return replace(options, keep_log=options.keep_log or bool(readers), keep_versions=tuple(kept)), notes


def _unread_versions(project: Project, handle: TableHandle) -> dict[str, tuple[int, ...]]:
    """By node that takes new files of a table by themselves, versions that together have all files that it has yet to
    read."""
    nodes = (Node.of(project, key) for key in project.graph.nodes)
    unread = {node.command: node.kind.unread_versions(node, handle) for node in nodes}
    return {command: versions for command, versions in unread.items() if versions}


def _require_whole(table: str, handle: TableHandle, remedy: Callable[[list[LostFile]], str]) -> None:
    """Raises DamagedTableError if data files are gone or cut, or a commit is a copy of another one: rows would be lost
    for good in a compaction, or a checkpoint.

    Args:
        table: in words.
        remedy: what to do about lost files.
    """
    # A commit before the checkpoint may have been copied over one after it.
    copies = [fault for fault in read_log(handle.location, every=True).faults if fault.is_copy]
    if copies:
        raise damaged(handle.location, copies)
    lost = lost_files(handle.location, handle.live_files)
    if lost:
        raise DamagedTableError(
            f"{table} cannot be looked after: {lost_text(handle, lost)}", fix=remedy(lost), uri=handle.location.uri
        )


def _require_whole_beside(node: Node, which: str, handle: TableHandle) -> None:
    """The same, of a table beside the node's own."""
    remedy = f"put them back; or odi run {node.command} --full-refresh"
    _require_whole(f"the table of {node}'s {which}", handle, lambda _: remedy)


def _named_parts(node: Node, state: StateBackend, handle: TableHandle, oldest: int) -> set[str]:
    """The parts of the ledger that the HWM of some version names, from ``oldest`` on, or one in state."""
    marks: list[NodeMark | None] = []
    for stamp in handle.stamps():
        hwm = CommitFacts.of(stamp).hwm
        if hwm is not None:
            marks.append(hwm.mark)
            if stamp.version <= oldest and stamp.app_id == app_id(node.key):
                break
    for number, entry in enumerate(state.history(node.state_key)):
        marks.append(NodeMark.of_value(entry.value))
        if number and entry.target_commit is not None and entry.target_commit <= oldest:
            break
    return {name for mark in marks if mark is not None for name in mark.ledger_parts()}


def _rewindable_by_ledger(node: Node, handle: TableHandle, oldest: int) -> tuple[int, str | None]:
    """The oldest version from ``oldest`` on from which all HWMs have their lists of loaded files; and a list that is
    gone, in words."""
    exists, after = presence(handle.location), handle.table.version()
    for stamp in handle.stamps():
        hwm = CommitFacts.of(stamp).hwm if stamp.app_id == app_id(node.key) else None
        mark = None if hwm is None else hwm.mark
        paths = [ledger.path_of(part) for part in (mark.ledger_parts() if mark is not None else ())]
        gone = next((path for path in paths if not exists(path)), None)
        if gone is not None:
            return after, f"there is no way back before version {after}: {gone}, a list of loaded files, is gone"
        after = stamp.version
        if after <= oldest:
            break
    return oldest, None


def _needed_for(node: Node, state: StateBackend, handle: TableHandle) -> str | None:
    """Why a commit of the node that is older than the log's retention has to stay, in words; None if none has to."""
    # A part alone says nothing that a later increment does not say.
    last = next(filter(None, map(handle.last_stamp, app_ids(node.key))), None)
    if last is None or is_recent(handle, last.version):
        return None
    ahead = node.following and start_of(node, state.get_entry(node.state_key), handle).repaired
    return _AHEAD if ahead else _OF_LAST_RUN


_AHEAD = (
    "its log was kept whole, because state does not have the HWM of its last commit yet; the node's next run repairs it"
)
_OF_LAST_RUN = (
    "its log was kept whole, because the node's last commit, older than the log's retention, says how its rows are "
    "read and known; once the node takes in what is new, the log can be cleaned"
)


def _of_unread(unread: Mapping[str, Sequence[int]]) -> str | None:
    if not unread:
        return None
    commands = ", ".join(f"odi run {command}" for command in unread)
    return f"its files that streams have not read yet are kept; those that left it can go after {commands}"


def _of_young_orphans(count: int) -> str | None:
    if not count:
        return None
    files = counted(count, "file")
    return (
        f"kept {files} younger than {ORPHAN_HOURS} hours that no version names, in case a run is still writing; "
        "what a killed one left goes with a later maintenance"
    )
