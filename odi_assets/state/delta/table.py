"""A system table: a Delta table that many processes append to at once, opened afresh for each operation.

The handle that a decision was read from is the handle that its commit goes through: deltalake enforces an app
transaction only against commits made after the handle was opened, which makes "open, look, append" a compare-and-swap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from arro3.core import Table
from deltalake import CommitProperties, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from odi_assets.delta.errors import CommitConflict, OutcomeUnknown, StateUnreachableError
from odi_assets.errors import StateError
from odi_assets.state.delta.arrow import Columns, Kind
from odi_assets.state.delta.table_opening import OPEN_ATTEMPTS, Handle, TableAtPlace

_log = logging.getLogger(__name__)
T = TypeVar("T")

_COMMIT_ATTEMPTS = 200
_YOUNG_VERSIONS = 20
_YOUNG_ATTEMPTS = 20


class SystemTable(TableAtPlace):
    """A system table: what is read from it and appended to it; made with its first write."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, look: Callable[[Handle], T]) -> T | None:
        """What ``look`` finds in the table as it is now; None if there is no table.

        Raises:
            StateError: it cannot be read.
        """
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            handle = self.open()
            if handle is None:
                return None
            try:
                with self.reading():
                    return look(handle)
            except StateError:
                # A file may have been folded and vacuumed under a reader that stood still for long.
                if attempt == OPEN_ATTEMPTS or not self._moved(handle):
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
            if handle.age > self.log_seconds / 2 and not self._is_there(landed):
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
