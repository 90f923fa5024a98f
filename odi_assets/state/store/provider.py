"""The versions of a state store: opening one, committing the next, keeping as many as are retained."""

from __future__ import annotations

import logging
import os
import socket
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import NoReturn
from uuid import uuid4

from odi_assets.connections.location import Location, absolute
from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.retry import Retry
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.state.store import StateStore
from odi_assets.state.store.contents import Contents
from odi_assets.state.store.log import Batch, Commit, VersionLog, remove_before

_log = logging.getLogger(__name__)

RETAINED = 100
"""How many versions stay readable at least; Spark's ``minBatchesToRetain``."""
SNAPSHOT_EVERY = 10
"""How many versions apart snapshots are; Spark's ``minDeltasForSnapshot``."""
_IN_MEMORY = 2
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
        retry: how conflicts and transient faults of the store are retried.

    Raises:
        StateError: ``retain`` or ``snapshot_every`` is less than 1.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        retain: int = RETAINED,
        writer: str | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
        retry: Retry | None = None,
    ) -> None:
        for name, number in (("retain", retain), ("snapshot_every", snapshot_every)):
            if number < 1:
                raise StateError(f"`{name}` of a state store is {number}", fix="give 1 or more")
        self.uri = absolute(str(uri))
        self.retain = retain
        self.writer = writer or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._snapshot_every = snapshot_every
        self._versions = VersionLog(Location(self.uri, dict(storage_options or {})), snapshot_every)
        self._retry = retry or Retry()
        self._loaded: OrderedDict[str, Contents] = OrderedDict()
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
        commit = None if read_only else lambda draft: self._commit(Batch(base, draft, self.writer))
        return StateStore(self.uri, version, contents, commit)

    def latest_version(self) -> int:
        """The newest version; 0 before the first commit."""
        found = self._retry.call(lambda: self._versions.read(self._versions.latest), "latest_version")
        return found.version if found else 0

    def versions(self) -> list[int]:
        """The versions that can be read, in order, without version 0."""
        found = self._retry.call(lambda: self._versions.read(self._versions.readable), "versions")
        return [commit.version for commit in found or []]

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

    def _load(self, version: int) -> tuple[Commit | None, Contents]:
        if version == 0:
            return None, Contents({})
        return self._versions.read(lambda handle: self._load_from(handle, version)) or self._missing(version, [])

    def _load_from(self, handle: TableHandle, version: int) -> tuple[Commit, Contents]:
        found = self._versions.commits(handle, version, version)
        if not found:
            self._missing(version, [commit.version for commit in self._versions.readable(handle)])
        commit = found[0]
        contents = self._cached(commit)
        if contents is None:
            contents = self._versions.load(handle, commit)
            self._cache(commit, contents)
        return commit, contents

    def _missing(self, version: int, readable: list[int]) -> NoReturn:
        there = f"versions {readable[0]} to {readable[-1]} can be read" if readable else "it has no version yet"
        cleaned = readable and version < readable[0]
        raise StateError(
            f"version {version} of the state store at {self.uri} "
            f"{'was cleaned' if cleaned else 'was never committed'}; {there}",
            fix=f"get_store({readable[-1] if readable else 0}) opens the latest",
            uri=self.uri,
            version=version,
        )

    def _cached(self, commit: Commit) -> Contents | None:
        with self._lock:
            return self._loaded.get(commit.commit_id)

    def _cache(self, commit: Commit, contents: Contents) -> None:
        with self._lock:
            self._loaded[commit.commit_id] = contents
            self._loaded.move_to_end(commit.commit_id)
            while len(self._loaded) > _IN_MEMORY:
                self._loaded.popitem(last=False)

    # -- committing ---------------------------------------------------------------------------------------------------

    def _commit(self, batch: Batch) -> int:
        what = f"commit of version {batch.version} of {self.uri}"
        handle, commit = self._retry.call(lambda: self._attempt(batch), what)
        self._cache(commit, batch.contents)
        if commit.commit_id == batch.commit_id and commit.snapshot == commit.version:
            self._clean_if_needed(handle, commit)
        return commit.version

    def _attempt(self, batch: Batch) -> tuple[TableHandle, Commit]:
        try:
            return self._versions.append(batch)
        except CommitConflict:
            # Waiting is for versions that may still be committed: look before that.
            done = self._versions.read(lambda handle: (handle, self._versions.settled(handle, batch)))
            if done is None or done[1] is None:
                raise
            return done[0], done[1]

    def _clean_if_needed(self, handle: TableHandle, commit: Commit) -> None:
        """Clean after a snapshot. Never fails: the version that it follows is committed."""
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
            found = self._versions.commits(handle, oldest, oldest) if oldest > 1 else []
        return remove_before(handle, found[0].snapshot) if found else 0


def _check_version(version: int) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise StateError(f"{version!r} is not a version of a state store", fix="versions are the integers from 0 on")
