"""What a Delta table gained between two of its versions, read from its log alone: no scan, no Spark.

Needs no change data feed. The files of a plain append are its rows; our own upserts commit changed rows in files
of their own (see ``upsert``), and our partition writes name their partitions. Everything else counts as rewritten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from odi_assets.connections.location import Location
from odi_assets.delta.errors import cannot_look
from odi_assets.delta.history import METADATA_KEY, actions_at, commit_digest, restored_version, versions_in_effect
from odi_assets.delta.partition_values import same_spellings
from odi_assets.delta.table import LiveFile, TableHandle, rows_in
from odi_assets.errors import TableError


@dataclass(frozen=True)
class CommitChange:
    """What one commit did.

    Attributes:
        files: files added with ``dataChange``.
        keys: of an upsert, the columns that identify a row.
        updated: of an upsert, how many rows replaced one with the same keys.
        deleted: of an upsert, how many rows it took out for good; no file of the commit shows which.
        moved: files of rows that were in removed files before.
        removed: path and partition of the files it took out; of a commit that only rearranged rows, too.
        partitions: values of the partitions the commit added to or removed from.
        kind: ``rows`` (the files hold just what is new or changed), ``partitions`` (those partitions are to be read
            again), ``table`` (all is to be read again), ``none`` (only rearranged or described).
        restored: the version whose rows this commit brought back, if it did just that.
    """

    version: int
    kind: str
    files: tuple[LiveFile, ...] = ()
    partitions: tuple[Mapping[str, str | None], ...] = ()
    keys: tuple[str, ...] = ()
    updated: int = 0
    deleted: int = 0
    moved: tuple[LiveFile, ...] = ()
    removed: tuple[tuple[str, Mapping[str, str | None]], ...] = ()
    restored: int | None = None

    @property
    def takes_rows(self) -> bool:
        """Whether rows of the files that it took out were changed or removed, and not only moved."""
        if self.kind == "none" or not self.removed:
            return False
        return self.kind != "rows" or self.updated > 0 or self.deleted > 0

    def rows_by(self, columns: Sequence[str]) -> Counter[tuple[str | None, ...]]:
        """How many rows it wrote to each partition that it wrote or replaced, by the values of some of the table's
        partition columns. Files without statistics count as 0 rows."""
        rows = Counter({tuple(map(values.get, columns)): 0 for values in self.partitions})
        for file in self.files:
            rows[tuple(map(file.partition.get, columns))] += file.rows or 0
        return rows


@dataclass(frozen=True)
class TableChanges:
    """Commits after one version up to another, oldest first; without those that a later one of them undid."""

    after: int
    upto: int
    commits: tuple[CommitChange, ...] = field(default=())

    @property
    def kind(self) -> str:
        """The widest kind among the commits.

        Deleted rows are in no file that says ``dataChange``, so the partitions they were in have to be read again.
        """
        kinds = {"partitions" if commit.kind == "rows" and commit.deleted else commit.kind for commit in self.commits}
        return next((kind for kind in ("table", "partitions", "rows") if kind in kinds), "none")

    @property
    def files(self) -> tuple[LiveFile, ...]:
        return tuple(file for commit in self.commits for file in commit.files)

    @property
    def replacing(self) -> tuple[CommitChange, ...]:
        """The upserts that may have replaced rows of another one of the commits."""
        with_files = [commit for commit in self.commits if commit.files]
        return tuple(commit for commit in with_files[1:] if commit.updated)

    @property
    def gone(self) -> tuple[LiveFile, ...]:
        """The files that held, before the commits, rows which they changed or removed, with rows that they only moved.

        A compaction among the commits may have put these rows into other files.
        """
        moved = (commit.moved if commit.takes_rows else () for commit in self.commits)
        added = {file.path for file in chain(self.files, *moved)}
        taken = {path: partition for commit in self.commits if commit.takes_rows for path, partition in commit.removed}
        return tuple(LiveFile(path, 0, None, dict(of)) for path, of in taken.items() if path not in added)

    @property
    def rows(self) -> int | None:
        """Rows in the added files, by their statistics; None if one carries no count."""
        return rows_in(self.files)


_found_last: WeakKeyDictionary[TableHandle, TableChanges] = WeakKeyDictionary()
"""What each handle was asked for last: nodes that share one mostly ask for the same."""


def changes(handle: TableHandle, after: int, upto: int) -> TableChanges:
    """The commits ``after < version <= upto``. Asked for the same again, the handle knows them.

    Raises:
        TableError: a commit in between is no longer in the log. Fields: uri, version.
    """
    known = _found_last.get(handle)
    if known is not None and (known.after, known.upto) == (after, upto):
        return known
    versions, read = range(after + 1, upto + 1), partial(read_commit, handle.location)
    with ThreadPoolExecutor(max_workers=8) as pool:
        # A local log is read one by one: a thread is of no use there.
        actions = map(read, versions) if handle.location.is_local else pool.map(read, versions)
        commits = map(_change, versions, actions, repeat(handle.columns))
        gained = TableChanges(after, upto, _in_effect(commits, after))
    _found_last[handle] = gained
    return gained


def _in_effect(commits: Iterable[CommitChange], after: int) -> tuple[CommitChange, ...]:
    """``commits`` without those that were undone: what lies between ``after`` and the rows that are there now."""
    by_version = {commit.version: commit for commit in commits}
    steps = [(commit.version, commit.restored) for commit in by_version.values()]
    way = [*versions_in_effect(steps, after)][::-1]
    return tuple(by_version[version] if is_change else CommitChange(version, "none") for version, is_change in way)


def table_change(then: Mapping[str, Any] | None, handle: TableHandle) -> str | None:
    """How a table differs from a recorded position, in words; None if no row of it changed. Compaction changes none."""
    now = handle.position
    if then is not None and {"commit": now.get("commit"), **then} == now:
        return None
    if then is None or "version" not in then:
        return "what it held was not recorded"
    before, after = then["version"], now["version"]
    if before is None or after is None:
        return "it did not exist then" if before is None else "it is gone"
    if then.get("table_id") != now["table_id"]:
        return "it was dropped and made again"
    if is_other_history(handle, before, then.get("commit")):
        return f"version {before} is another commit now"
    if after > before and not _rows_changed(handle, before, after):
        return None
    return f"version {before} then, version {after} now"


def is_other_history(handle: TableHandle, version: int, commit: str | None) -> bool:
    """Whether ``handle`` is not a later state of the table as it was after ``commit``, which made ``version``.

    Args:
        commit: as ``commit_digest`` names it; None if it was not recorded.

    Raises:
        TableError: the log cannot be read.
    """
    if commit is None or not handle.exists:
        return False
    # Commits missing from the log were cleaned after its retention, and are taken for the same.
    return version > int(handle.version or 0) or handle.once(commit_digest, version) not in (None, commit)


def _rows_changed(handle: TableHandle, after: int, upto: int) -> bool:
    try:
        return changes(handle, after, upto).kind != "none"
    except TableError as error:
        if cannot_look(error):
            raise
        # The log of that time is gone: nobody can say that nothing changed.
        return True


def read_commit(location: Location, version: int) -> list[dict[str, Any]]:
    """The actions of one commit, as the log has them.

    Raises:
        TableError: the log has no such commit (any more).
    """
    actions = actions_at(location, version)
    if actions is None:
        raise TableError(
            f"version {version} of the Delta table at {location.uri} is no longer in its log",
            fix="read the table whole once: odi run --node NODE --full-refresh",
            uri=location.uri,
            version=version,
        )
    return actions


def _change(version: int, actions: Iterable[dict[str, Any]], kinds: Mapping[str, Any]) -> CommitChange:
    info: dict[str, Any] = {}
    adds: list[dict[str, Any]] = []
    moved: list[dict[str, Any]] = []
    removes: list[dict[str, Any]] = []
    taken: list[dict[str, Any]] = []
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif action.get("add", {}).get("dataChange"):
            adds.append(action["add"])
        elif "add" in action:
            moved.append(action["add"])
        elif "remove" in action:
            (removes if action["remove"].get("dataChange", False) else taken).append(action["remove"])
    if not adds and not removes:
        moves = tuple(_file(add, kinds) for add in moved)
        return CommitChange(version, "none", moved=moves, removed=_removed(taken, kinds))
    ours = info.get(METADATA_KEY) or {}
    change = CommitChange(
        version,
        "table" if removes else "rows",
        tuple(_file(add, kinds) for add in adds),
        _partitions([*adds, *removes], kinds),
        restored=restored_version(str(info.get("operation")), info.get("operationParameters") or {}),
    )
    if ours.get("changes") not in {"rows", "partitions", "table"}:
        return change
    return replace(
        change,
        kind=ours["changes"],
        keys=tuple(ours.get("keys") or ()),
        updated=int(ours.get("rows_updated") or 0),
        deleted=int(ours.get("rows_deleted") or 0),
        moved=tuple(_file(add, kinds) for add in moved),
        removed=_removed(removes, kinds),
    )


def _removed(
    removes: Iterable[Mapping[str, Any]], kinds: Mapping[str, Any]
) -> tuple[tuple[str, dict[str, str | None]], ...]:
    return tuple((unquote(remove["path"]), _partition(remove, kinds)) for remove in removes)


def _partition(action: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, str | None]:
    return same_spellings(action.get("partitionValues") or {}, kinds)


def _file(add: dict[str, Any], kinds: Mapping[str, Any]) -> LiveFile:
    stats = json.loads(add["stats"]) if add.get("stats") else {}
    return LiveFile(unquote(add["path"]), add["size"], stats.get("numRecords"), _partition(add, kinds))


def _partitions(actions: Iterable[dict[str, Any]], kinds: Mapping[str, Any]) -> tuple[Mapping[str, str | None], ...]:
    unique: dict[tuple[tuple[str, str | None], ...], Mapping[str, str | None]] = {}
    for action in actions:
        values = _partition(action, kinds)
        unique[tuple(sorted(values.items()))] = values
    return tuple(values for key, values in unique.items() if key)
