"""Puts a table back to an earlier version, as a new version, in one fenced commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from odi_assets.connections.location import Location, is_there
from odi_assets.delta.commit import Stamp, settled
from odi_assets.delta.errors import deltalake_calls
from odi_assets.delta.history import file_system
from odi_assets.delta.protocol import require_removable
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError

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
    if returning(before, handle):
        require_removable(handle, f"going back to version {version}")
    properties = replace(stamp, transactions=tuple(fences)).properties({"changes": "table", "rewound_to": version})
    return settled(handle, stamp, lambda: handle.table.restore(version, commit_properties=properties))


def forget_missing_files(handle: TableHandle) -> None:
    """Take the files that the store does not hold any more out of the table, in one commit; their rows are lost.

    Raises:
        TableConflictError: another writer committed meanwhile.
        TableError: Delta refuses.
    """
    with handle.calls("taking missing files out of the table"):
        handle.table.repair()


def returning(handle: TableHandle, before: TableHandle) -> list[LiveFile]:
    """Files that are live in ``before`` and no longer in ``handle``."""
    live = {file.path for file in handle.live_files}
    return [file for file in before.live_files if file.path not in live]


def missing_files(location: Location, files: Sequence[LiveFile]) -> list[str]:
    """Paths of those ``files`` that the store does not hold (any more).

    Raises:
        TableError: the store cannot be looked at.
    """
    exists = presence(location, [file.path for file in files])
    return [file.path for file in files if not exists(file.path)]


def presence(location: Location, paths: Sequence[str] | None = None) -> Callable[[str], bool]:
    """Tells of paths relative to a table whether there is such a file.

    Args:
        paths: those that will be asked for; if they are many or unknown, a remote store is listed once.

    Raises:
        TableError: the store cannot be looked at; the function that is returned raises it, too.
    """
    if location.is_local:
        return lambda path: _is_there(location, path)
    from pyarrow.fs import FileSelector

    few = paths is not None and len(paths) < _LISTED_FROM
    with deltalake_calls("looking for files of the Delta table", location):
        found = file_system(location).get_file_info(list(paths or ()) if few else FileSelector("", recursive=True))
    return {info.path for info in found if info.is_file}.__contains__


def _is_there(location: Location, path: str) -> bool:
    with deltalake_calls("looking for files of the Delta table", location):
        return is_there(location.local_path / path)
