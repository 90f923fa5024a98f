"""The versions of a state store: opening one, committing the next, keeping as many as are retained."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, NoReturn
from uuid import uuid4

from odi_assets.connections.location import Location, absolute
from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.retry import Retry
from odi_assets.delta.table import TableHandle
from odi_assets.errors import FencedError, StateError
from odi_assets.store import check
from odi_assets.store.contents import Draft, VersionContents
from odi_assets.store.files import files_before, remove_before
from odi_assets.store.log import PendingVersion, VersionLog
from odi_assets.store.parts import VersionHeader, VersionPart
from odi_assets.store.state_store import StateStore, StoreChange

if TYPE_CHECKING:
    from odi_assets.store.check import StoreCheck

_log = logging.getLogger(__name__)

RETAINED = 100
"""How many versions stay readable at least; Spark's ``minBatchesToRetain``."""
SNAPSHOT_EVERY = 10
"""How many versions apart snapshots are; Spark's ``minDeltasForSnapshot``."""
KEPT_IN_MEMORY = 2
"""How many versions a provider keeps in memory; Spark's ``maxBatchesToRetainInMemory``."""
_COUNTED = ("cache_hits", "cache_misses", "loads", "load_ms", "snapshots_rebuilt")
_CLEANINGS_PER_VACUUM = 16
_VACUUM_HOURS = 1


class StateStoreProvider:
    """The versions of one state store: a Delta table of its own, made with the first commit.

    Threads may share a provider, and any number of processes may use one store: each version is committed once.

    Args:
        uri: path or URI of the store.
        storage_options: deltalake's options for the store; never shown.
        retain: how many of the newest versions stay readable at least.
        writer: who commits: a run id, a task's id. What is tried again must carry the same, so that a batch that was
            committed already is known; without it each provider is a writer of its own.
        snapshot_every: how many versions apart snapshots are. More make commits smaller and loading slower.
        keep_in_memory: how many versions, those used last, stay in memory; with 0 each is read from its files.
        retry: how conflicts and transient faults of the store are retried.

    Raises:
        StateError: ``retain`` or ``snapshot_every`` is less than 1, or ``keep_in_memory`` less than 0.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        retain: int = RETAINED,
        writer: str | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
        keep_in_memory: int = KEPT_IN_MEMORY,
        retry: Retry | None = None,
    ) -> None:
        for name, number, least in (
            ("retain", retain, 1),
            ("snapshot_every", snapshot_every, 1),
            ("keep_in_memory", keep_in_memory, 0),
        ):
            if number < least:
                raise StateError(f"`{name}` of a state store is {number}", fix=f"give {least} or more")
        self.uri = absolute(str(uri))
        self.retain = retain
        self.writer = writer or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._snapshot_every = snapshot_every
        self._versions = VersionLog(Location(self.uri, dict(storage_options or {})), snapshot_every)
        self._retry = retry or Retry()
        self._keep_in_memory = keep_in_memory
        self._loaded: OrderedDict[str, VersionContents] = OrderedDict()
        self._counted = Counter(dict.fromkeys(_COUNTED, 0))
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"StateStoreProvider({self.uri!r}, writer={self.writer!r})"

    def get_store(self, version: int, read_only: bool = False) -> StateStore:
        """The store based on ``version``; 0 is the empty store before the first commit. Writes nothing.

        Raises:
            StateError: there is no such version (the message says which there are), or one of its files is damaged.
        """
        _check_version(version)
        base, contents = self._retry.call(lambda: self._load(version), f"get_store({version})")

        def commit(draft: Draft, replaces: bool) -> int:
            return self.commit(PendingVersion(base, draft, self.writer, replaces=replaces))

        return StateStore(self.uri, version, contents, None if read_only else commit, lambda: self.counted)

    @property
    def counted(self) -> Mapping[str, int]:
        """The custom metrics so far."""
        return self._counted

    def latest(self) -> tuple[VersionHeader | None, VersionContents]:
        """The commit of the newest version and what it holds; None and nothing before the first.

        Raises:
            StateError: it cannot be read.
        """
        return self._retry.call(lambda: self._load(self.latest_version()), "latest")

    def committed_as(self, commit_id: str, low: int = 0) -> VersionHeader | None:
        """The version from ``low`` on that was committed with this id; None if there is none."""
        commits = self._retry.call(
            lambda: self._versions.read(lambda handle: self._versions.commits(handle, low)), "committed_as"
        )
        return next((commit for commit in commits or () if commit.commit_id == commit_id), None)

    def stage(self, batch: PendingVersion) -> None:
        """Write changes that are no version yet (see ``staged``).

        Raises:
            StateError: they cannot be written.
        """
        self._retry.call(lambda: self._versions.stage(batch), f"staging version {batch.version} of {self.uri}")

    def staged(self, version: int, commit_id: str) -> VersionPart | None:
        """Changes that were staged; None if they are not there.

        Raises:
            StateError: the table cannot be read.
        """
        return self._retry.call(
            lambda: self._versions.read(lambda handle: self._versions.staged(handle, version, commit_id)), "staged"
        )

    def latest_version(self) -> int:
        """The newest version; 0 before the first commit."""
        latest = self._retry.call(lambda: self._versions.read(self._versions.latest), "latest_version")
        return latest.version if latest else 0

    def versions(self) -> list[int]:
        """The versions that can be read, in order, without version 0. Reads all files; a log line names each version
        that should be there and cannot be read, and :meth:`check` says more about it.

        Raises:
            StateError: the table cannot be read.
        """
        store_check = self.check()
        for version, culprit in store_check.unreadable.items():
            _log.warning("version %d of %s cannot be read: version %d is damaged", version, self.uri, culprit)
        return [commit.version for commit in store_check.readable]

    def check(self, *, repair: bool = False) -> StoreCheck:
        """Read all files of the store, and tell which versions can be read and which files are damaged.

        Args:
            repair: rebuild damaged files from those that are not: a snapshot from changes, changes from snapshots.

        Raises:
            StateError: the table cannot be read, or, for a repair, not be written.
        """

        def look() -> StoreCheck:
            done = self._versions.read(
                lambda handle: check.repair(self._versions, handle) if repair else check.check(handle)
            )
            return done or check.StoreCheck((), {}, ())

        return self._retry.call(look, f"checking {self.uri}")

    def changes(self, after: int, until: int | None = None) -> Iterator[StoreChange]:
        """What the versions after ``after`` changed, up to ``until`` (the latest if None), by versions and keys.

        Raises:
            StateError: one of the versions was cleaned, was never committed, or cannot be read.
        """
        _check_version(after)
        until = self.latest_version() if until is None else until
        _check_version(until)
        if until < after:
            raise StateError(f"version {until} comes before version {after}", fix="give the earlier version first")
        before = self.contents(after)
        for version in range(after + 1, until + 1):
            now = self.contents(version)
            for key, value in sorted(before.changes_to(now).items()):
                yield StoreChange(version, key, value)
            before = now

    def rewind(self, version: int) -> int:
        """Withdraw all versions after ``version``, in one commit; the next commit makes the version after it. For a
        latest version that cannot be read or must not count. What was committed is gone with the files' deletion.

        Returns:
            How many files were removed.

        Raises:
            StateError: ``version`` cannot be read, or the table cannot be written.
        """
        self.contents(version)

        def attempt() -> int:
            handle = self._versions.open()
            return 0 if handle is None else self._versions.remove_after(handle, version)

        removed = self._retry.call(attempt, f"rewinding {self.uri} to version {version}")
        _log.info("Rewound %s to version %d; %d files were removed", self.uri, version, removed)
        return removed

    def clean(self) -> int:
        """Take out the files that only versions older than the newest ``retain`` need; how many. They are deleted an
        hour later (by a later :meth:`maintain`), so that readers that have begun can end. Commits do this too.

        Raises:
            StateConflictError: another process cleaned at the same time.
            StateError: the table cannot be read or written.
        """
        handle = self._versions.open()
        return 0 if handle is None else self._clean(handle)

    def maintain(self) -> dict[str, int]:
        """Clean, shorten the log, and delete what nothing refers to; how many files each took.

        Raises:
            StateError: the table cannot be read or written.
        """
        cleaned = self._retry.call(self.clean, f"cleaning {self.uri}")
        handle = self._versions.open()
        if handle is None:
            return {"files_cleaned": 0, "files_removed": 0}
        handle.shorten_log()
        return {"files_cleaned": cleaned, "files_removed": len(handle.vacuum(_VACUUM_HOURS))}

    # -- loading ------------------------------------------------------------------------------------------------------

    def contents(self, version: int) -> VersionContents:
        """What a version holds.

        Raises:
            StateError: there is no such version, or it cannot be read.
        """
        _check_version(version)
        return self._retry.call(lambda: self._load(version), f"version {version}")[1]

    def _load(self, version: int) -> tuple[VersionHeader | None, VersionContents]:
        if version == 0:
            return None, VersionContents({})
        return self._versions.read(lambda handle: self._load_from(handle, version)) or self._missing(version)

    def _load_from(self, handle: TableHandle, version: int) -> tuple[VersionHeader, VersionContents]:
        commits = self._versions.commits(handle, version, version)
        if not commits:
            self._missing(version)
        commit = commits[0]
        contents = self._cached(commit)
        self._count("cache_hits" if contents is not None else "cache_misses")
        if contents is None:
            contents = self._read(handle, commit)
            self._cache(commit, contents)
        return commit, contents

    def _read(self, handle: TableHandle, commit: VersionHeader) -> VersionContents:
        started = time.monotonic()
        rebuilt = self._versions.rebuilt(handle, commit)
        self._count("loads")
        self._count("load_ms", round((time.monotonic() - started) * 1000))
        self._count("snapshots_rebuilt", rebuilt.past)
        return rebuilt.contents

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counted[name] += number

    def _missing(self, version: int) -> NoReturn:
        readable = [commit.version for commit in self.check().readable]
        there = f"versions {readable[0]} to {readable[-1]} can be read" if readable else "it has no version yet"
        cleaned = readable and version < readable[0]
        raise StateError(
            f"version {version} of the state store at {self.uri} "
            f"{'was cleaned' if cleaned else 'was never committed'}; {there}",
            fix=f"get_store({readable[-1] if readable else 0}) opens the latest",
            uri=self.uri,
            version=version,
        )

    def _cached(self, commit: VersionHeader) -> VersionContents | None:
        with self._lock:
            return self._loaded.get(commit.commit_id)

    def _cache(self, commit: VersionHeader, contents: VersionContents) -> None:
        with self._lock:
            self._loaded[commit.commit_id] = contents
            self._loaded.move_to_end(commit.commit_id)
            while len(self._loaded) > self._keep_in_memory:
                self._loaded.popitem(last=False)

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(self, batch: PendingVersion) -> int:
        """Commit a batch, and return its version; what stores that :meth:`get_store` made call.

        Raises:
            FencedError, StateConflictError, StateError: as :meth:`StateStore.commit` says.
        """
        what = f"commit of version {batch.version} of {self.uri}"
        try:
            handle, commit = self._retry.call(lambda: self._attempt(batch), what)
        except FencedError:
            raise
        except StateError as error:
            if f"version {batch.version}" not in error.message:
                error.message = f"version {batch.version} of the state store at {self.uri} was not committed: {error}"
            error.fields.setdefault("version", batch.version)
            raise
        self._cache(commit, batch.contents)
        if commit.commit_id == batch.commit_id and self._versions.needs_snapshot(commit):
            self._maintain_after(handle, commit, batch.contents)
        return commit.version

    def _attempt(self, batch: PendingVersion) -> tuple[TableHandle, VersionHeader]:
        try:
            return self._versions.append(batch)
        except CommitConflict:
            # Waiting is for versions that may still be committed: look before that.
            done = self._versions.read(lambda handle: (handle, self._versions.settled(handle, batch)))
            if done is None or done[1] is None:
                raise
            return done[0], done[1]

    def _maintain_after(self, handle: TableHandle, commit: VersionHeader, contents: VersionContents) -> None:
        """Write a snapshot, then clean. Never fails: the version is committed."""
        try:
            handle, commit = self._versions.add_snapshot(commit, contents)
        except CommitConflict as error:
            _log.debug("the snapshot of version %d of %s is another process's: %s", commit.version, self.uri, error)
        except StateError:
            _log.warning("the snapshot of version %d of %s failed", commit.version, self.uri, exc_info=True)
        try:
            if self._clean(handle) and commit.version // self._snapshot_every % _CLEANINGS_PER_VACUUM == 0:
                handle.vacuum(_VACUUM_HOURS)
        except CommitConflict as error:
            _log.debug("%s was cleaned by another process: %s", self.uri, error.message)
        except StateError:
            _log.warning("%s could not be cleaned; old versions stay", self.uri, exc_info=True)

    def _clean(self, handle: TableHandle) -> int:
        with handle.calls("reading a system table"):
            latest = self._versions.latest(handle)
            oldest = latest.version - self.retain + 1 if latest else 0
            commits = self._versions.commits(handle, oldest, oldest) if oldest > 1 else []
        if not commits or not files_before(handle, commits[0].snapshot):
            return 0
        self._require_snapshot(handle, commits[0].snapshot)
        return remove_before(handle, commits[0].snapshot)

    def _require_snapshot(self, handle: TableHandle, version: int) -> None:
        """Raises StateError if a snapshot is damaged: what is before it is needed to rebuild it."""
        (commit,) = self._versions.commits(handle, version, version)
        if self._versions.rebuilt(handle, commit).base != version:
            raise StateError(
                f"files before the damaged snapshot of version {version} of {self.uri} are needed to rebuild it",
                fix=f"odi store check {self.uri} --repair",
                uri=self.uri,
                version=version,
            )


def _check_version(version: int) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise StateError(f"{version!r} is not a version of a state store", fix="versions are the integers from 0 on")
