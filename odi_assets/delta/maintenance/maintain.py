"""Looking after a table: compaction, checkpoint, log, vacuum; and which versions can still be gone back to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyarrow.fs import FileSelector

from odi_assets.connections.location import Location
from odi_assets.delta.damage import file_system
from odi_assets.delta.errors import deltalake_calls
from odi_assets.delta.history import actions_at
from odi_assets.delta.maintenance.compaction import Compaction, bins, compact
from odi_assets.delta.maintenance.restore import presence
from odi_assets.delta.on_disk import sync_commit
from odi_assets.delta.table import TableHandle

RETAIN_HOURS = 168
ORPHAN_HOURS = 24
"""Files that no version names are kept this long at least: they may belong to a run that is still writing."""

MEGABYTE = 1024 * 1024
_INTERVAL = re.compile(r"(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_UNITS = {unit: timedelta(**{f"{unit}s": 1}) for unit in ("second", "minute", "hour", "day", "week")}


@dataclass(frozen=True)
class MaintenanceOptions:
    """What a maintenance does.

    Attributes:
        retain_hours: files that left the table stay this long.
        small_bytes: files below this size are compacted.
        target_bytes: about the size of the files that they become.
        keep_log: leave the log as it is.
        keep_versions: files of these versions stay, whenever they left the table.
    """

    retain_hours: int = RETAIN_HOURS
    small_bytes: int = 64 * MEGABYTE
    target_bytes: int = 128 * MEGABYTE
    dry_run: bool = False
    keep_log: bool = False
    keep_versions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Size:
    """The live files of a version."""

    version: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Maintenance:
    """What became of a table, or what would.

    Attributes:
        compaction: files that went and came; in a dry run, files that would.
        after: the table afterwards; in a dry run with the bytes from before, for only rewriting would show others.
        vacuumed: files deleted from storage, relative to the table.
        vacuumed_bytes: their size.
        log_files_removed: files of the log that were out of Delta's ``delta.logRetentionDuration``.
        rewindable_from: the oldest version whose files are all there.
        young_orphans: files that no version names and that are too young to be deleted (see ``ORPHAN_HOURS``).
    """

    before: Size
    after: Size
    compaction: Compaction
    vacuumed: tuple[str, ...]
    vacuumed_bytes: int
    log_files_removed: int
    rewindable_from: int
    young_orphans: int = 0
    notes: tuple[str, ...] = field(default=())


def maintain(location: Location, options: MaintenanceOptions, facts: Mapping[str, Any]) -> Maintenance:
    """Compact, checkpoint, clean the log and vacuum the table at ``location``; in a dry run, only look.

    Raises:
        TableConflictError: writers took files away during each attempt to compact.
        TableError: there is no table, or it has features that plain files would break.
    """
    before = _size(TableHandle.open(location))
    if options.dry_run:
        groups = bins(TableHandle.open(location), options.small_bytes, options.target_bytes)
        compaction = Compaction(sum(len(files) for files in groups), len(groups))
    else:
        compaction = compact(location, options.small_bytes, options.target_bytes, facts)
    gone, gone_bytes = _vacuum(location, options)
    cleaned = 0 if options.dry_run else _checkpoint(location, keep_log=options.keep_log)
    handle = TableHandle.open(location)
    after = _size(handle)
    if options.dry_run:
        after = replace(after, files=before.files - compaction.files_removed + compaction.files_added)
    young = _young_orphans(handle, gone)
    return Maintenance(before, after, compaction, gone, gone_bytes, cleaned, rewindable_from(handle), young)


def _size(handle: TableHandle) -> Size:
    return Size(handle.table.version(), len(handle.live_files), sum(file.size for file in handle.live_files))


def _vacuum(location: Location, options: MaintenanceOptions) -> tuple[tuple[str, ...], int]:
    exists = presence(location)
    gone: dict[str, int] = {}
    # Deltalake's lite vacuum takes what left the table, its full one also what never joined it.
    for hours, full in ((options.retain_hours, False), (max(options.retain_hours, ORPHAN_HOURS), True)):
        handle = TableHandle.open(location)
        paths = handle.vacuum(hours, full=full, dry_run=True, keep_versions=options.keep_versions)
        present = [path for path in paths if path not in gone and exists(path)]
        gone |= {path: _file_size(location, path) for path in present}
        if present and not options.dry_run:
            handle.vacuum(hours, full=full, keep_versions=options.keep_versions)
    return tuple(sorted(gone)), sum(gone.values())


def _young_orphans(handle: TableHandle, gone: Collection[str]) -> int:
    """How many files no version ever named, but for those that are ``gone`` or are about to be."""
    unused, left = (set(handle.vacuum(0, full=full, dry_run=True)) for full in (True, False))
    return len(unused - left - set(gone))


def _file_size(location: Location, path: str) -> int:
    with deltalake_calls("looking at a file of the Delta table", location):
        return int(file_system(location).get_file_info(path).size or 0)


def _checkpoint(location: Location, *, keep_log: bool) -> int:
    handle = TableHandle.open(location)
    if keep_log:
        with handle.calls("writing a checkpoint"):
            handle.table.create_checkpoint()
        sync_commit(location, handle.table.version())
        return 0
    before = _log_files(location)
    handle.shorten_log()
    return len(before - _log_files(location))


def is_recent(handle: TableHandle, version: int) -> bool:
    """Whether the commit ``version`` is younger than the log's retention, so that no cleaning takes it; False if that
    is not known."""
    stated = handle.table.metadata().configuration.get("delta.logRetentionDuration", "interval 30 days")
    match = _INTERVAL.fullmatch(stated.strip().lower())
    if match is None:
        return False
    with handle.calls("looking at the log of the Delta table"):
        written = file_system(handle.location).get_file_info(f"_delta_log/{version:020d}.json").mtime
    return written is not None and datetime.now(UTC) - written < int(match[1]) * _UNITS[match[2]]


def _log_files(location: Location) -> set[str]:
    with deltalake_calls("listing the log of the Delta table", location):
        return {info.path for info in file_system(location).get_file_info(FileSelector("_delta_log"))}


def rewindable_from(handle: TableHandle) -> int:
    """The oldest version that can still be read: the log has it, and no file of it has been deleted."""
    exists = presence(handle.location)
    oldest = newest = handle.table.version()
    for version in range(newest, -1, -1):
        actions = actions_at(handle.location, version)
        if actions is None:
            break
        oldest = version
        # Versions before this commit need the files that it removed.
        if any("remove" in action and not exists(unquote(action["remove"]["path"])) for action in actions):
            break
    # Between the last commit that was cleaned up and the next checkpoint, a log has commits that cannot be opened.
    while oldest < newest and not handle.is_kept(oldest):
        oldest += 1
    return oldest
