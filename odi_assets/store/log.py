"""The versions of a state store in Delta: one commit each, fenced so that each version is committed once.

What its rows mean, and how a version is put together from them, is in ``parts``. A snapshot is a commit of its own,
after the commit of its version: a commit stays small, and a snapshot that fails fails no commit.

Commits of snapshots, and commits that remove files of old versions, have fences of their own: they do not conflict
with the commit of a new version, and of two at once one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

from deltalake import Transaction

from odi_assets.connections.location import Location
from odi_assets.delta.commit import replace_files
from odi_assets.delta.errors import STORE, cannot_look
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import FencedError, StateError, Transient
from odi_assets.state.delta.table import SystemTable
from odi_assets.store.contents import Draft, VersionContents, digest
from odi_assets.store.files import CLEANING, LAST, FileParts, all_files, store_files
from odi_assets.store.parts import (
    COLUMNS,
    HEADER,
    REQUIRED,
    Kind,
    NoPart,
    Parts,
    Rebuilt,
    VersionHeader,
    VersionPart,
    headers_in,
    parts_in,
    rebuild,
    rows_of,
    versions_in,
)
from odi_assets.util.lazy import pa, pc

_log = logging.getLogger(__name__)

_FENCE = "odi/store"
_SNAPSHOTS = "odi/store/snapshot"
_INDEXED = ("version", "part")


@dataclass(frozen=True)
class PendingVersion:
    """Changes to the version ``base`` (None: version 0, which is empty), to be committed by ``writer``.

    Attributes:
        replaces: they take the place of other changes that the writer committed as the newest version.
    """

    base: VersionHeader | None
    draft: Draft
    writer: str
    commit_id: str = field(default_factory=lambda: str(uuid4()))
    replaces: bool = False

    @property
    def version(self) -> int:
        """The version that it makes."""
        return self.base.version + 1 if self.base else 1

    def is_in(self, commit: VersionHeader) -> bool:
        """Whether ``commit`` is this batch's, of this attempt or of an earlier one."""
        return commit.writer == self.writer and commit.batch == self.digest

    @cached_property
    def contents(self) -> VersionContents:
        """What the version will hold."""
        return self.draft.contents()

    @cached_property
    def digest(self) -> str:
        """Of the changes and what they are based on."""
        return digest(self.draft.changes.items(), self.base.commit_id if self.base else "")


class VersionLog(SystemTable):
    """The versions of the store at ``location``; a snapshot every ``snapshot_every`` versions."""

    compacts = False
    owner = STORE

    def __init__(self, location: Location, snapshot_every: int) -> None:
        super().__init__(location, COLUMNS, _INDEXED)
        self._snapshot_every = snapshot_every

    def open(self) -> TableHandle | None:
        """The table as it is now; None if there is none.

        Raises:
            StateError: there is another table in its place, which is not adopted; or it cannot be opened.
        """
        handle = super().open()
        if handle is not None and not set(handle.columns) >= REQUIRED:
            raise StateError(
                f"the Delta table at {self.uri} is not a state store",
                fix="give the store a folder of its own",
                uri=self.uri,
            )
        return handle

    # -- looking up ---------------------------------------------------------------------------------------------------

    def latest(self, handle: TableHandle) -> VersionHeader | None:
        """The newest version; None if there is none."""
        fenced = handle.transaction_number(_FENCE)
        # The fence says where to look. A table restored to an earlier version keeps a fence that is too high.
        commits = self.commits(handle, fenced) or (self.commits(handle) if fenced else [])
        return commits[-1] if commits else None

    def commits(self, handle: TableHandle, low: int = 0, high: int = LAST) -> list[VersionHeader]:
        """The headers from version ``low`` to ``high``, in order.

        Raises:
            StateError: a file is damaged or missing, and no other has the headers of its versions.
        """
        try:
            return versions_in(headers_in(self._scan(handle, HEADER, low, high, " AND key IS NULL")))
        except StateError as error:
            if isinstance(error, Transient) or cannot_look(error):
                raise
            return self._commits_by_file(handle, low, high, error)

    def _commits_by_file(self, handle: TableHandle, low: int, high: int, error: StateError) -> list[VersionHeader]:
        parts = FileParts(handle)
        files = [file for file in parts.files if file.low <= high and file.high >= low]
        headers = {
            (version, kind): part.header
            for file in files
            for (version, kind), part in parts.of(file).items()
            if part.header is not None and low <= version <= high
        }
        commits = versions_in(headers)
        known = {commit.version for commit in commits}
        for file in files:
            if file.file.path in parts.unreadable and file.low not in known:
                raise self._damaged(parts, file.low) from error
        return commits

    def load(self, handle: TableHandle, commit: VersionHeader) -> VersionContents:
        """What a version holds: a damaged snapshot is rebuilt from changes, damaged changes are not needed where there
        is a snapshot.

        Raises:
            StateError: one of the files is damaged or missing, and nothing stands for it; it says which.
        """
        return self.rebuilt(handle, commit).contents

    def rebuilt(self, handle: TableHandle, commit: VersionHeader) -> Rebuilt:
        """What :meth:`load` gives, and which damaged snapshots it went past."""
        try:
            names = [*HEADER, "key", "value"]
            parts = parts_in(self._scan(handle, names, commit.snapshot or 1, commit.version))
            return rebuild(lambda version, kind: parts.get((version, kind)), commit.version)
        except NoPart:
            pass
        except StateError as error:
            if isinstance(error, Transient) or cannot_look(error):
                raise
        by_file = FileParts(handle)
        try:
            rebuilt = rebuild(by_file.find, commit.version)
        except NoPart as gap:
            raise self._damaged(by_file, by_file.cause(gap.version), commit.version) from None
        for path, why in by_file.damaged.items():
            _log.warning(
                "version %d of %s was put together without its file %s, which is damaged: %s; "
                "`odi store check %s --repair` rebuilds the file",
                *(commit.version, self.uri, path, why, self.uri),
            )
        snapshots = [
            file for file in by_file.files if rebuilt.base < file.low <= commit.version and file.kind != "changes"
        ]
        return replace(rebuilt, past=sum(file.file.path in by_file.damaged for file in snapshots))

    # -- committing ---------------------------------------------------------------------------------------------------

    def append(self, batch: PendingVersion) -> tuple[TableHandle, VersionHeader]:
        """Commit a batch, unless it is committed already; one attempt.

        Raises:
            FencedError: the version is another batch's; nothing was written.
            CommitConflict: nothing was written; look again.
            StateError: nothing was written: the store was restored or replaced, or cannot be written.
        """

        def attempt(handle: TableHandle) -> tuple[TableHandle, VersionHeader]:
            if batch.replaces and self._has_other_changes(handle, batch):
                self.remove_after(handle, batch.version - 1)
                handle = self.open_for_writing()
            done = self.settled(handle, batch)
            return self._append(handle, batch) if done is None else (handle, done)

        return self.write(attempt)

    def _has_other_changes(self, handle: TableHandle, batch: PendingVersion) -> bool:
        """Whether the newest version is one that the batch's writer made on the same base with other changes."""
        commits = self.commits(handle, batch.version - 1)
        made = [commit for commit in commits if commit.version >= batch.version]
        base = next((commit.commit_id for commit in commits if commit.version == batch.version - 1), None)
        if len(made) != 1 or base != (batch.base and batch.base.commit_id):
            return False
        return made[0].writer == batch.writer and not batch.is_in(made[0])

    def settled(self, handle: TableHandle, batch: PendingVersion) -> VersionHeader | None:
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
            commits = self.commits(handle, batch.version, batch.version)
        if commits and batch.is_in(commits[0]):
            return commits[0]
        raise self._fenced(commits[0] if commits else None, latest, batch)

    def _append(self, handle: TableHandle, batch: PendingVersion) -> tuple[TableHandle, VersionHeader]:
        entries = batch.draft.changes
        commit = VersionHeader(
            version=batch.version,
            snapshot=batch.base.snapshot if batch.base else 0,
            commit_id=batch.commit_id,
            writer=batch.writer,
            batch=batch.digest,
            content=digest(entries.items()),
            committed_at=datetime.now(UTC),
        )
        result = self.append_rows(
            handle,
            COLUMNS.to_arrow(rows_of(commit, "changes", entries)),
            [Transaction(_FENCE, batch.version)],
            landed=lambda now: any(c.commit_id == batch.commit_id for c in self.commits(now, batch.version)),
            result=(handle, commit),
        )
        if _log.isEnabledFor(logging.INFO):
            self._tell(commit, "changes", "Committed version %d for %s to file %s")
        return result

    def needs_snapshot(self, commit: VersionHeader) -> bool:
        """Whether it is time for a snapshot of a version."""
        return commit.version - commit.snapshot >= self._snapshot_every

    def add_snapshot(self, commit: VersionHeader, contents: VersionContents) -> tuple[TableHandle, VersionHeader]:
        """Write the snapshot of a version, unless there is one; the version's header, which knows of it.

        Raises:
            CommitConflict: another process wrote it at the same time.
            StateError: it cannot be written, or the version is no longer there.
        """
        entries = contents.items
        made = replace(commit, snapshot=commit.version, content=digest(entries.items()))

        def attempt(handle: TableHandle) -> tuple[TableHandle, VersionHeader]:
            now = self.commits(handle, commit.version, commit.version)
            if [header.commit_id for header in now] != [commit.commit_id]:
                raise StateError(f"version {commit.version} is no longer there", uri=self.uri, version=commit.version)
            if now[0].snapshot == commit.version:
                return handle, now[0]
            return self.append_rows(
                handle,
                COLUMNS.to_arrow(rows_of(made, "snapshot", entries)),
                [Transaction(_SNAPSHOTS, commit.version)],
                landed=lambda now: any(c.snapshot == c.version for c in self.commits(now, commit.version)),
                result=(handle, replace(commit, snapshot=commit.version)),
            )

        result = self.write(attempt)
        if _log.isEnabledFor(logging.INFO):
            self._tell(commit, "snapshot", "Written the snapshot of version %d for %s to file %s")
        return result

    def _tell(self, commit: VersionHeader, kind: Kind, message: str) -> None:
        # Opened again: what the handle knows of its files it may have looked up before the commit.
        handle = self.open()
        files = [] if handle is None else store_files(handle)
        paths = [file.file.path for file in files if file.low == file.high == commit.version and file.kind == kind]
        _log.info(message, commit.version, self.uri, ", ".join(f"{self.uri}/{path}" for path in paths))

    # -- staging ------------------------------------------------------------------------------------------------------

    def stage(self, batch: PendingVersion) -> None:
        """Write changes that are no version until a batch with this ``commit_id`` is committed with them.

        Raises:
            StateError: they cannot be written.
        """
        commit = VersionHeader(
            version=batch.version,
            snapshot=0,
            commit_id=batch.commit_id,
            writer=batch.writer,
            batch=batch.digest,
            content=digest(batch.draft.changes.items()),
            committed_at=datetime.now(UTC),
        )
        rows = COLUMNS.to_arrow(rows_of(commit, "staged", batch.draft.changes))

        def landed(now: TableHandle) -> bool:
            return self.staged(now, batch.version, batch.commit_id) is not None

        self.write(lambda handle: self.append_rows(handle, rows, [], landed, result=None))

    def staged(self, handle: TableHandle, version: int, commit_id: str) -> VersionPart | None:
        """Changes that were staged; None if they are no longer there.

        Raises:
            StateError: the table cannot be read.
        """
        from odi_assets.delta.maintenance.compaction import rows_in_files

        for file in all_files(handle):
            if file.kind == "staged" and file.low == version:
                with handle.calls("reading staged changes of a state store"):
                    parts = parts_in(COLUMNS.lists(rows_in_files(handle, [file.file])))
                part = parts[version, "staged"]
                if part.header is not None and part.header.commit_id == commit_id:
                    return part
        return None

    # -- going back ---------------------------------------------------------------------------------------------------

    def remove_after(self, handle: TableHandle, version: int) -> int:
        """Remove all that belongs to versions after ``version``, in one commit; how many files. It conflicts with the
        commit of a new version.

        Raises:
            CommitConflict: another process committed or removed at the same time.
            StateError: the table cannot be written.
        """
        files = [file for file in all_files(handle) if file.high > version and file.kind != "staged"]
        mixed = [file.file for file in files if file.low <= version]
        if mixed:
            self._rewrite(handle, mixed, version)
        elif files:
            replace_files(handle, [], [file.file for file in files], _FENCE)
        return len(files)

    def _rewrite(self, handle: TableHandle, files: Sequence[LiveFile], version: int) -> None:
        """Files that hold earlier versions too, after a compaction by hand, keep those."""
        from odi_assets.delta.maintenance.compaction import rewrite, rows_in_files

        rows = rows_in_files(handle, files)
        others = [file.file for file in store_files(handle) if file.low > version]
        rewrite(handle, [*files, *others], rows.filter(pc.field("version") <= version), _INDEXED, _FENCE)

    def replace_file(self, handle: TableHandle, file: LiveFile, parts: Parts) -> None:
        """Put ``parts`` in the place of a file, in one commit.

        Raises:
            CommitConflict: another process removed it at the same time.
            StateError: the table cannot be written.
        """
        from odi_assets.delta.maintenance.compaction import rewrite

        tables = [
            pa.table(COLUMNS.to_arrow(rows_of(part.header, kind, part.entries)))
            for (_, kind), part in parts.items()
            if part.header is not None
        ]
        if tables:
            rewrite(handle, [file], pa.concat_tables(tables), _INDEXED, CLEANING)
        else:
            replace_files(handle, [], [file], CLEANING)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _require_base(self, latest: VersionHeader | None, batch: PendingVersion) -> None:
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

    def _fenced(self, taken: VersionHeader | None, latest: VersionHeader, batch: PendingVersion) -> FencedError:
        name = f"version {batch.version} of the state store at {self.uri}"
        fix = f"get version {latest.version} and base the changes on it"
        if taken is None:
            problem = f"{name} was committed, and cleaned since (the latest is {latest.version})"
        elif taken.writer == batch.writer:
            problem = f"{name} was committed by this same writer `{batch.writer}` with other changes"
            if latest.version == batch.version:
                fix = "commit(replace=True) replaces the committed changes; or make the same changes again"
            else:
                problem += f", and version {latest.version} is based on it"
                fix += f"; or withdraw what came after: odi store rewind {self.uri} --to-version {batch.version - 1}"
        else:
            problem = f"{name} was committed by writer `{taken.writer}` at {taken.committed_at:%Y-%m-%d %H:%M:%S} UTC"
        return FencedError(
            f"{problem}; nothing was written by `{batch.writer}`",
            fix=fix,
            uri=self.uri,
            version=batch.version,
            winner=taken.writer if taken else None,
        )

    def _damaged(self, parts: FileParts, version: int, wanted: int | None = None) -> StateError:
        paths = parts.names(version)
        damaged = parts.damaged
        broken = [path for path in paths if path in damaged] or paths
        why = damaged.get(broken[0], "it does not have all that was committed") if broken else "it was removed"
        file = f"file {', '.join(broken)} is damaged or missing" if broken else "no file holds it"
        message = f"version {version} of the state store at {self.uri} cannot be read; {file}: {why}"
        if wanted not in (None, version):
            message += f"; version {wanted} is made from it"
        return StateError(
            message,
            fix=f"put the file back from a copy; `odi store check {self.uri}` lists the versions that can be read, "
            f"and `odi store rewind {self.uri} --to-version V` goes on from one of them",
            uri=self.uri,
            version=version,
            path=broken[0] if broken else None,
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def _scan(
        self, handle: TableHandle, names: Sequence[str], low: int, high: int, extra: str = ""
    ) -> Mapping[str, list[Any]]:
        where = f"version >= {low} AND version <= {high}{extra}"
        if "part" in handle.columns:
            where += " AND (part IS NULL OR part <> 'staged')"
        there = [name for name in names if name in handle.columns]
        with handle.calls("reading a system table"):
            return COLUMNS.lists(handle.table.scan(columns=there, predicate=where).read_all())
