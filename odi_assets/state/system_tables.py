"""A system table: a Delta table that many processes append to at once, opened afresh for each operation.

The handle that a decision was read from is the handle that its commit goes through: deltalake enforces an app
transaction only against commits made after the handle was opened, which makes "open, look, append" a compare-and-swap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from arro3.core import Table
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake import Field as DeltaField
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, TableNotFoundError

from odi_assets.errors import StateError
from odi_assets.state.arrow_rows import Columns, Kind
from odi_assets.state.delta_faults import (
    CommitConflict,
    OutcomeUnknown,
    StateAccessError,
    StateUnreachableError,
    deltalake_calls,
    require_known_scheme,
    require_own_runtime,
)
from odi_assets.state.store_answers import is_remote

_log = logging.getLogger(__name__)
T = TypeVar("T")

_OPEN_ATTEMPTS = 5
_COMMIT_ATTEMPTS = 200
_YOUNG_VERSIONS = 20
_YOUNG_ATTEMPTS = 20
_LOCAL_LOG_SECONDS = 5
_REMOTE_LOG_SECONDS = 600
# deltalake tries each request again in silence, ten times by default; longer waits are for our retries, which tell.
_PATIENCE = {"max_retries": "3", "retry_timeout": "10s"}


@dataclass(frozen=True)
class Handle:
    """A system table at one version, and when that was."""

    table: DeltaTable
    names: frozenset[str]
    opened_at: float = field(default_factory=time.time)
    opened_at_monotonic: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """Seconds since it was opened, by the clock that saw more: a machine asleep stops only one of them."""
        return max(time.time() - self.opened_at, time.monotonic() - self.opened_at_monotonic)


class SystemTable:
    """The Delta table at ``uri`` with ``columns``; made with its first write.

    Args:
        uri: a path or URI; storage options never appear in messages.
        columns: what it holds.
        storage_options: deltalake's, for the store.
        indexed: the columns that look-ups use; only these carry statistics in the log.
        connection: the name of the connection that the storage options come from; errors tell it.
    """

    def __init__(
        self,
        uri: str,
        columns: Columns,
        storage_options: Mapping[str, str] | None,
        indexed: Sequence[str],
        connection: str | None = None,
    ) -> None:
        self.uri = uri
        self.columns = columns
        patience = _PATIENCE if is_remote(uri) else {}
        self.storage_options = {**patience, **(storage_options or {})} or None
        self.indexed = indexed
        self.connection = connection

    def __repr__(self) -> str:
        return f"SystemTable({self.uri!r})"

    @property
    def _log_seconds(self) -> int:
        """How long the log keeps commits that a checkpoint covers. A writer whose handle is older than half of it
        makes sure afterwards that its commit was not put where one had been cleaned away."""
        return _REMOTE_LOG_SECONDS if is_remote(self.uri) else _LOCAL_LOG_SECONDS

    @property
    def properties(self) -> dict[str, str]:
        """Table properties: opening stays fast because checkpoints are frequent and the log short."""
        return {
            "delta.checkpointInterval": "10",
            "delta.logRetentionDuration": f"interval {self._log_seconds} seconds",
            "delta.deletedFileRetentionDuration": f"interval {2 * self._log_seconds} seconds",
            "delta.enableExpiredLogCleanup": "true",
            "delta.dataSkippingStatsColumns": ",".join(self.indexed),
        }

    def calls(self, what: str) -> AbstractContextManager[None]:
        """Run deltalake calls on this table and raise its errors as ours; ``what`` names them."""
        return deltalake_calls(what, self.uri, self.connection)

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self) -> Handle | None:
        """The table as it is now; None if there is none.

        Raises:
            StateError: there is something, and it cannot be opened.
        """
        require_own_runtime()
        for attempt in range(1, _OPEN_ATTEMPTS + 1):
            try:
                with self.calls("opening a system table"):
                    try:
                        table = DeltaTable(self.uri, storage_options=self.storage_options)
                    except TableNotFoundError as error:
                        require_known_scheme(error, self.uri)
                        return None
                    return Handle(table, frozenset(f.name for f in table.schema().fields))
            except (StateAccessError, StateUnreachableError):
                raise
            except StateError:
                # Another process may have cleaned the log between our listing of it and our reading.
                if attempt == _OPEN_ATTEMPTS:
                    raise
                time.sleep(0.005 * attempt)
        raise AssertionError("unreachable")

    def open_for_writing(self) -> Handle:
        """The table as it is now, made if there is none, with every column of ours.

        Raises:
            CommitConflict: others changed its columns at the same time.
            StateError: it cannot be made, or has not the columns it should have.
        """
        handle = self.open() or self._create()
        missing = [name for name in self.columns.kinds if name not in handle.names]
        if missing:
            self._adopt(handle, missing)
            return self.open_for_writing()
        return handle

    def _create(self) -> Handle:
        try:
            with self.calls("making a system table"):
                DeltaTable.create(
                    self.uri,
                    self.columns.schema,
                    mode="ignore",
                    configuration=self.properties,
                    storage_options=self.storage_options,
                )
        except StateError:
            # Of several processes that make it at once, all but one are refused: then it is there.
            handle = self.open()
            if handle is None:
                raise
            return handle
        handle = self.open()
        if handle is None:
            raise StateError(f"the system table at {self.uri} vanished as it was made", uri=self.uri)
        return handle

    def _adopt(self, handle: Handle, missing: Sequence[str]) -> None:
        _log.info("%s lacks %s (another tool made it); adding them", self.uri, ", ".join(missing))
        wanted = {f.name: f for f in DeltaSchema.from_arrow(self.columns.schema).fields}
        fields: list[DeltaField] = [wanted[name] for name in missing]
        with self.calls("adding columns to a system table"):
            handle.table.alter.add_columns(fields)
            handle.table.alter.set_table_properties(self.properties, raise_if_not_exists=False)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, look: Callable[[Handle], T]) -> T | None:
        """What ``look`` finds in the table as it is now; None if there is no table.

        Raises:
            StateError: it cannot be read.
        """
        for attempt in range(1, _OPEN_ATTEMPTS + 1):
            handle = self.open()
            if handle is None:
                return None
            try:
                with self.reading():
                    return look(handle)
            except StateError:
                # A file may have been folded and vacuumed under a reader that stood still for long.
                if attempt == _OPEN_ATTEMPTS or not self._moved(handle):
                    raise
        raise AssertionError("unreachable")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run calls that read the table, with deltalake's errors as ours."""
        with self.calls("reading a system table"):
            yield

    def rows(self, handle: Handle, predicate: str) -> list[dict[str, Any]]:
        """The rows that fulfil an SQL predicate; files whose statistics exclude it are not opened."""
        columns = [name for name in self.columns.kinds if name in handle.names]
        return self.columns.from_arrow(handle.table.scan(columns=columns, predicate=predicate))

    def environments(self) -> set[str | None]:
        """The environments that rows belong to.

        Raises:
            StateError: the table cannot be read.
        """
        column = Columns({"environment": Kind.STRING})

        def look(handle: Handle) -> set[str | None]:
            wanted = "environment" if "environment" in handle.names else "NULL AS environment"
            found = QueryBuilder().register("state", handle.table).execute(f"SELECT DISTINCT {wanted} FROM state")
            return {row["environment"] for row in column.from_arrow(found)}

        return self.read(look) or set()

    def _moved(self, handle: Handle) -> bool:
        now = self.open()
        return now is None or now.table.version() != handle.table.version()

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, attempt: Callable[[Handle], T]) -> T:
        """What ``attempt`` makes of a fresh handle on the table, which is made if there is none.

        deltalake lets several processes "make" one table: each replaces the metadata of the one before and so spoils
        what was begun on it. While the table is that young, an attempt starts over at once instead of waiting.

        Raises:
            CommitConflict: ``attempt`` met a concurrent commit; nothing was written.
        """
        for soon in range(1, _YOUNG_ATTEMPTS + 1):
            handle = self.open_for_writing()
            try:
                return attempt(handle)
            except CommitConflict:
                if handle.table.version() > _YOUNG_VERSIONS or soon == _YOUNG_ATTEMPTS:
                    raise
                time.sleep(0.005 * soon)
        raise AssertionError("unreachable")

    def append(
        self,
        handle: Handle,
        rows: Table,
        transactions: Sequence[Transaction],
        landed: Callable[[Handle], bool],
    ) -> None:
        """Append rows in one commit, unless one of the transactions' app ids was committed since ``handle`` was opened.

        Args:
            landed: whether the rows are in the table; asked when an answer was lost on its way.

        Raises:
            CommitConflict: nothing was written; look again.
            StateUnreachableError: nothing was written; the store did not answer.
            OutcomeUnknown: the store stopped to answer at the commit; look before trying again.
            StateError: nothing was written, and trying again would not help.
        """
        extra = handle.names - set(self.columns.kinds)
        try:
            with self.calls("appending to a system table"):
                write_deltalake(
                    handle.table,
                    rows,
                    mode="append",
                    schema_mode="merge" if extra else None,
                    commit_properties=CommitProperties(
                        app_transactions=list(transactions) or None, max_commit_retries=_COMMIT_ATTEMPTS
                    ),
                )
        except StateError as error:
            self._after_failure(handle, landed, error)
        else:
            if handle.age > self._log_seconds / 2 and not self._is_there(landed):
                raise CommitConflict(
                    f"a commit to {self.uri} took {handle.age:.0f} s and others went past it",
                    fix="try again; nothing was written",
                    uri=self.uri,
                )

    def _after_failure(self, handle: Handle, landed: Callable[[Handle], bool], error: StateError) -> None:
        if self._is_there(landed):
            _log.info("a commit to %s landed although its answer was: %s", self.uri, error.message)
            return
        cause = error.__cause__
        if type(cause) is DeltaError and self._moved(handle):
            # The log went on, and was cleaned, past the version that this handle knows.
            raise CommitConflict(error.message, fix="try again; nothing was written", uri=self.uri) from cause
        raise error

    def _is_there(self, landed: Callable[[Handle], bool]) -> bool:
        try:
            return bool(self.read(landed))
        except StateUnreachableError as error:
            unknown = OutcomeUnknown(
                f"it is not known whether a commit to {self.uri} was made: {error.message}",
                fix="when the store answers, look at what is there before writing it again",
                uri=self.uri,
                connection=self.connection,
            )
            unknown.landed = landed
            raise unknown from error

    def once(self, attempt: Callable[[], T]) -> Callable[[], T]:
        """``attempt`` for a retry: a commit whose outcome stayed unknown is looked for before another is made."""
        unknown: list[OutcomeUnknown] = []

        def attempt_once() -> T:
            if unknown:
                last = unknown[-1]
                if self._is_there(last.landed):
                    found: T = last.result
                    return found
                unknown.clear()
            try:
                return attempt()
            except OutcomeUnknown as error:
                unknown.append(error)
                raise

        return attempt_once


def sql(text: str) -> str:
    """``text`` as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def in_environment(environment: str | None) -> str:
    """The SQL predicate for the rows of an environment."""
    return "environment IS NULL" if environment is None else f"environment = {sql(environment)}"
