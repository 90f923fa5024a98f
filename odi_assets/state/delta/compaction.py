"""Folding: the writer that sees too many small files makes one of them, in one commit of adds and removes.

The commit says that no data changed (``dataChange`` false on both sides), which lets concurrent appends pass; deltalake
would refuse them otherwise. It would also let the same files be folded twice, so folds share a fence. A fold that loses
it, or fails, changes nothing and is not tried again: a writer that comes 64 files later will see the same files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from arro3.core import Table
from deltalake import CommitProperties, Transaction
from deltalake.transaction import RemoveAction

from odi_assets.delta.errors import CommitConflict
from odi_assets.errors import StateError
from odi_assets.state.delta.table import SystemTable
from odi_assets.state.delta.table_opening import Handle

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

MOST_FILES = 64
_FENCE = "odi/fold"
_VERSIONS_PER_LOOK = 8
_VACUUM_HOURS = 1
# Vacuum lists the whole folder, so only about one fold in so many does it.
_FOLDS_PER_VACUUM = 16
_FORMAT_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"})


@dataclass(frozen=True)
class DataFile:
    """A data file of a table's version; the path is relative to the table."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Folding:
    """How a table folds.

    Attributes:
        table: which.
        rows: the rows that the folded file shall hold, in order, given the handle and the files to fold.
        largest: files with at least so many rows stay as they are; None: every file is folded.
    """

    table: SystemTable
    rows: Callable[[Handle, Sequence[DataFile]], pa.Table]
    largest: int | None = None

    def if_needed(self, handle: Handle) -> None:
        """Fold if more than 64 small files are live; one commit in eight looks, and one in 64 folds.

        Never fails: the write it follows is done and acknowledged.
        """
        try:
            with self.table.calls("folding a system table"):
                # Of the writers that could see too many files at once, the version picks one.
                if handle.table.version() % _VERSIONS_PER_LOOK or not _plain(handle):
                    return
                files = self.small_files(handle)
                if len(files) <= MOST_FILES or not _is_turn(len(files)):
                    return
                self.fold(handle, files)
                if (handle.table.version() // MOST_FILES) % _FOLDS_PER_VACUUM == 0:
                    self._vacuum(handle)
        except CommitConflict as error:
            _log.debug("%s was folded by another process: %s", self.table.uri, error.message)
        except (StateError, ValueError, TypeError):
            # Arrow's errors are ValueErrors and TypeErrors: a file that another tool wrote in a way of its own.
            _log.warning("%s could not be folded; its look-ups will grow slower", self.table.uri, exc_info=True)

    def now(self, *, dry_run: bool = False) -> dict[str, int]:
        """Fold whatever there is, shorten the log and remove what nothing refers to; how many files each took out, or
        with ``dry_run`` would take out now.

        Raises:
            CommitConflict: another process folded at the same time.
            StateError: the table cannot be read or written.
        """
        handle = self.table.open()
        if handle is None:
            return {"files_folded": 0, "files_removed": 0}
        with self.table.calls("folding a system table"):
            files = self.small_files(handle)
            folded = len(files) if len(files) > 1 else 0
            if dry_run:
                return {"files_folded": folded, "files_removed": self._vacuum(handle, dry_run=True)}
            if not _plain(handle):
                # deltalake's own compaction knows partitions, but two at once would double the rows: only on demand.
                handle.table.optimize.compact()
            elif len(files) > 1:
                self.fold(handle, files)
            handle.table.create_checkpoint()
            handle.table.cleanup_metadata()
            return {"files_folded": folded, "files_removed": self._vacuum(handle)}

    def small_files(self, handle: Handle) -> list[DataFile]:
        """The live files that a fold would take."""
        actions = Table.from_arrow(handle.table.get_add_actions(flatten=True))
        columns = [actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
        files = [DataFile(unquote(path), size, rows or 0) for path, size, rows in zip(*columns, strict=True)]
        return [file for file in files if self.largest is None or file.rows < self.largest]

    def fold(self, handle: Handle, files: Sequence[DataFile]) -> None:
        """Put one file in the place of ``files``.

        Raises:
            CommitConflict: another process folded since ``handle`` was opened; nothing was changed.
        """
        with self.table.calls("folding a system table"):
            self._fold(handle, files)

    def _fold(self, handle: Handle, files: Sequence[DataFile]) -> None:
        from odi_assets.state.delta.parquet import DataFiles

        rows = self.rows(handle, files)
        store = DataFiles(self.table.uri, self.table.storage_options)
        added = store.write(f"part-{uuid4()}.folded.parquet", rows, self.table.indexed)
        now = int(time.time() * 1000)
        handle.table.create_write_transaction(
            [*(RemoveAction(file.path, False, now, file.size, {}) for file in files), added],
            mode="append",
            schema=handle.table.schema(),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(_FENCE, (handle.table.transaction_version(_FENCE) or 0) + 1)]
            ),
        )

    def _vacuum(self, handle: Handle, *, dry_run: bool = False) -> int:
        removed = handle.table.vacuum(
            retention_hours=_VACUUM_HOURS, dry_run=dry_run, enforce_retention_duration=False, full=True
        )
        return len(removed)


def _is_turn(files: int) -> bool:
    """Whether the writer that looks at so many files folds them, rather than one before it, which may be at it still.

    The number grows with every commit, so one look in each 64 files sees one of the first eight above a multiple.
    """
    return (files - 1) % MOST_FILES < _VERSIONS_PER_LOOK


def _plain(handle: Handle) -> bool:
    """Whether the table's files are its rows: no partitions, no deletion vectors, no renamed columns."""
    features = set(handle.table.protocol().reader_features or ())
    metadata = handle.table.metadata()
    renamed = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    return not metadata.partition_columns and not renamed and features <= _FORMAT_FEATURES
