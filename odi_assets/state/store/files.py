"""The files of a state store: which versions each holds, and removing those that no retained version needs.

The commit that removes files has a fence of its own: it may stand beside the commit of a new version, and of two
cleanings at once one is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import unquote

from arro3.core import Table
from deltalake import CommitProperties, Transaction
from deltalake.transaction import RemoveAction

from odi_assets.delta.errors import deltalake_calls
from odi_assets.state.delta.table_opening import Handle

_FENCE = "odi/store/clean"
_VACUUM_HOURS = 1
_LAST = 2**63 - 1


@dataclass(frozen=True)
class StoreFile:
    """A data file, its path relative to the table, and the versions between which all its rows lie."""

    path: str
    size: int
    low: int
    high: int


def live_files(handle: Handle) -> list[StoreFile]:
    """The files of the table, those of older versions first."""
    actions = Table.from_arrow(handle.table.get_add_actions(flatten=True))
    present = set(actions.column_names)
    columns = [
        actions.column(name).to_pylist() if name in present else [None] * actions.num_rows
        for name in ("path", "size_bytes", "min.version", "max.version")
    ]
    files = [
        StoreFile(unquote(path), size, 0 if low is None else low, _LAST if high is None else high)
        for path, size, low, high in zip(*columns, strict=True)
    ]
    return sorted(files, key=lambda file: file.low)


def remove_before(handle: Handle, version: int, uri: str) -> int:
    """Remove the files all of whose rows belong to versions before ``version``, in one commit; how many.

    Raises:
        CommitConflict: another process removed files at the same time.
        StateError: the table cannot be written.
    """
    now = int(time.time() * 1000)
    old = [file for file in live_files(handle) if file.high < version]
    if old:
        with deltalake_calls("cleaning a state store", uri):
            handle.table.create_write_transaction(
                [RemoveAction(file.path, False, now, file.size, {}) for file in old],
                mode="append",
                schema=handle.table.schema(),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(_FENCE, (handle.table.transaction_version(_FENCE) or 0) + 1)]
                ),
            )
    return len(old)


def vacuum(handle: Handle, uri: str) -> int:
    """Delete what nothing has referred to for an hour; how many files."""
    with deltalake_calls("cleaning a state store", uri):
        removed = handle.table.vacuum(
            retention_hours=_VACUUM_HOURS, dry_run=False, enforce_retention_duration=False, full=True
        )
    return len(removed)


def shorten_log(handle: Handle, uri: str) -> None:
    """Write a checkpoint and delete the commits that it covers, as far as the log's retention lets it."""
    with deltalake_calls("cleaning a state store", uri):
        handle.table.create_checkpoint()
        handle.table.cleanup_metadata()
