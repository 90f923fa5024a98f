"""Compaction of system tables by their writers: one that sees too many small files puts one file in their place.

A compaction that loses its fence, or fails, changes nothing and is not tried again: a writer that comes 64 files later
sees the same files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.maintenance.compaction import rewrite
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import StateError

if TYPE_CHECKING:
    from odi_assets.state.delta.table import SystemTable

_log = logging.getLogger(__name__)

MOST_FILES = 64
# It is in the logs of tables already: under another name, an older process could compact beside a newer one.
_APP_ID = "odi/fold"
_VACUUM_HOURS = 1
# Vacuum lists the whole folder, so only about one compaction in 16 does it.
_COMPACTIONS_PER_VACUUM = 16
_FORMAT_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"})


def compact_if_needed(table: SystemTable, handle: TableHandle, versions_per_look: int) -> None:
    """Compact if more than 64 small files are live.

    Never fails: the write it follows is done and acknowledged.

    Args:
        versions_per_look: how many commits to the table lie between two such looks.
    """
    try:
        with handle.calls("compacting a system table"):
            files = small_files(table, handle) if _is_plain(handle) and not table.is_odibis(handle) else []
            # Of the writers that see too many files, one compacts them. The writer before it does not, because it may
            # still be at it. The number grows with every commit, so one look in each 64 files sees one of the first 8.
            if len(files) > MOST_FILES and (len(files) - 1) % MOST_FILES < versions_per_look:
                compact(table, handle, files)
                if (handle.table.version() // MOST_FILES) % _COMPACTIONS_PER_VACUUM == 0:
                    handle.vacuum(_VACUUM_HOURS)
    except CommitConflict as error:
        _log.debug("%s was compacted by another process: %s", table.uri, error.message)
    except (StateError, ValueError, TypeError):
        # Arrow's errors are ValueErrors and TypeErrors: a file that another tool wrote in a way of its own.
        _log.warning("%s could not be compacted; its look-ups will grow slower", table.uri, exc_info=True)


def compact_now(table: SystemTable, *, dry_run: bool = False) -> dict[str, int]:
    """Compact whatever there is, shorten the log and remove what nothing refers to; how many files each took out, or
    with ``dry_run`` would take out now.

    Raises:
        CommitConflict: another process compacted at the same time.
        StateError: the table cannot be read or written.
    """
    handle = table.open()
    if handle is None:
        return {"files_folded": 0, "files_removed": 0}
    with handle.calls("compacting a system table"):
        files = small_files(table, handle)
        if not dry_run:
            if not _is_plain(handle) or table.is_odibis(handle):
                # deltalake's own compaction knows partitions, but two at once double the rows: only on demand.
                handle.table.optimize.compact()
            elif len(files) > 1:
                compact(table, handle, files)
            handle.shorten_log()
    # How long Odibi's files and log are kept is what its table says.
    removed = handle.vacuum(None if table.is_odibis(handle) else _VACUUM_HOURS, dry_run=dry_run)
    return {"files_folded": len(files) if len(files) > 1 else 0, "files_removed": len(removed)}


def small_files(table: SystemTable, handle: TableHandle) -> list[LiveFile]:
    """The live files that a compaction would replace."""
    largest = table.largest_file
    return [file for file in handle.live_files if largest is None or (file.rows or 0) < largest]


def compact(table: SystemTable, handle: TableHandle, files: Sequence[LiveFile]) -> None:
    """Put one file in the place of ``files``.

    Raises:
        CommitConflict: another process compacted since ``handle`` was opened; nothing was changed.
    """
    rewrite(handle, files, table.rows_to_keep(handle, files), table.indexed, _APP_ID)


def _is_plain(handle: TableHandle) -> bool:
    """Whether the table's files are its rows: no partitions, no deletion vectors, no renamed columns."""
    features = set(handle.table.protocol().reader_features or ())
    renamed = handle.table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    return not handle.partition_columns and not renamed and features <= _FORMAT_FEATURES
