"""One Delta table at one version: what is read, checked and committed on the same handle.

deltalake enforces an app transaction only between handles that were opened at one version, so the handle a plan
checked is the one its commit goes through; opening a fresh one in between would lose the fence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from odi_assets.connections.location import Location
from odi_assets.delta.history import Commit, CommittedStamp, commits
from odi_assets.delta.partition_values import partition_string
from odi_assets.delta.store_answers import plain
from odi_assets.errors import TableError


@dataclass(frozen=True)
class LiveFile:
    """A data file of the table's current version."""

    path: str
    size: int
    rows: int | None
    partition: dict[str, str | None]


class TableHandle:
    """A Delta table opened at one version, or the place where one may be created."""

    def __init__(self, location: Location, table: DeltaTable | None) -> None:
        self.location = location
        self._table = table

    @classmethod
    def open(cls, location: Location, version: int | None = None) -> TableHandle:
        """Open the table at ``version`` (latest if None); a missing table gives a handle with ``exists`` False.

        Raises:
            TableError: there is something, but not a table this version of deltalake can open.
        """
        options = dict(location.storage_options) or None
        try:
            return cls(location, DeltaTable(location.uri, version=version, storage_options=options))
        except TableNotFoundError:
            return cls(location, None)
        except Exception as error:
            at = "" if version is None else f" at version {version}"
            raise TableError(
                f"the Delta table at {location.uri} cannot be opened{at}: {plain(error)}",
                fix="check that the path is right and its _delta_log is whole",
                uri=location.uri,
            ) from error

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def table(self) -> DeltaTable:
        """deltalake's table.

        Raises:
            TableError: there is no table here.
        """
        if self._table is None:
            raise TableError(
                f"there is no Delta table at {self.location.uri}",
                fix="run the node that writes it first",
                uri=self.location.uri,
            )
        return self._table

    @property
    def version(self) -> int | None:
        return None if self._table is None else self._table.version()

    @cached_property
    def table_id(self) -> str:
        """The id Delta gave the table at its creation; a table dropped and made again has another."""
        return str(self.table.metadata().id)

    @cached_property
    def schema_json(self) -> str:
        """The schema in Delta's JSON form, which is also Spark's."""
        return str(self.table.schema().to_json())

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Column name to Delta type: a string for simple types, a dict for nested ones."""
        return {field["name"]: field["type"] for field in json.loads(self.schema_json)["fields"]}

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        return () if self._table is None else tuple(self.table.metadata().partition_columns)

    def transaction_number(self, app_id: str) -> int:
        """The last fence committed for ``app_id``; 0 if there is none."""
        if self._table is None:
            return 0
        return int(self._table.transaction_version(app_id) or 0)

    @cached_property
    def add_actions(self) -> pa.Table:
        """Live files with flat statistics: ``path``, ``size_bytes``, ``num_records``, ``partition.X``, ``min.X``."""
        return pa.table(self.table.get_add_actions(flatten=True))

    @cached_property
    def live_files(self) -> tuple[LiveFile, ...]:
        """Every data file of this version."""
        if self._table is None:
            return ()
        actions = self.add_actions
        partitions = self._partition_strings(actions)
        return tuple(
            LiveFile(path, size, rows, partition)
            for path, size, rows, partition in zip(
                (unquote(p) for p in actions["path"].to_pylist()),
                actions["size_bytes"].to_pylist(),
                actions["num_records"].to_pylist(),
                partitions,
                strict=True,
            )
        )

    def _partition_strings(self, actions: pa.Table) -> list[dict[str, str | None]]:
        columns = {name: actions[f"partition.{name}"].to_pylist() for name in self.partition_columns}
        return [
            {name: partition_string(values[row]) for name, values in columns.items()} for row in range(actions.num_rows)
        ]

    @property
    def rows(self) -> int | None:
        """Rows of this version by the files' statistics; None if a file has none."""
        counts = [file.rows for file in self.live_files]
        return None if None in counts else sum(count for count in counts if count is not None)

    def commits(self) -> Iterator[Commit]:
        """The commits up to this version, newest first, as far back as the log goes."""
        return iter(()) if self.version is None else commits(self.location, self.version)

    def stamps(self) -> Iterator[CommittedStamp]:
        """Our stamps in the table's log up to this version, newest first."""
        return (commit.stamp for commit in self.commits() if commit.stamp is not None)

    def last_stamp(self, app_id: str, carrying: str | None = None) -> CommittedStamp | None:
        """The stamp of the last commit fenced for ``app_id`` that is still in the log; with the fact ``carrying``."""
        if self.transaction_number(app_id) == 0:
            return None
        own = (stamp for stamp in self.stamps() if stamp.app_id == app_id)
        return next((stamp for stamp in own if carrying is None or carrying in stamp.facts), None)

    def refreshed(self) -> TableHandle:
        """The same place, opened anew."""
        return TableHandle.open(self.location)
