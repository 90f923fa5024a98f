"""The versions of a state store in Delta: one commit each, fenced so that each version is committed once.

A version's rows are one header (no key) and its changes (no value: removed). Every so many versions the rows are a
snapshot instead: all that the version holds. So a version is read from the last snapshot before it and the changes
since. Headers carry digests: of the rows, by which damage is noticed, and of the batch on its base, by which the same
batch committed again is known.

The commit that removes files of old versions has a fence of its own: it does not conflict with the commit of a new
version, and of two cleanings at once one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from uuid import uuid4

from arro3.core import Table
from deltalake import Transaction

from odi_assets.connections.location import Location
from odi_assets.delta.commit import replace_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import FencedError, StateError, Transient
from odi_assets.state.delta.table import Columns, SystemTable, by_column
from odi_assets.state.store.contents import Contents, Draft, apply, digest

COLUMNS = Columns(
    {
        "version": "long",
        "key": "binary",
        "value": "binary",
        "snapshot": "long",
        "commit_id": "string",
        "writer": "string",
        "batch": "string",
        "content": "string",
        "committed_at": "timestamp",
    }
)
_HEADER = [name for name in COLUMNS.kinds if name not in ("key", "value")]
_FENCE = "odi/store"
_CLEANING = "odi/store/clean"
_LAST = 2**63 - 1


@dataclass(frozen=True)
class Commit:
    """The header of a version.

    Attributes:
        version: which.
        snapshot: the version whose snapshot it is read from; its own if it is one, 0 if there is none before it.
        commit_id: of this commit alone.
        writer: who committed it.
        batch: digest of the changes and of what they were based on.
        content: digest of the version's rows.
        committed_at: when, by the writer's clock.
    """

    version: int
    snapshot: int
    commit_id: str
    writer: str
    batch: str
    content: str
    committed_at: datetime


@dataclass(frozen=True)
class Batch:
    """Changes to the version ``base`` (None: version 0, which is empty), to be committed by ``writer``."""

    base: Commit | None
    draft: Draft
    writer: str
    commit_id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def version(self) -> int:
        """The version that it makes."""
        return self.base.version + 1 if self.base else 1

    def is_in(self, commit: Commit) -> bool:
        """Whether ``commit`` is this batch's, of this attempt or of an earlier one."""
        return commit.writer == self.writer and commit.batch == self.digest

    @cached_property
    def contents(self) -> Contents:
        """What the version will hold."""
        return self.draft.contents()

    @cached_property
    def digest(self) -> str:
        """Of the changes and what they are based on."""
        return digest(self.draft.changes.items(), self.base.commit_id if self.base else "")


@dataclass(frozen=True)
class StoreFile:
    """A live file, and the versions between which all its rows lie."""

    file: LiveFile
    low: int
    high: int


def store_files(handle: TableHandle) -> list[StoreFile]:
    """The files of a store's table, those of older versions first."""
    lows, highs = handle.file_columns(("min.version", "max.version"))
    files = [
        StoreFile(file, 0 if low is None else low, _LAST if high is None else high)
        for file, low, high in zip(handle.live_files, lows, highs, strict=True)
    ]
    return sorted(files, key=lambda file: file.low)


def remove_before(handle: TableHandle, version: int) -> int:
    """Remove the files all of whose rows belong to versions before ``version``, in one commit; how many.

    Raises:
        CommitConflict: another process removed files at the same time.
        StateError: the table cannot be written.
    """
    old = [one.file for one in store_files(handle) if one.high < version]
    if old:
        replace_files(handle, [], old, _CLEANING)
    return len(old)


class VersionLog(SystemTable):
    """The versions of the store at ``location``; a snapshot every ``snapshot_every`` versions."""

    compacts = False

    def __init__(self, location: Location, snapshot_every: int) -> None:
        super().__init__(location, COLUMNS, ("version",))
        self._snapshot_every = snapshot_every

    def open(self) -> TableHandle | None:
        """The table as it is now; None if there is none.

        Raises:
            StateError: there is another table in its place, which is not adopted; or it cannot be opened.
        """
        handle = super().open()
        if handle is not None and not set(COLUMNS.kinds) <= set(handle.columns):
            raise StateError(
                f"the Delta table at {self.uri} is not a state store",
                fix="give the store a folder of its own",
                uri=self.uri,
            )
        return handle

    # -- looking up ---------------------------------------------------------------------------------------------------

    def latest(self, handle: TableHandle) -> Commit | None:
        """The newest version; None if there is none."""
        fenced = handle.transaction_number(_FENCE)
        # The fence says where to look. A table restored to an earlier version keeps a fence that is too high.
        found = self.commits(handle, fenced) or (self.commits(handle) if fenced else [])
        return found[-1] if found else None

    def commits(self, handle: TableHandle, low: int = 0, high: int | None = None) -> list[Commit]:
        """The headers from version ``low`` to ``high``, in order."""
        table = self._scan(handle, _HEADER, low, high, " AND key IS NULL")
        found = [Commit(**{name: row[name] for name in _HEADER}) for row in COLUMNS.rows(table)]
        return sorted(found, key=lambda commit: commit.version)

    def readable(self, handle: TableHandle) -> list[Commit]:
        """The versions that can be read, in order: their snapshot and all changes since are there."""
        commits = self.commits(handle)
        present = {commit.version for commit in commits}
        return [c for c in commits if present.issuperset(range(c.snapshot or 1, c.version + 1))]

    def load(self, handle: TableHandle, commit: Commit) -> Contents:
        """What a version holds.

        Raises:
            StateError: one of the files is damaged or missing; it says which.
        """
        low = commit.snapshot or 1
        table = self._scan(handle, ["version", "key", "value", "content"], low, commit.version)
        columns = [table.column(name).to_pylist() for name in ("version", "key", "value", "content")]
        parts: dict[int, dict[bytes, bytes | None]] = {}
        expected: dict[int, str] = {}
        for version, key, value, content in zip(*columns, strict=True):
            if key is None:
                expected[version] = content
            else:
                parts.setdefault(version, {})[key] = value
        items: dict[bytes, bytes] = {}
        for version in range(low, commit.version + 1):
            part = parts.get(version, {})
            if digest(part.items()) != expected.get(version):
                raise self._damaged(handle, version, "its rows are not those that were committed")
            apply(part, items)
        return Contents(items)

    # -- committing ---------------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> tuple[TableHandle, Commit]:
        """Commit a batch, unless it is committed already; one attempt.

        Raises:
            FencedError: the version is another batch's; nothing was written.
            CommitConflict: nothing was written; look again.
            StateError: nothing was written: the store was restored or replaced, or cannot be written.
        """

        def attempt(handle: TableHandle) -> tuple[TableHandle, Commit]:
            done = self.settled(handle, batch)
            return self._append(handle, batch) if done is None else (handle, done)

        return self.write(attempt)

    def settled(self, handle: TableHandle, batch: Batch) -> Commit | None:
        """The batch's commit if it has been made; None if it may be made now.

        Raises:
            FencedError: the version is another batch's.
            StateError: the version it is based on is no longer the one it was.
        """
        with handle.calls("reading a system table"):
            latest = self.latest(handle)
            if latest is None or latest.version < batch.version:
                self._require_base(latest, batch)
                return None
            found = self.commits(handle, batch.version, batch.version)
        if found and batch.is_in(found[0]):
            return found[0]
        raise self._fenced(found[0] if found else None, latest, batch)

    def _append(self, handle: TableHandle, batch: Batch) -> tuple[TableHandle, Commit]:
        chain = batch.base.snapshot if batch.base else 0
        snapshot = batch.version - chain >= self._snapshot_every
        rows = batch.contents.items if snapshot else batch.draft.changes
        commit = Commit(
            version=batch.version,
            snapshot=batch.version if snapshot else chain,
            commit_id=batch.commit_id,
            writer=batch.writer,
            batch=batch.digest,
            content=digest(rows.items()),
            committed_at=datetime.now(UTC),
        )
        header = {**asdict(commit), "key": None, "value": None}
        nothing = dict.fromkeys(COLUMNS.kinds)
        changes = ({**nothing, "version": batch.version, "key": k, "value": v} for k, v in sorted(rows.items()))
        return self.append_rows(
            handle,
            COLUMNS.to_arrow(by_column([header, *changes])),
            [Transaction(_FENCE, batch.version)],
            landed=lambda now: any(c.commit_id == batch.commit_id for c in self.commits(now, batch.version)),
            result=(handle, commit),
        )

    def _require_base(self, latest: Commit | None, batch: Batch) -> None:
        if (latest and latest.commit_id) == (batch.base and batch.base.commit_id):
            return
        raise StateError(
            f"version {batch.version - 1} of the state store at {self.uri}, on which these changes are based, "
            f"is no longer there: the table, now at version {latest.version if latest else 0}, "
            "was restored or replaced; nothing was written",
            fix="get the store's latest version and make the changes again",
            uri=self.uri,
            version=batch.version - 1,
        )

    def _fenced(self, taken: Commit | None, latest: Commit, batch: Batch) -> FencedError:
        name = f"version {batch.version} of the state store at {self.uri}"
        fix = f"get version {latest.version} and base the changes on it"
        if taken is None:
            told = f"{name} was committed, and cleaned since (the latest is {latest.version})"
        elif taken.writer == batch.writer:
            told = f"{name} was committed by this same writer `{batch.writer}` with other changes"
            fix = "let a batch that is tried again make the same changes, or give each writer an id of its own"
        else:
            told = f"{name} was committed by writer `{taken.writer}` at {taken.committed_at:%Y-%m-%d %H:%M:%S} UTC"
        return FencedError(
            f"{told}; nothing was written by `{batch.writer}`",
            fix=fix,
            uri=self.uri,
            version=batch.version,
            winner=taken.writer if taken else None,
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def _scan(self, handle: TableHandle, names: Sequence[str], low: int, high: int | None, extra: str = "") -> Table:
        where = f"version >= {low}" + ("" if high is None else f" AND version <= {high}") + extra
        try:
            with handle.calls("reading a system table"):
                return handle.table.scan(columns=list(names), predicate=where).read_all()
        except StateError as error:
            if isinstance(error, Transient):
                raise
            raise self._first_damaged(handle, low, high) or error from error

    def _first_damaged(self, handle: TableHandle, low: int, high: int | None) -> StateError | None:
        """The error that names the first file that cannot be read; deltalake's own does not always."""
        for file in store_files(handle):
            if file.high < low or (high is not None and file.low > high):
                continue
            try:
                with handle.calls("reading a system table"):
                    handle.table.scan(predicate=f"version >= {file.low} AND version <= {file.high}").read_all()
            except StateError as error:
                return self._damaged(handle, file.low, str(error.__cause__))
        return None

    def _damaged(self, handle: TableHandle, version: int, why: str) -> StateError:
        paths = [file.file.path for file in store_files(handle) if file.low <= version <= file.high]
        file = f"file {', '.join(paths)} is damaged or missing" if paths else "no file holds it"
        return StateError(
            f"version {version} of the state store at {self.uri} cannot be read; {file}: {why}",
            fix="put the file back from a copy, or go on from a version that can be read: "
            "restore the table to it, or copy it to a new store",
            uri=self.uri,
            version=version,
            path=paths[0] if paths else None,
        )
