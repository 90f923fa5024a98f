"""Puts a table back to an earlier version, as a new version, in one fenced commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import fsspec
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import Transaction

from odi_assets.connections.location import Location
from odi_assets.delta.commit import settled
from odi_assets.delta.history import METADATA_KEY
from odi_assets.delta.store_answers import plain
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.delta.types import Stamp
from odi_assets.errors import TableConflictError, TableError

_LISTED_FROM = 50
"""So many files of a store are looked up one by one; more of them by listing the table's folder."""


def restore(handle: TableHandle, version: int, stamp: Stamp, fences: Iterable[tuple[str, int]] = ()) -> int:
    """Make the rows, schema and properties of ``version`` those of the table, and return the version this makes.

    Args:
        fences: further app transactions that the commit takes, as (app_id, number).

    Raises:
        FencedError, TableConflictError: another commit came first; the table is as it was.
        TableError: files of ``version`` are gone, or Delta refuses.
    """
    before = TableHandle.open(handle.location, version)
    gone = missing_files(handle.location, returning(handle, before))
    if gone:
        raise TableError(
            f"version {version} of the table at {handle.location.uri} cannot be put back: {len(gone):,} of its files "
            f"are gone, {gone[0]} among them",
            fix="choose a later version: what vacuum removed does not come back",
            uri=handle.location.uri,
            version=version,
        )
    facts: dict[str, Any] = {
        **stamp.facts,
        "fence": {"app_id": stamp.app_id, "number": stamp.number},
        "write_id": stamp.write_id,
        "changes": "table",
        "rewound_to": version,
    }
    properties = CommitProperties(
        custom_metadata={METADATA_KEY: facts},
        app_transactions=[Transaction(app, n) for app, n in [(stamp.app_id, stamp.number), *fences]],
    )
    return settled(handle, stamp, lambda: handle.table.restore(version, commit_properties=properties))


def forget_missing_files(handle: TableHandle) -> None:
    """Take the files that the store does not hold any more out of the table, in one commit; their rows are lost.

    Raises:
        TableConflictError: another writer committed meanwhile.
        TableError: Delta refuses.
    """
    try:
        handle.table.repair()
    except CommitFailedError as error:
        raise TableConflictError(
            f"the table at {handle.location.uri} was changed while its missing files were taken out: {plain(error)}",
            fix="try again",
            uri=handle.location.uri,
        ) from error
    except DeltaError as error:
        raise TableError(
            f"the missing files of the table at {handle.location.uri} could not be taken out of it: {plain(error)}",
            fix="rebuild the table with odi run --full-refresh",
            uri=handle.location.uri,
        ) from error


def returning(handle: TableHandle, before: TableHandle) -> list[LiveFile]:
    """Files that are live in ``before`` and no longer in ``handle``."""
    live = {file.path for file in handle.live_files}
    return [file for file in before.live_files if file.path not in live]


def missing_files(location: Location, files: Sequence[LiveFile]) -> list[str]:
    """Paths of those ``files`` that the store does not hold (any more)."""
    if location.is_local:
        return [file.path for file in files if not (location.local_path / file.path).exists()]
    filesystem, root = fsspec.core.url_to_fs(location.uri, **location.fsspec_options)
    if len(files) < _LISTED_FROM:
        return [file.path for file in files if not filesystem.exists(f"{root}/{file.path}")]
    there = {str(path).removeprefix(f"{root.rstrip('/')}/") for path in filesystem.find(root)}
    return [file.path for file in files if file.path not in there]
