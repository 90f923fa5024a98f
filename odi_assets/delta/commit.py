"""The one moment that counts: data, fence and facts in one Delta commit, on the handle that the plan was made on.

:func:`commit` commits to a node's table: with a stamp, repeated on top of what others committed first, and retried
while the store does not answer. :func:`looked_for` finds out what became of any commit whose answer was lost.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from deltalake import CommitProperties, PostCommitHookProperties, Schema
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions

from odi_assets.config.write_modes import ComputedFrom
from odi_assets.delta.conflicts import is_unchanged
from odi_assets.delta.damage import damage_behind
from odi_assets.delta.errors import OutcomeUnknownError, StoreUnreachableError, store_options
from odi_assets.delta.history import METADATA_KEY, CommittedStamp, commit_at
from odi_assets.delta.on_disk import is_synced, sync_commit, sync_data
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.delta.retry import MOST_RACES, Retry
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import FencedError, OdiError, TableConflictError, TableError
from odi_assets.util.phases import phase

if TYPE_CHECKING:
    from odi_assets.connections.location import Location
    from odi_assets.delta.files.footers import WrittenFile

_log = logging.getLogger(__name__)
_CLEANS_EVERY = 100
"""In a store, each commit of this number cleans the log: deltalake makes a checkpoint as often."""
T = TypeVar("T")

RowChanges = Literal["rows", "partitions", "table"]
"""What a commit changed, for downstream readers: single rows (all in the files added with ``dataChange``), whole
partitions, or the whole table."""


@dataclass(frozen=True)
class Stamp:
    """What a commit says of itself besides its data: the fence that admits one writer, and facts for the next plan.

    Attributes:
        app_id: the Delta app transaction of the node.
        number: the fence; the last committed one plus 1.
        facts: JSON-ready: HWM, increment, run id, state revision, code version.
        write_id: fresh for every write; names the folder of its files and identifies our commit.
        fences: False for bounded runs: their number admits no writer before others, and the next number is taken when
            another run came first. Their rows hold only for the table as the handle has it, so they are never written
            to a later one.
        late_facts: facts that are known only once the rows are written.
        transactions: app transactions that the commit has beside the fence.
        keeps_log: whether somebody needs commits that are older than the log's retention, which a commit cleans away
            from time to time; None: nobody does.
    """

    app_id: str
    number: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    write_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    fences: bool = True
    late_facts: Callable[[], Mapping[str, Any]] | None = None
    transactions: Sequence[tuple[str, int]] = ()
    keeps_log: Callable[[], bool] | None = None

    @classmethod
    def next_on(
        cls,
        handle: TableHandle,
        app_id: str,
        facts: Mapping[str, Any],
        *,
        late_facts: Callable[[], Mapping[str, Any]] | None = None,
        transactions: Sequence[tuple[str, int]] = (),
    ) -> Stamp:
        """The stamp of the commit on ``handle`` that comes next among those that ``app_id`` fences."""
        number = handle.transaction_number(app_id) + 1
        return cls(app_id, number, facts, late_facts=late_facts, transactions=transactions)

    def properties(self, facts: Mapping[str, Any], *, max_retries: int | None = None) -> CommitProperties:
        """A commit's properties: these ``facts`` of the commit, ours, and its transactions."""
        fence = {"app_id": self.app_id, "number": self.number}
        late = self.late_facts() if self.late_facts is not None else {}
        metadata = {**self.facts, **late, "fence": fence, "write_id": self.write_id, **facts}
        return CommitProperties(
            custom_metadata={METADATA_KEY: metadata},
            app_transactions=[
                Transaction(app, number) for app, number in [(self.app_id, self.number), *self.transactions]
            ],
            max_commit_retries=max_retries,
        )


@dataclass(frozen=True)
class FileChanges:
    """The files a commit puts in and takes out.

    Attributes:
        kind: what downstream readers may conclude from ``new``.
        new: files of rows that are new or changed.
        moved: files of rows that were in a removed file before; committed without ``dataChange``.
        removed: live files that leave the table.
        replace_all: every live file of the handle's version leaves the table, and the schema becomes the one given.
        new_schema: the schema becomes the one given, and no file leaves.
        data_change: False if ``moved`` holds all rows of the removed files, as after a compaction.
        rows_updated: rows of ``new`` that replaced a row with the same keys.
        rows_deleted: rows that left the table for good.
        keys: the columns that identify a row.
        computed_from: what of the table this was computed from.
        partitions: partitions that changed, in addition to the partitions of ``new``.
    """

    kind: RowChanges
    new: Sequence[WrittenFile]
    moved: Sequence[WrittenFile] = ()
    removed: Sequence[LiveFile] = ()
    replace_all: bool = False
    new_schema: bool = False
    data_change: bool = True
    rows_updated: int = 0
    rows_deleted: int = 0
    keys: tuple[str, ...] = ()
    computed_from: ComputedFrom = "nothing"
    partitions: Sequence[PartitionValues] = ()


# -- any commit --------------------------------------------------------------------------------------------------------


def looked_for(handle: TableHandle, look: Callable[[], T | None], refused: OdiError | None = None) -> T | None:
    """What ``look`` finds of a commit that was sent through ``handle``; None if it did not land.

    Args:
        look: what the caller wants of the commit, from the table as it is now; None if it is not there.
        refused: what the commit was answered, if that was an error: its answer may have been lost on the way.

    Raises:
        OutcomeUnknownError: the store does not answer.
    """
    location = handle.location
    try:
        landed = look()
    except StoreUnreachableError as error:
        unknown = OutcomeUnknownError(
            f"it is not known whether a commit to {location.uri} was made: {error.message}",
            fix="when the store answers, look at what is there before writing it again",
            uri=location.uri,
            connection=location.connection,
        )
        unknown.look = lambda: looked_for(handle, look)
        raise unknown from error
    if landed is not None and refused is not None:
        _log.info("a commit to %s landed although its answer was: %s", location.uri, refused.message)
    return landed


def replace_files(handle: TableHandle, added: Sequence[AddAction], removed: Sequence[LiveFile], app_id: str) -> None:
    """Put ``added`` in the place of ``removed``, in one commit that changes no row: concurrent appends pass.

    deltalake checks no removals against each other that change no row, so ``app_id`` fences: of two at once, one is
    refused.

    Raises:
        TableError, StateError: nothing was changed.
    """
    now = int(time.time() * 1000)
    fence = Transaction(app_id, handle.transaction_number(app_id) + 1)
    sync_data(handle.location, [action.path for action in added])
    with handle.calls("replacing files"):
        handle.table.create_write_transaction(
            [*(_removal(file, now, data_change=False) for file in removed), *added],
            mode="append",
            schema=handle.table.schema(),
            commit_properties=CommitProperties(app_transactions=[fence]),
            post_commithook_properties=cleaning(handle.location),
        )


# -- the commit of a node's table --------------------------------------------------------------------------------------


@phase("commit")
def commit(
    handle: TableHandle,
    schema_json: str,
    partition_by: Sequence[str],
    changes: FileChanges,
    stamp: Stamp,
    retry: Retry | None = None,
) -> int:
    """Commit, and return the version it made.

    An answer that was lost on the way (the commit landed, the call failed) is found out and counts as done. A store
    that does not answer is asked again. A commit that other writers came before is made on the version they left, if
    what it was computed from is the same there.

    Args:
        retry: how often the store is asked again, and after what waits; as ``handle.location.retry`` says if None.

    Raises:
        FencedError: the fence number was taken by another run. Nothing was written to the table.
        TableConflictError: another writer removed a file this commit removes, or the log moved in a way Delta refuses.
        StoreUnreachableError: the store did not answer until the retries were used up.
        TableError: Delta or the store refuses the commit for good.
    """

    location = handle.location
    sync_data(location, [file.path for file in (*changes.new, *changes.moved)])
    for rebases_left in range(MOST_RACES, -1, -1):
        send = partial(_commit_once, handle, schema_json, partition_by, changes, stamp)
        try:
            version = settled(handle, stamp, send, retry)
            is_covered = sync_commit(location, version)
            if stamp.keeps_log is not None and not is_synced(location):
                is_covered = version % _CLEANS_EVERY == 0
            if is_covered and _cleans(changes, stamp):
                _clean_log(location, stamp)
            return version
        except TableConflictError:
            rebased = _rebased(handle, changes, stamp) if rebases_left else None
            if rebased is None:
                raise
            handle, stamp = rebased
    raise AssertionError("the last try returns or raises")


def settled(handle: TableHandle, stamp: Stamp, send: Callable[[], object], retry: Retry | None = None) -> int:
    """Make a commit with ``stamp`` that is never rebased, and return the version it made, whatever the answer was.

    Raises:
        FencedError, TableConflictError, TableError: as :func:`commit` does.
    """
    policy = retry or Retry(handle.location.retry)
    # Conflicts are not waited for: whoever met one has to look at the table first.
    return policy.call(
        lambda: _settled_once(handle, stamp, send),
        f"the commit to {handle.location.uri}",
        again=lambda error: isinstance(error, StoreUnreachableError),
    )


def _settled_once(handle: TableHandle, stamp: Stamp, send: Callable[[], object]) -> int:
    refused: OdiError | None = None
    # A restore moves its handle on, so the version is asked for before it.
    before = handle.version
    try:
        with handle.calls("the commit"):
            send()
    except OdiError as error:
        refused = error
    version = looked_for(handle, partial(_landed, handle, before, stamp), refused)
    if version is not None:
        return version
    if refused is None:
        raise TableError(
            f"the commit {stamp.write_id} to {handle.location.uri} was acknowledged and is not in the table's log",
            fix="something rewrote the table's log; look at its history before running the node again",
            uri=handle.location.uri,
        )
    raise _explained(handle, stamp, refused)


def _explained(handle: TableHandle, stamp: Stamp, refused: OdiError) -> OdiError:
    """Why a commit that is not in the table was refused: deltalake does not tell a lost fence from another conflict."""
    if isinstance(refused, StoreUnreachableError) or not isinstance(refused, TableError):
        return refused
    now = TableHandle.open_once(handle.location)
    rival = _stamp_numbered(now, stamp)
    if stamp.fences and (rival is not None or now.transaction_number(stamp.app_id) >= stamp.number):
        error: OdiError = _fenced(stamp, rival)
    elif now.exists != handle.exists and not isinstance(refused, TableConflictError):
        fix = "run the node again; nothing was written"
        error = TableConflictError(refused.message, fix=fix, uri=handle.location.uri)
    elif (error := damage_behind(refused, handle.location, handle.owner)) is refused:
        return refused
    error.__cause__ = refused
    return error


def _rebased(handle: TableHandle, changes: FileChanges, stamp: Stamp) -> tuple[TableHandle, Stamp] | None:
    """The table as others left it, if this commit may be made there as it is; None if it may not."""
    if not handle.exists:
        return None
    now = TableHandle.open_once(handle.location)
    if now.version == handle.version:
        return None
    taken = now.transaction_number(stamp.app_id)
    if stamp.fences and taken >= stamp.number:
        return None
    partitions = [*(file.partition for file in changes.new), *changes.partitions]
    if not _same_to_remove(handle, now, changes) or not is_unchanged(handle, now, changes.computed_from, partitions):
        return None
    return now, replace(stamp, number=max(stamp.number, taken + 1))


def _same_to_remove(then: TableHandle, now: TableHandle, changes: FileChanges) -> bool:
    if not now.exists or now.rules != then.rules:
        return False
    # One that replaces all takes out whatever the version it is made on has.
    removed = () if changes.replace_all else changes.removed
    live = {file.path for file in now.live_files} if removed else set()
    return all(file.path in live for file in removed)


def _landed(handle: TableHandle, before: int | None, stamp: Stamp) -> int | None:
    """The version of our own commit, if it is among those after ``before``; None stands for no table."""
    last = -1 if before is None else before
    # Mostly it is the next one, and to read that takes a tenth of the time that opening the table takes.
    following = commit_at(handle.location, last + 1)
    if following is not None and following.stamp is not None and following.stamp.write_id == stamp.write_id:
        return following.version
    since = takewhile(lambda committed: committed.version > last, TableHandle.open_once(handle.location).stamps())
    return next((committed.version for committed in since if committed.write_id == stamp.write_id), None)


def _commit_once(
    handle: TableHandle, schema_json: str, partition_by: Sequence[str], changes: FileChanges, stamp: Stamp
) -> None:
    if handle.exists:
        require_unfenced(handle, stamp)
    removes = changes.replace_all or bool(changes.removed)
    alone = not handle.exists or removes or changes.computed_from != "nothing" or not stamp.fences
    # Left to retry, deltalake 1.6 lets several creators of one table succeed, the later ones as version 1; passes
    # over what others added; and removes files that a compaction has removed, whose rows then are there twice.
    written = {
        "changes": changes.kind,
        "rows_written": sum(file.rows for file in changes.new),
        "rows_updated": changes.rows_updated,
        "rows_deleted": changes.rows_deleted,
        "keys": list(changes.keys),
    }
    properties = stamp.properties(written, max_retries=0 if alone else None)
    added = [file.add_action(data_change=True) for file in changes.new]
    added += [file.add_action(data_change=False) for file in changes.moved]
    if not handle.exists:
        create_table_with_add_actions(
            handle.location.uri,
            Schema.from_json(schema_json),
            added,
            mode="error",
            partition_by=list(partition_by),
            storage_options=store_options(handle.location),
            commit_properties=properties,
        )
        return
    now = int(time.time() * 1000)
    removals = [] if changes.replace_all else [_removal(file, now, changes.data_change) for file in changes.removed]
    handle.table.create_write_transaction(
        [*removals, *added],
        mode="overwrite" if changes.replace_all or changes.new_schema else "append",
        schema=Schema.from_json(schema_json),
        partition_by=list(partition_by),
        partition_filters=_no_file(handle) if changes.new_schema else None,
        commit_properties=properties,
        post_commithook_properties=cleaning(
            handle.location, wanted=_cleans(changes, stamp) and stamp.keeps_log is None
        ),
    )


def _cleans(changes: FileChanges, stamp: Stamp) -> bool:
    """Whether a commit may remove what is older than the log's retention. The stamp with a node's HWM is in use until
    the node's next increment is committed."""
    return stamp.fences and changes.data_change


def _clean_log(location: Location, stamp: Stamp) -> None:
    """Clean the log, unless somebody needs it. The commit is made: what cannot be looked at or cleaned now stays until
    a later commit cleans."""
    try:
        if stamp.keeps_log is None or not stamp.keeps_log():
            TableHandle.open_once(location).clean_log()
    except OdiError as error:
        _log.info("%s: its log is not cleaned: %s", location.uri, error)


def cleaning(location: Location, *, wanted: bool = True) -> PostCommitHookProperties:
    """Whether deltalake cleans the log as it commits. Where commits are put on the disk, its checkpoint has to be there
    first, and the log is cleaned after that."""
    return PostCommitHookProperties(cleanup_expired_logs=None if wanted and not is_synced(location) else False)


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


def _stamp_numbered(handle: TableHandle, stamp: Stamp) -> CommittedStamp | None:
    for committed in handle.stamps():
        if committed.app_id == stamp.app_id and committed.number <= stamp.number:
            return committed if committed.number == stamp.number else None
    return None
