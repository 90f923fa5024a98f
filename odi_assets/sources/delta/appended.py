"""What a stream reads of a Delta table: the files of its first version, then the files that each later commit appends.

An offset is ``{"table_id", "since", "version", "index", "commit"}``: of the list of files of ``version``, the first
``index`` are read. ``commit`` identifies the commit of ``version``: another history of the table may have the same
version number. ``since`` is the version that the stream began with. The list of that version has all of its files; the
list of a later version has the files that its commit appended. The lists never change, so a batch that is run again
reads the same rows. Versions that were undone before a batch came to them, by a rewind of the table, are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from odi_assets.connections.location import Location
from odi_assets.delta.changes import CommitChange, changes, is_other_history
from odi_assets.delta.history import commit_digest
from odi_assets.delta.maintenance.restore import removed_files
from odi_assets.delta.protocol import require_readable
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import SourceError, TableError
from odi_assets.sources.streamed import Offset

_PASSED_OVER = 50
"""After this many versions without rows, the offset moves on although there is nothing to read: logs are cleaned."""
_FROM_ITS_BEGINNING = "read it from its beginning: run the node with --full-refresh"


@dataclass(frozen=True)
class AppendedFiles:
    """The files that a stream reads of a table.

    Attributes:
        label: the table in words.
        skip: pass over commits that change or remove rows, instead of refusing them.
    """

    location: Location
    label: str
    skip: bool = False

    def newest(self) -> dict[str, Any]:
        """The offset of a stream that begins now: nothing is read of the table's newest version."""
        handle = TableHandle.open(self.location)
        version = int(handle.version or 0)
        return {"table_id": handle.table_id, "since": version, "version": version, "index": 0, "commit": handle.commit}

    def after(
        self, start: Offset, *, most: int | None = None, upto: int | None = None
    ) -> tuple[dict[str, Any], list[LiveFile]]:
        """What a batch reads after ``start``: where it ends, and its files. The same offset if there is nothing.

        Args:
            most: how many files it takes at most; None: all.
            upto: the newest version that it reads; None: the table's.

        Raises:
            SourceError: the table is another one, or a commit changed or removed rows.
            TableError: a version that is needed is no longer in the table's log, or the table's files do not tell its
                rows.
        """
        handle = self._opened(start)
        offset, batch_files = dict(start), list[LiveFile]()
        first = version = int(start["version"])
        index = int(start["index"])
        for version, files in self._lists(handle, start, int(handle.version or 0) if upto is None else upto):
            taken = files[index:] if most is None else files[index : index + most - len(batch_files)]
            batch_files += taken
            if taken:
                offset |= {"version": version, "index": index + len(taken)}
            if len(batch_files) == most:
                break
            index = 0
        if not batch_files and version - first >= _PASSED_OVER:
            offset |= {"version": version, "index": 0}
        if offset["version"] != first:
            offset["commit"] = commit_digest(self.location, offset["version"])
        return offset, batch_files

    def between(self, start: Offset | None, end: Offset, *, there: bool = False) -> list[LiveFile]:
        """The files of a batch that reads from ``start`` to ``end``; of a stream's first batch if ``start`` is None.

        Args:
            there: make sure that they can be read, as :meth:`require_there` does.

        Raises:
            SourceError, TableError: as :meth:`after` does.
        """
        if start is None or start["since"] != end["since"]:
            # When the first batch is run again, Spark asks for its start a second time.
            start = {**end, "version": end["since"], "index": 0}
        handle, batch_files = self._opened(end), list[LiveFile]()
        low, high = int(start["index"]), {int(end["version"]): int(end["index"])}
        for version, files in self._lists(handle, start, int(end["version"])):
            batch_files += files[low : high.get(version)]
            low = 0
        if there:
            self.require_there(handle, batch_files)
        return batch_files

    def passed_over(self, start: Offset) -> list[int]:
        """The versions after ``start`` that changed or removed rows, and that the stream passes over.

        Raises:
            SourceError, TableError: as :meth:`after` does.
        """
        if not self.skip:
            return []
        handle = self._opened(start)
        commits = changes(handle, int(start["version"]), int(handle.version or 0)).commits
        return [commit.version for commit in commits if commit.kind != "none" and not _adds_alone(commit)]

    def unread_versions(self, start: Offset) -> set[int]:
        """Versions that together have all files that a stream has to read after ``start``. Few of them: the newest
        version has most files, and the others are read only for files that left the table.

        Raises:
            SourceError, TableError: as :meth:`after` does.
        """
        end, files = self.after(start)
        newest = TableHandle.open(self.location)
        live = {file.path for file in newest.live_files}
        gone = {file.path for file in files} - live
        versions = {int(newest.version or 0)} if len(gone) < len(files) else set()
        lists = self._lists(newest, start, int(end["version"])) if gone else ()
        return versions | {version for version, files in lists if gone & {file.path for file in files}}

    def require_there(self, handle: TableHandle, files: Sequence[LiveFile]) -> None:
        """Make sure that no file that a batch is to read has left the table and been deleted since. Only files that
        left the table are looked for.

        Raises:
            SourceError: some are gone.
            TableError: the store cannot be looked at.
        """
        lost = removed_files(handle, files)
        if lost:
            raise SourceError(
                f"{self.label}: files that were not read yet were vacuumed: {len(lost):,} of {len(files):,}, {lost[0]} "
                "among them",
                fix=f"put them back from a copy of the table, or {_FROM_ITS_BEGINNING}",
                path=self.location.uri,
            )

    def _opened(self, offset: Offset) -> TableHandle:
        handle = TableHandle.open(self.location)
        if not handle.exists or handle.table_id != offset["table_id"]:
            now = "was dropped and made again" if handle.exists else "is gone"
            raise SourceError(
                f"{self.label}: the table that the stream has read {now}",
                fix=f"put the table back, or {_FROM_ITS_BEGINNING}",
                path=self.location.uri,
            )
        if is_other_history(handle, int(offset["version"]), offset.get("commit")):
            raise SourceError(
                f"{self.label}: version {offset['version']}, up to which the stream has read it, is another commit "
                "now: the table was put back from a copy",
                fix=f"put the table back that was read, or {_FROM_ITS_BEGINNING}",
                path=self.location.uri,
            )
        require_readable(handle)
        return handle

    def _lists(self, handle: TableHandle, start: Offset, upto: int) -> Iterator[tuple[int, list[LiveFile]]]:
        """From the version of ``start`` on, each version and its list of files, always in the same order."""
        try:
            yield from self._lists_of_log(handle, start, upto)
        except TableError as error:
            if type(error) is not TableError or "version" not in error.fields:
                raise
            raise SourceError(
                f"{self.label}: its log does not hold version {error.version} any more, and the stream has read up to "
                f"version {start['version']}",
                fix=_FROM_ITS_BEGINNING,
                path=self.location.uri,
            ) from error

    def _lists_of_log(self, handle: TableHandle, start: Offset, upto: int) -> Iterator[tuple[int, list[LiveFile]]]:
        first = int(start["version"])
        if first == int(start["since"]):
            yield first, _by_age(TableHandle.open(self.location, first))
        else:
            for commit in changes(handle, first - 1, first).commits:
                yield first, self._files(handle, commit)
        for commit in changes(handle, first, upto).commits:
            yield commit.version, self._files(handle, commit)

    def _files(self, handle: TableHandle, commit: CommitChange) -> list[LiveFile]:
        if _adds_alone(commit):
            return sorted(commit.files, key=lambda file: file.path)
        if commit.kind == "none" or self.skip:
            return []
        fields: dict[str, Any] = {}
        if commit.restored is not None:
            fields = {"table_id": handle.table_id, "restored": commit.restored}
            what = f"took the table back to version {commit.restored}, and the stream has read rows that are gone with "
            what += "that"
            fix = "put the table back"
        else:
            what = "changed or removed rows, and a stream takes only rows that are added"
            fix = (
                "let the stream pass over such versions (`on_change: ignore` of the input, in `stream.inputs`), write "
            )
            fix += "the table with `append`"
        raise SourceError(
            f"{self.label}: version {commit.version} {what}",
            fix=f"{fix}, or {_FROM_ITS_BEGINNING}",
            path=self.location.uri,
            version=commit.version,
            **fields,
        )


def _adds_alone(commit: CommitChange) -> bool:
    return commit.kind == "rows" and not commit.updated and not commit.deleted


def _by_age(handle: TableHandle) -> list[LiveFile]:
    """All files of a version, the oldest first: rows that came late are not read before those that they follow."""
    paths, times = handle.file_columns(("path", "modification_time"))
    ages = {unquote(path): str(time) for path, time in zip(paths, times, strict=True)}
    return sorted(handle.live_files, key=lambda file: (ages[file.path], file.path))
