"""A system table: a Delta table that many processes append to at once, opened afresh for each operation.

It is made with its first write, and compacted by its writers (see ``compaction``). Rows become Arrow and come back
without pyarrow, whose import is slow.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from arro3.core import Table
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from odi_assets.connections.location import Location, is_there
from odi_assets.delta.commit import cleaning, looked_for
from odi_assets.delta.damage import damage_behind, repair_command
from odi_assets.delta.errors import (
    STATE,
    CommitConflict,
    DamagedTableError,
    Owner,
    UnsupportedFeatureError,
    cannot_look,
    store_options,
)
from odi_assets.delta.on_disk import is_synced, sync_commit, sync_written
from odi_assets.delta.retry import raced
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import StateError
from odi_assets.state.delta.system_columns import Columns, as_rows

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
T = TypeVar("T")

_LOCAL_LOG_SECONDS = 5
_REMOTE_LOG_SECONDS = 600
_COMMIT_ATTEMPTS = 200
"""How many appends of others deltalake puts a commit after: they never conflict, so it goes on by itself."""
_YOUNG_VERSIONS = 20
VERSIONS_PER_LOOK = 8
"""One commit in this many checks whether a compaction is needed."""


class OtherLayout(UnsupportedFeatureError):
    """The table has not the layout that was looked for: Odibi made it, or we did. Fields: uri."""


class SystemTable:
    """The system table at ``location`` with ``columns``.

    Args:
        location: where it is; its storage options never appear in messages.
        columns: what it holds.
        indexed: the columns that look-ups use; only these carry statistics in the log.

    Attributes:
        compacts: whether writers compact it.
        largest_file: files with at least this many rows are not compacted; None: every file is.
        note: the file beside the project file that notes on which disk the table was made, if it is a local one.
        takes_odibis: whether a table that Odibi made will do.
        owner: whose table it is, for messages.
    """

    compacts = True
    largest_file: int | None = None
    note: Path | None = None
    takes_odibis = True
    owner: ClassVar[Owner] = STATE

    def __init__(self, location: Location, columns: Columns, indexed: Sequence[str]) -> None:
        self.location = location
        self.uri = location.uri
        self.columns = columns
        self.indexed = indexed
        # How long the log keeps commits that a checkpoint covers. A writer whose handle is older than half of it makes
        # sure afterwards that its commit was not put where one had been cleaned away.
        self._log_seconds = _LOCAL_LOG_SECONDS if location.is_local else _REMOTE_LOG_SECONDS
        # Opening stays fast because checkpoints are frequent and the log short.
        self._properties = {
            "delta.checkpointInterval": "10",
            "delta.logRetentionDuration": f"interval {self._log_seconds} seconds",
            "delta.deletedFileRetentionDuration": f"interval {2 * self._log_seconds} seconds",
            "delta.enableExpiredLogCleanup": "true",
            "delta.dataSkippingStatsColumns": ",".join(indexed),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    # -- opening -------------------------------------------------------------------------------------------------------

    def open(self) -> TableHandle | None:
        """The table as it is now; None if there is none.

        Raises:
            OtherLayout: Odibi made it, and such a table will not do.
            StateError: there is something, and it cannot be opened.
        """
        handle = TableHandle.open_once(self.location, owner=self.owner)
        if not handle.exists:
            if self.note is not None and is_there(self.note):
                with handle.calls("looking for the disk of a system table"):
                    self._require_disk(self.note)
            return None
        if not self.takes_odibis and self.columns.ours.isdisjoint(handle.columns):
            raise OtherLayout(f"Odibi made the table at {self.uri}", uri=self.uri)
        return handle

    def is_odibis(self, handle: TableHandle) -> bool:
        """Whether Odibi made the table. It stays as it is: Odibi fails on columns that it does not know."""
        return bool(self.columns.ours) and self.columns.ours.isdisjoint(handle.columns)

    def open_for_writing(self) -> TableHandle:
        """The table as it is now, made if there is none, with every column of ours unless Odibi made it.

        Raises:
            CommitConflict: others changed its columns at the same time.
            StateError: it cannot be made, or has not the columns it should have.
        """
        handle = self.open() or self._create()
        missing = [name for name in self.columns.kinds if name not in handle.columns]
        if missing and not self.is_odibis(handle):
            self._add(handle, missing)
            return self.open_for_writing()
        return handle

    def _create(self) -> TableHandle:
        new_handle = TableHandle(self.location, None, self.owner)
        refused: StateError | None = None
        try:
            with new_handle.calls("making a system table"):
                DeltaTable.create(
                    self.uri,
                    self.columns.schema,
                    mode="ignore",
                    configuration=self._properties,
                    storage_options=store_options(self.location),
                )
        except StateError as error:
            # Of several processes that make it at once, all but one are refused: then it is there.
            refused = error
        handle = self.open()
        if handle is not None and self.note is not None:
            self._note_disk(self.note)
        if handle is not None and not handle.version:
            sync_commit(self.location, 0)
        if handle is None:
            raise refused or StateError(f"the system table at {self.uri} vanished as it was made", uri=self.uri)
        return handle

    def _note_disk(self, note: Path) -> None:
        """Note where the table was made, beside the notes of other environments. If the project's folder cannot be
        written, nothing is noted."""
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            others = _devices(note) if note.exists() else {}
            devices = {**others, self.uri: self.location.local_path.stat().st_dev}
            note.write_text(json.dumps(devices), encoding="utf-8")
        except OSError as error:
            _log.info(
                "%s cannot be written; if the disk of %s is not mounted, nobody can tell: %s", note, self.uri, error
            )

    def _require_disk(self, note: Path) -> None:
        """Called where the table is missing: was it dropped, or is the disk that it was made on not mounted?

        Raises:
            StateError: the folder, or what is there of the path to it, is on another disk.
            OSError: it cannot be found out which it is.
        """
        device, path = _devices(note).get(self.uri), self.location.local_path
        here = next(folder for folder in (path, *path.parents) if is_there(folder))
        if device not in (None, here.stat().st_dev):
            raise StateError(
                f"there is no system table at {self.uri}, and it was made on another disk than the one of {here}",
                fix=f"mount that disk; or, if the table was deleted on purpose, delete {note} and start over",
                uri=self.uri,
            )

    def _add(self, handle: TableHandle, missing: Sequence[str]) -> None:
        _log.info("%s lacks %s (an earlier version made it); adding them", self.uri, ", ".join(missing))
        wanted = {f.name: f for f in DeltaSchema.from_arrow(self.columns.schema).fields}
        with handle.calls("adding columns to a system table"):
            handle.table.alter.add_columns([wanted[name] for name in missing])
            handle.table.alter.set_table_properties(self._properties, raise_if_not_exists=False)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, look: Callable[[TableHandle], T]) -> T | None:
        """What ``look`` finds in the table as it is now; None if there is no table.

        Raises:
            StateError: it cannot be read.
        """
        handle: TableHandle | None = None

        def attempt() -> T | None:
            nonlocal handle
            handle = None
            handle = self.open()
            if handle is None:
                return None
            with handle.calls("reading a system table"):
                return look(handle)

        # A file may have been compacted away and deleted while a reader was held up.
        try:
            return raced(attempt, lost=lambda error: isinstance(error, StateError) and self._moved(handle))
        except StateError as error:
            # An error that names a file of its own says what to do about it.
            is_own = type(error) is not StateError or "path" in error.fields
            if not is_own and handle is not None and not cannot_look(error):
                self._require_whole(handle, error)
            raise

    def _require_whole(self, handle: TableHandle, error: StateError) -> None:
        """Raises DamagedTableError if data files of the table are gone, or cannot be read."""
        from odi_assets.delta.maintenance.verify import unreadable_files

        lost = unreadable_files(handle)
        if lost:
            raise DamagedTableError(
                f"{error.message}: {len(lost):,} of its files are gone or damaged, {lost[0]} among them",
                fix=f"`{repair_command(self.location, self.owner)}` takes them out and sets aside what is left of "
                "them; `odi state recover` then restores what the tables' logs hold",
                uri=self.uri,
            ) from error

    def lists(self, handle: TableHandle, predicate: str) -> dict[str, list[Any]]:
        """The rows that fulfil an SQL predicate, column by column; files whose statistics exclude it are not opened."""
        columns = [name for name in self.columns.kinds if name in handle.columns]
        if "environment" in self.columns.kinds and "environment" not in columns:
            return self.columns.lists(query(handle, f"SELECT * FROM state WHERE {predicate}"))
        return self.columns.lists(handle.table.scan(columns=columns, predicate=predicate))

    def rows(self, handle: TableHandle, predicate: str) -> list[dict[str, Any]]:
        """The same, row by row."""
        return as_rows(self.lists(handle, predicate))

    def environments(self) -> set[str | None]:
        """The environments that rows belong to.

        Raises:
            StateError: the table cannot be read.
        """

        def look(handle: TableHandle) -> set[str | None]:
            stream = query(handle, "SELECT DISTINCT environment FROM state")
            return {row["environment"] for row in Columns({"environment": "string"}).rows(stream)}

        return self.read(look) or set()

    def _moved(self, handle: TableHandle | None) -> bool:
        if handle is None:
            return False
        now = self.open()
        return now is None or now.version != handle.version

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, attempt: Callable[[TableHandle], T]) -> T:
        """What ``attempt`` makes of a fresh handle on the table, which is made if there is none; then a compaction,
        where one is due.

        deltalake lets several processes "make" one table: each replaces the metadata of the one before and so spoils
        what was begun on it. While the table is that young, an attempt starts over at once instead of waiting.

        Raises:
            CommitConflict: ``attempt`` met a concurrent commit; nothing was written.
        """
        version = 0

        def once() -> T:
            nonlocal version
            handle = self.open_for_writing()
            version = handle.table.version()
            result = attempt(handle)
            if self.compacts and handle.table.version() % VERSIONS_PER_LOOK == 0:
                from odi_assets.state.delta.compaction import compact_if_needed

                compact_if_needed(self, handle, VERSIONS_PER_LOOK)
            return result

        return raced(once, lost=lambda error: isinstance(error, CommitConflict) and version <= _YOUNG_VERSIONS)

    def append_rows(
        self,
        handle: TableHandle,
        rows: Table,
        transactions: Sequence[Transaction],
        landed: Callable[[TableHandle], bool],
        result: T,
    ) -> T:
        """Append rows in one commit, unless one of the transactions' app ids was committed since ``handle`` was opened.

        Args:
            landed: whether the rows are in the table; asked when an answer was lost on its way.
            result: returned as soon as they are; what the whole retried operation returns, for it may be its result.

        Raises:
            CommitConflict: nothing was written; look again.
            StoreUnreachableError: nothing was written; the store did not answer.
            OutcomeUnknownError: the store stopped to answer at the commit; it is looked for before a retry.
            StateError: nothing was written, and trying again would not help.
        """

        def look() -> T | None:
            return result if self.read(landed) else None

        fences = CommitProperties(app_transactions=list(transactions) or None, max_commit_retries=_COMMIT_ATTEMPTS)
        if not self.columns.ours.issubset(handle.columns):
            rows = self.without_ours(rows)
        # Other tools add columns of their own, and early versions of Odibi had fewer.
        same_columns = handle.columns.keys() == set(rows.column_names)
        try:
            with handle.calls("appending to a system table"):
                write_deltalake(
                    handle.table,
                    rows,
                    mode="append",
                    schema_mode=None if same_columns else "merge",
                    commit_properties=fences,
                    post_commithook_properties=cleaning(self.location),
                )
        except StateError as error:
            if looked_for(handle, look, error) is not None:
                self._put_on_disk(handle)
                return result
            if type(error.__cause__) is DeltaError and self._moved(handle):
                # The log went on, and was cleaned, past the version that this handle knows.
                raise CommitConflict(error.message, fix="try again; nothing was written", uri=self.uri) from error
            behind = damage_behind(error, self.location, STATE)
            if behind is error:
                raise
            raise behind from error
        if handle.age > self._log_seconds / 2 and looked_for(handle, look) is None:
            raise CommitConflict(
                f"a commit to {self.uri} took {handle.age:.0f} s and others went past it",
                fix="try again; nothing was written",
                uri=self.uri,
            )
        self._put_on_disk(handle)
        return result

    def _put_on_disk(self, handle: TableHandle) -> None:
        """Put the commit that was made on ``handle`` on the disk, and clean the log where a checkpoint covers it."""
        if not is_synced(self.location):
            return
        first, made = (handle.version or 0) + 1, False
        if handle.table.version() == handle.version:
            # The answer to the commit was an error, so the handle did not move on.
            handle = TableHandle.open_once(self.location, owner=self.owner)
        for version in range(first, handle.table.version() + 1):
            made |= sync_written(self.location, version)
        if made:
            handle.clean_log()

    def without_ours(self, rows: Table) -> Table:
        """Rows as they are written into a table that Odibi made: without columns of ours."""
        return rows.select([name for name in self.columns.kinds if name not in self.columns.ours])

    # -- maintenance --------------------------------------------------------------------------------------------------

    def maintain(self, *, dry_run: bool = False) -> dict[str, int]:
        """Compact the table and remove what nothing refers to; counts of what was done, or with ``dry_run`` would be.

        Raises:
            CommitConflict: another process compacted at the same time.
            StateError: the table cannot be read or written.
        """
        from odi_assets.state.delta.compaction import compact_now

        return compact_now(self, dry_run=dry_run)

    def rows_to_keep(self, handle: TableHandle, files: Sequence[LiveFile]) -> pa.Table:
        """The rows that a compaction puts in the place of ``files``, in order: all of them, as they are."""
        from odi_assets.delta.maintenance.compaction import rows_in_files

        return rows_in_files(handle, files)


def _devices(note: Path) -> dict[str, int]:
    """The devices that tables were made on, by the tables' URIs.

    Raises:
        OSError: the note cannot be looked at.
    """
    try:
        devices: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
    except ValueError:
        _log.warning("%s cannot be read and is ignored; it can be deleted", note)
        return {}
    # Early versions noted only the table that was made last.
    return {devices["table"]: devices["device"]} if "table" in devices else devices


def query(handle: TableHandle, sql_: str) -> Any:
    """The result of a query of the table, which it calls ``state``.

    Odibi before 2.5 made tables without the column ``environment``: their rows belong to the one without a name.
    """
    if "environment" in handle.columns:
        return QueryBuilder().register("state", handle.table).execute(sql_)
    # A constant NULL would be folded, and a comparison with it then lets all rows through (deltalake 1.6.6).
    named = "WITH state AS (SELECT *, CASE WHEN random() < 0 THEN '' END AS environment FROM stored)"
    return QueryBuilder().register("stored", handle.table).execute(f"{named} {sql_}")


def sql(text: str) -> str:
    """``text`` as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def in_environment(environment: str | None) -> str:
    """The SQL predicate for the rows of an environment."""
    return "environment IS NULL" if environment is None else f"environment = {sql(environment)}"
