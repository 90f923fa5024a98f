"""A versioned key-value store on Delta, with the life cycle of Spark's HDFS-backed state store.

``get_store(version)`` opens a store based on that version: UPDATING until it is COMMITTED, which makes the next
version, or ABORTED. Each version is one Delta commit, and is committed once: a second writer of it is refused, where
Spark's store lets the last writer win. Keys and values are bytes, which the store does not look into.

The store shares the lower layer of :class:`~odi_assets.state.CatalogStateBackend` (the tables, their fences,
what is retried) and not its rows: a store has one fence for all its keys, because a version is one state of all of
them, whereas HWMs have a fence per key, so that writers of different keys never wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType

from odi_assets.errors import IllegalStateError, StateError
from odi_assets.store.contents import Draft, VersionContents


class StoreState(Enum):
    """Where a store is in its life."""

    UPDATING = "updating"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True)
class StoreMetrics:
    """What a store holds and has done.

    Attributes:
        keys: how many keys, uncommitted changes included.
        memory_used_bytes: about what keys and values take in this process.
        puts: calls of ``put``.
        removes: calls of ``remove``.
        commit_ms: how long the commit took, in milliseconds; None until then.
        custom: counted by the store's provider since it was made: ``cache_hits`` and ``cache_misses`` (versions that
            were or were not in memory when they were got), ``loads`` (versions read from files), ``load_ms``, and
            ``snapshots_rebuilt`` (damaged snapshots that changes stood for).
    """

    keys: int
    memory_used_bytes: int
    puts: int
    removes: int
    commit_ms: float | None
    custom: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def combine(metrics: Iterable[StoreMetrics]) -> StoreMetrics:
        """The sums of the metrics of several stores, each custom metric by its name."""
        summands = list(metrics)
        times = [summand.commit_ms for summand in summands if summand.commit_ms is not None]
        names = dict.fromkeys(name for summand in summands for name in summand.custom)
        return StoreMetrics(
            sum(summand.keys for summand in summands),
            sum(summand.memory_used_bytes for summand in summands),
            sum(summand.puts for summand in summands),
            sum(summand.removes for summand in summands),
            sum(times) if times else None,
            {name: sum(summand.custom.get(name, 0) for summand in summands) for name in names},
        )


@dataclass(frozen=True)
class StoreChange:
    """What a version did to a key; ``value`` is None if it removed the key."""

    version: int
    key: bytes
    value: bytes | None


class StateStore:
    """The state at one version, and the changes that make the next. Made by
    :meth:`~odi_assets.store.provider.StateStoreProvider.get_store`.

    Nothing is written before :meth:`commit`. One thread at a time may use it. As a context manager it is aborted at
    the end unless it has been committed.

    Attributes:
        id: the path or URI of the store.
        version: the version that it is based on.
        read_only: whether changes are refused.
    """

    def __init__(
        self,
        id: str,
        version: int,
        contents: VersionContents,
        commit: Callable[[Draft, bool], int] | None,
        counted: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.id = id
        self.version = version
        self.read_only = commit is None
        self._base = contents
        self._draft = Draft(contents)
        self._commit = commit
        self._counted = counted
        self._state = StoreState.UPDATING
        self._puts = 0
        self._removes = 0
        self._commit_ms: float | None = None

    def __repr__(self) -> str:
        return f"StateStore({self.id!r}, version={self.version}, {self._state.value})"

    def __enter__(self) -> StateStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    @property
    def state(self) -> StoreState:
        """Where it is in its life."""
        return self._state

    @property
    def has_committed(self) -> bool:
        """Whether its changes are committed."""
        return self._state is StoreState.COMMITTED

    @property
    def metrics(self) -> StoreMetrics:
        """What it holds and has done."""
        custom = dict(self._counted())
        return StoreMetrics(self._draft.keys, self._draft.memory, self._puts, self._removes, self._commit_ms, custom)

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, uncommitted changes included; None if there is none."""
        return self._draft.get(_checked("get", "key", key))

    def iterator(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values as they are at this moment, in order of the keys; later changes do not reach it."""
        return self._draft.scan(b"")

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix``, and their values; otherwise like :meth:`iterator`."""
        return self._draft.scan(_checked("scan", "prefix", prefix))

    def contents(self) -> VersionContents:
        """All keys and values, uncommitted changes included."""
        return self._draft.contents()

    # -- changing -----------------------------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        """Give ``key`` a value.

        Raises:
            IllegalStateError: the store was committed or aborted, or is read-only.
            StateError: the key or the value is null or not bytes.
        """
        self._require_updating("put")
        self._draft.change(_checked("put", "key", key), _checked("put", "value", value))
        self._puts += 1

    def remove(self, key: bytes) -> None:
        """Remove ``key``; nothing happens if it is not there.

        Raises:
            IllegalStateError: the store was committed or aborted, or is read-only.
            StateError: the key is null or not bytes.
        """
        self._require_updating("remove")
        self._draft.change(_checked("remove", "key", key), None)
        self._removes += 1

    def commit(self, *, replace: bool = False) -> int:
        """Commit the changes, and return the version that they make. As in Spark, no changes make a version too.

        The same changes, based on the same version and committed again by the same writer, count as committed: their
        version is returned. After an error nothing is committed and the store is UPDATING as before.

        Args:
            replace: a batch that is tried again may have other changes than before: these take the place of those that
                the same writer committed, as long as no later version is based on them. A process that is killed
                between the two commits that this takes leaves the version that the batch is based on.

        Raises:
            IllegalStateError: the store was committed or aborted, or is read-only.
            FencedError: the version was committed by another writer, whom it names, or by this one with other changes.
            StateConflictError: other commits kept coming between until the retries were used up.
            StateError: the table cannot be written, or was restored or replaced.
        """
        self._require_updating("commit")
        if self._commit is None:
            raise AssertionError("unreachable")
        started = time.monotonic()
        version = self._commit(self._draft, replace)
        self._state = StoreState.COMMITTED
        self._commit_ms = (time.monotonic() - started) * 1000
        return version

    def abort(self) -> None:
        """Drop the changes: reads then see the version that the store is based on. Of a store that has been committed
        or aborted nothing changes."""
        if self._state is StoreState.UPDATING:
            self._state = StoreState.ABORTED
            self._draft = Draft(self._base)

    def _require_updating(self, doing: str) -> None:
        if self.read_only:
            raise IllegalStateError(
                f"Cannot {doing} in a store that was opened read-only",
                fix=f"open it with get_store({self.version})",
                uri=self.id,
                version=self.version,
            )
        if self._state is not StoreState.UPDATING:
            raise IllegalStateError(
                f"Cannot {doing} after already committed or aborted",
                fix="get the store again at the version you want to change",
                uri=self.id,
                version=self.version,
                state=self._state.value,
            )


def _checked(doing: str, what: str, value: bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    if value is None:
        fix = "remove the key instead" if what == "value" else None
        raise StateError(f"Cannot {doing} a null {what}", fix=fix)
    raise StateError(
        f"Cannot {doing} a {what} of type {type(value).__name__}: a state store holds bytes",
        fix='encode it: text.encode("utf-8"), number.to_bytes(8)',
    )
