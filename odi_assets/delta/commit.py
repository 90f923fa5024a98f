"""The one moment that counts: data, fence and facts in one Delta commit, on the handle that the plan was made on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from deltalake import CommitProperties, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions

from odi_assets.config.write_modes import ComputedFrom
from odi_assets.delta.conflicts import is_unchanged
from odi_assets.delta.history import METADATA_KEY, CommittedStamp
from odi_assets.delta.store_answers import plain
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.delta.types import PartitionValues, Stamp
from odi_assets.errors import FencedError, TableConflictError, TableError

_REBASES = 8
"""How many commits of others a commit that depends on what the table holds may meet before it gives up."""

RowChanges = Literal["rows", "partitions", "table"]
"""What a commit changed, told to downstream readers: single rows (all in the files added with ``dataChange``),
whole partitions, or the whole table."""


@dataclass(frozen=True)
class FileChanges:
    """The files a commit puts in and takes out.

    Attributes:
        new: files holding rows that are new or changed.
        carried: files holding rows that only moved here from a removed file; committed without ``dataChange``.
        removed: live files that leave the table.
        kind: what downstream readers may conclude from ``new``.
        replace_all: every live file of the handle's version leaves the table, and the schema becomes the one given.
        new_schema: the schema becomes the one given, and no file leaves.
        basis: what of the table this was computed from; ``partitions`` are those it replaces.
        data_change: whether removed files take rows along that are not carried: False for compaction.
    """

    new: Sequence[AddAction]
    kind: RowChanges
    carried: Sequence[AddAction] = ()
    removed: Sequence[LiveFile] = ()
    replace_all: bool = False
    new_schema: bool = False
    data_change: bool = True
    rows_written: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    keys: tuple[str, ...] = ()
    basis: ComputedFrom = "nothing"
    partitions: Sequence[PartitionValues] = ()

    @property
    def takes_files(self) -> bool:
        return self.replace_all or bool(self.removed)


def commit(
    handle: TableHandle, schema_json: str, partition_by: Sequence[str], changes: FileChanges, stamp: Stamp
) -> int:
    """Commit, and return the version it made.

    An answer that was lost on the way (the commit landed, the call failed) is found out and counts as done. A commit
    that other writers came before is made on the version they left, if what it was computed from stands there.

    Raises:
        FencedError: the fence number was taken by another run. Nothing was written to the table.
        TableConflictError: another writer removed a file this commit removes, or the log moved in a way Delta refuses.
        TableError: Delta refuses the commit for good.
    """
    for tries_left in range(_REBASES, -1, -1):
        try:
            _commit_once(handle, schema_json, partition_by, changes, stamp)
        except (CommitFailedError, DeltaError, OSError) as error:
            later = _later(handle, changes, stamp, error) if tries_left else None
            if later is None:
                return _after_failure(handle, stamp, error)
            handle, stamp = later
        else:
            return _own_stamp(handle.refreshed(), stamp).version
    raise AssertionError("the last try returns or raises")


def _later(
    handle: TableHandle, changes: FileChanges, stamp: Stamp, error: Exception
) -> tuple[TableHandle, Stamp] | None:
    """The table as others left it, if this commit may be made there as it is; None if it may not."""
    if not isinstance(error, CommitFailedError) or not handle.exists:
        return None
    now = handle.refreshed()
    if now.version == handle.version or _landed(handle, now, stamp) is not None:
        return None
    taken = now.transaction_number(stamp.app_id)
    if stamp.fences and taken >= stamp.number:
        return None
    if not _same_to_remove(handle, now, changes) or not is_unchanged(handle, now, changes.basis, changes.partitions):
        return None
    return now, replace(stamp, number=max(stamp.number, taken + 1))


def _same_to_remove(then: TableHandle, now: TableHandle, changes: FileChanges) -> bool:
    if changes.replace_all:
        # It takes out whatever the version it is made on has.
        return True
    live = {file.path for file in now.live_files} if changes.removed else set()
    return now.exists and now.schema_json == then.schema_json and all(file.path in live for file in changes.removed)


def _landed(handle: TableHandle, now: TableHandle, stamp: Stamp) -> CommittedStamp | None:
    """Our own commit, if it is among those since ``handle`` was opened."""
    before = -1 if handle.version is None else handle.version
    since = takewhile(lambda found: found.version > before, now.stamps())
    return next((found for found in since if found.write_id == stamp.write_id), None)


def _commit_once(
    handle: TableHandle, schema_json: str, partition_by: Sequence[str], changes: FileChanges, stamp: Stamp
) -> None:
    require_unfenced(handle, stamp)
    alone = not handle.exists or changes.takes_files or changes.basis != "nothing" or not stamp.fences
    properties = CommitProperties(
        custom_metadata={METADATA_KEY: _facts(stamp, changes)},
        app_transactions=[Transaction(stamp.app_id, stamp.number)],
        # Left to retry, deltalake 1.6 lets several creators of one table succeed, the later ones as version 1; passes
        # over what others added; and removes files that a compaction has removed, whose rows then are there twice.
        max_commit_retries=0 if alone else None,
    )
    if handle.exists:
        # Where there is a checkpoint, deltalake takes away what is older than the log's retention. The stamp that tells
        # a node's HWM is out of use only once its next increment is committed.
        cleans = stamp.fences and changes.data_change
        hooks = PostCommitHookProperties(cleanup_expired_logs=None if cleans else False)
        _commit_to(handle, schema_json, partition_by, changes, properties, hooks)
    else:
        create_table_with_add_actions(
            handle.location.uri,
            Schema.from_json(schema_json),
            [*changes.new, *changes.carried],
            mode="error",
            partition_by=list(partition_by),
            storage_options=dict(handle.location.storage_options) or None,
            commit_properties=properties,
        )


def settled(handle: TableHandle, stamp: Stamp, attempt: Callable[[], object]) -> int:
    """Make one attempt to commit with ``stamp``, and return the version it made, whatever the answer was.

    Raises:
        FencedError, TableConflictError, TableError: as :func:`commit` does.
    """
    try:
        attempt()
    except (CommitFailedError, DeltaError, OSError) as error:
        return _after_failure(handle, stamp, error)
    return _own_stamp(handle.refreshed(), stamp).version


def _commit_to(
    handle: TableHandle,
    schema_json: str,
    partition_by: Sequence[str],
    changes: FileChanges,
    properties: CommitProperties,
    hooks: PostCommitHookProperties,
) -> None:
    now = int(time.time() * 1000)
    removals = [] if changes.replace_all else [_removal(file, now, changes.data_change) for file in changes.removed]
    handle.table.create_write_transaction(
        [*removals, *changes.new, *changes.carried],
        mode="overwrite" if changes.replace_all or changes.new_schema else "append",
        schema=Schema.from_json(schema_json),
        partition_by=list(partition_by),
        partition_filters=_no_file(handle) if changes.new_schema else None,
        commit_properties=properties,
        post_commithook_properties=hooks,
    )


def _no_file(handle: TableHandle) -> list[tuple[str, str, Any]]:
    """A filter that matches no file: only an overwrite changes the schema in its own commit, and it is to keep them.

    Raises:
        TableError: the table has no column that deltalake takes filters of.
    """
    simple = [name for name, kind in handle.columns.items() if isinstance(kind, str)]
    if not simple:
        raise TableError(
            f"columns cannot join the table at {handle.location.uri}, which has no column of a simple type",
            fix="rebuild the table with its new schema: odi run --full-refresh",
            uri=handle.location.uri,
        )
    return [(simple[0], "in", [])]


def _removal(file: LiveFile, now_ms: int, data_change: bool) -> RemoveAction:
    return RemoveAction(file.path, data_change, now_ms, file.size, dict(file.partition))


def _facts(stamp: Stamp, changes: FileChanges) -> dict[str, Any]:
    return {
        **stamp.facts,
        "fence": {"app_id": stamp.app_id, "number": stamp.number},
        "write_id": stamp.write_id,
        "changes": changes.kind,
        "rows_written": changes.rows_written,
        "rows_updated": changes.rows_updated,
        "rows_deleted": changes.rows_deleted,
        "keys": list(changes.keys),
    }


def _after_failure(handle: TableHandle, stamp: Stamp, error: Exception) -> int:
    now = handle.refreshed()
    rival = _stamp_numbered(now, stamp)
    own = _landed(handle, now, stamp)
    if own is not None:
        return own.version
    if stamp.fences and (rival is not None or now.transaction_number(stamp.app_id) >= stamp.number):
        raise _fenced(stamp, rival) from error
    if isinstance(error, CommitFailedError) or now.exists != handle.exists:
        raise TableConflictError(
            f"the commit to {handle.location.uri} met a concurrent change: {plain(error)}",
            fix="run the node again; nothing was written",
            uri=handle.location.uri,
        ) from error
    if isinstance(error, OSError):
        raise error
    raise TableError(
        f"Delta refused the commit to {handle.location.uri}: {plain(error)}", uri=handle.location.uri
    ) from error


def require_unfenced(handle: TableHandle, stamp: Stamp) -> None:
    """Raises FencedError if ``handle`` knows that the fence is taken: deltalake does not look at that itself."""
    if handle.transaction_number(stamp.app_id) >= stamp.number:
        raise _fenced(stamp, _stamp_numbered(handle, stamp))


def _fenced(stamp: Stamp, rival: CommittedStamp | None) -> FencedError:
    winner = rival.facts.get("run_id") if rival else None
    return FencedError(
        f"run {stamp.facts.get('run_id', stamp.write_id)} lost fence {stamp.number} of {stamp.app_id}: "
        f"run {winner or 'unknown'} committed it first; nothing was written",
        fix="nothing is lost: the next run goes on from where the winner stopped",
        node=stamp.facts.get("node"),
        winner=winner,
        run_id=stamp.facts.get("run_id"),
    )


def _own_stamp(handle: TableHandle, stamp: Stamp) -> CommittedStamp:
    own = _stamp_numbered(handle, stamp)
    if own is None or own.write_id != stamp.write_id:
        raise TableError(
            f"the commit {stamp.write_id} to {handle.location.uri} was acknowledged and is not in the table's log",
            fix="something rewrote the table's log; look at its history before running the node again",
            uri=handle.location.uri,
        )
    return own


def _stamp_numbered(handle: TableHandle, stamp: Stamp) -> CommittedStamp | None:
    for found in handle.stamps():
        if found.app_id == stamp.app_id and found.number <= stamp.number:
            return found if found.number == stamp.number else None
    return None


def removed_rows(files: Iterable[LiveFile]) -> int | None:
    """Rows in ``files``; None if one of them carries no count."""
    counts = [file.rows for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)
