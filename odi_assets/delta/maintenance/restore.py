"""Puts a table back to an earlier version, as a new version, in one fenced commit."""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from deltalake import PostCommitHookProperties

from odi_assets.connections.location import Location, is_there
from odi_assets.delta.commit import Stamp, settled
from odi_assets.delta.damage import file_system
from odi_assets.delta.errors import deltalake_calls
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.maintenance.repair import set_aside
from odi_assets.delta.on_disk import sync_commit
from odi_assets.delta.protocol import require_removable
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError
from odi_assets.util.lazy import pa_fs

_LISTED_FROM = 50
"""Fewer files than this are looked up one by one in a store; for more, the table's folder is listed."""


def restore(handle: TableHandle, version: int, stamp: Stamp, fences: Iterable[tuple[str, int]] = ()) -> int:
    """Give the table the rows, schema and properties of ``version``, and return the version that this makes.

    Args:
        fences: further app transactions that the commit takes, as (app_id, number).

    Raises:
        FencedError, TableConflictError: another commit came first; the table is as it was.
        TableError: files of ``version`` are gone, or Delta refuses.
    """
    before = TableHandle.open(handle.location, version)
    gone = lost_files(handle.location, returning(handle, before))
    if gone:
        raise TableError(
            f"version {version} of the table at {handle.location.uri} cannot be put back: {len(gone):,} of its files "
            f"are gone or cut, {gone[0]} among them",
            fix="choose a later version: what vacuum removed does not come back",
            uri=handle.location.uri,
            version=version,
        )
    if returning(before, handle):
        require_removable(handle, f"going back to version {version}")
    properties = replace(stamp, transactions=tuple(fences)).properties({"changes": "table", "rewound_to": version})
    # Who follows the table may need what a cleaning would take.
    kept = PostCommitHookProperties(cleanup_expired_logs=False)
    send = partial(handle.table.restore, version, commit_properties=properties, post_commithook_properties=kept)
    made = settled(handle, stamp, send)
    sync_commit(handle.location, made)
    return made


@dataclass(frozen=True)
class LostFile:
    """A data file that cannot be read any more: it is gone, was cut, or is damaged.

    Attributes:
        size: None if it is gone.
        expected: the size in the log.
        why: what is wrong with a file of the right size.
    """

    path: str
    size: int | None
    expected: int
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"{self.path} ({self.why})"
        if self.size is None:
            return f"{self.path} (gone)"
        return f"{self.path} ({self.size:,} of its {self.expected:,} bytes)"


def has_version_before(handle: TableHandle, lost: Sequence[LostFile]) -> bool:
    """Whether the newest kept version without these files can be read, and so be put back."""
    gone = {file.path for file in lost}

    def holds_one(version: int) -> bool:
        if not handle.is_kept(version):
            return True
        return any(file.path in gone for file in TableHandle.open(handle.location, version).live_files)

    kept = sorted(commit.version for commit in handle.commits())
    first = bisect_left(kept, True, key=holds_one)
    if first == 0 or holds_one(kept[first - 1]):
        return False
    return not lost_files(handle.location, TableHandle.open(handle.location, kept[first - 1]).live_files)


def forget_lost_files(handle: TableHandle, lost: Sequence[LostFile]) -> str | None:
    """Take files that are gone or damaged out of the table, in one commit; their rows are lost. What is left of them is
    set aside; returns where to, None if nothing is left.

    Raises:
        TableConflictError: another writer committed first.
        TableError: Delta refuses.
    """
    cut = tuple(file.path for file in lost if file.size is not None)
    aside = set_aside(handle.location, cut) if cut else None
    with handle.calls("taking missing files out of the table"):
        handle.table.repair()
    return aside


def returning(handle: TableHandle, before: TableHandle) -> list[LiveFile]:
    """Files that are live in ``before`` and no longer in ``handle``."""
    live = {file.path for file in handle.live_files}
    return [file for file in before.live_files if file.path not in live]


def lost_files(location: Location, files: Sequence[LiveFile | WrittenFile]) -> list[LostFile]:
    """The ``files`` that the store does not hold (any more) with the size in the log.

    Raises:
        TableError: the store cannot be looked at.
    """
    size_of = _sizes(location, [file.path for file in files])
    sized_files = ((file, size_of(file.path)) for file in files)
    return [
        LostFile(file.path, size, file.size)
        for file, size in sized_files
        if size is None or (file.size and size != file.size)
    ]


def removed_files(handle: TableHandle, files: Sequence[LiveFile]) -> list[str]:
    """The paths of ``files`` that left the table since, and were deleted from its storage. Files of the version of
    ``handle`` are not looked for.

    Raises:
        TableError: the store cannot be looked at.
    """
    live = {file.path for file in handle.live_files}
    left = sorted({file.path for file in files} - live)
    exists = presence(handle.location, left)
    return [path for path in left if not exists(path)]


def presence(location: Location, paths: Sequence[str] | None = None) -> Callable[[str], bool]:
    """A function that says whether there is a file at a path relative to the table.

    Args:
        paths: the paths that will be asked for; if they are many or unknown, a remote store is listed once.

    Raises:
        TableError: the store cannot be looked at; the function that is returned raises it, too.
    """
    size_of = _sizes(location, paths)
    return lambda path: size_of(path) is not None


def _sizes(location: Location, paths: Sequence[str] | None) -> Callable[[str], int | None]:
    """A function that returns the size of the file at a path relative to the table; None if there is none."""
    if location.is_local:
        return lambda path: _local_size(location, path)
    few = paths is not None and len(paths) < _LISTED_FROM
    with deltalake_calls("looking for files of the Delta table", location):
        infos = file_system(location).get_file_info(
            list(paths or ()) if few else pa_fs.FileSelector("", recursive=True)
        )
    return {info.path: int(info.size) for info in infos if info.is_file}.get


def _local_size(location: Location, path: str) -> int | None:
    with deltalake_calls("looking for files of the Delta table", location):
        file = location.local_path / path
        if not is_there(file):
            return None
        status = file.stat()
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
