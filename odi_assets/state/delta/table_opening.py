"""Where a system table is, and how it is opened and made; many processes do both at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake import Field as DeltaField
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import TableNotFoundError

from odi_assets.delta.errors import (
    StateAccessError,
    StateUnreachableError,
    deltalake_calls,
    require_known_scheme,
    require_own_runtime,
)
from odi_assets.delta.store_answers import is_remote
from odi_assets.errors import StateError
from odi_assets.state.delta.arrow import Columns

_log = logging.getLogger(__name__)

OPEN_ATTEMPTS = 5
"""How often a table is opened, or looked at, that others keep changing meanwhile."""
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


class TableAtPlace:
    """The Delta table at ``uri`` with ``columns``: opened, or made.

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
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def log_seconds(self) -> int:
        """How long the log keeps commits that a checkpoint covers. A writer whose handle is older than half of it
        makes sure afterwards that its commit was not put where one had been cleaned away."""
        return _REMOTE_LOG_SECONDS if is_remote(self.uri) else _LOCAL_LOG_SECONDS

    @property
    def properties(self) -> dict[str, str]:
        """Table properties: opening stays fast because checkpoints are frequent and the log short."""
        return {
            "delta.checkpointInterval": "10",
            "delta.logRetentionDuration": f"interval {self.log_seconds} seconds",
            "delta.deletedFileRetentionDuration": f"interval {2 * self.log_seconds} seconds",
            "delta.enableExpiredLogCleanup": "true",
            "delta.dataSkippingStatsColumns": ",".join(self.indexed),
        }

    def calls(self, what: str) -> AbstractContextManager[None]:
        """Run deltalake calls on this table and raise its errors as ours; ``what`` names them."""
        return deltalake_calls(what, self.uri, self.connection)

    def open(self) -> Handle | None:
        """The table as it is now; None if there is none.

        Raises:
            StateError: there is something, and it cannot be opened.
        """
        require_own_runtime()
        for attempt in range(1, OPEN_ATTEMPTS + 1):
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
                if attempt == OPEN_ATTEMPTS:
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
