"""One Delta table at one version: what is read, checked and committed on the same handle.

deltalake enforces an app transaction only against commits made after the handle was opened. So "open, check, commit on
that handle" is a compare-and-swap; opening a fresh handle in between would lose the fence.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

from arro3.core import Table
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from odi_assets.connections.location import Location, is_there
from odi_assets.delta.damage import damage_behind, damaged, emptied_commit
from odi_assets.delta.errors import NODE, Owner, cannot_look, data_reads, deltalake_calls, store_options
from odi_assets.delta.history import CommittedStamp, TableCommit, commit_at, commit_digest, commits
from odi_assets.delta.on_disk import sync_commit
from odi_assets.delta.partition_values import EXACT_FLOAT_DIGITS, partition_string
from odi_assets.delta.retry import Retry, raced
from odi_assets.errors import OdiError, TableError
from odi_assets.util.lazy import pa

_T = TypeVar("_T")
# deltalake decodes `%20`, takes `\` for `/`, and breaks down at the others; in URIs, the rest after `#` or `?` is lost.
_log = logging.getLogger(__name__)
_GONE = re.compile(r"Object at location \S+ not found")
_UNUSABLE = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]|^\\\x00-\x1f\x7f]")
_UNUSABLE_IN_STORES = re.compile(rf"{_UNUSABLE.pattern}|[#?]")


@dataclass(frozen=True)
class LiveFile:
    """A data file of the table's current version. ``path`` is relative to the table."""

    path: str
    size: int
    rows: int | None
    partition: dict[str, str | None]


_NO_SCHEMA = "No table metadata or protocol found"
"""What deltalake says of a version whose own commit is there, and not what it builds on."""


def _not_held(location: Location, version: int, owner: Owner) -> OdiError:
    return owner.error(
        f"the log of {owner.noun} at {location.uri} does not hold version {version} any more",
        fix="choose a later version: what was cleaned from the log does not come back",
        uri=location.uri,
        version=version,
    )


class TableHandle:
    """A Delta table opened at one version, or the place where one may be created.

    Attributes:
        location: where it is.
        owner: whose it is; decides what its faults are raised as.
        opened_at: when this handle was opened, in seconds of the clock.
        version: the version that was opened; None if there is no table.
        exists: whether there is a table.
    """

    def __init__(self, location: Location, table: DeltaTable | None, owner: Owner = NODE) -> None:
        self.location = location
        self.owner = owner
        self.opened_at = time.time()
        self._opened_at_monotonic = time.monotonic()
        self._table = table
        self.exists = table is not None
        self.version = None if table is None else table.version()
        self._read: dict[tuple[Callable[[Location, int], Any], int], Any] = {}

    @classmethod
    def open(cls, location: Location, version: int | None = None) -> TableHandle:
        """Open the table at ``version`` (latest if None); a missing table gives a handle with ``exists`` False.

        A version that the log of a table no longer holds is an error. A store that does not answer is asked again as
        ``location.retry`` says.

        Raises:
            StoreUnreachableError: the store did not answer.
            StoreAccessError: the store refused.
            TableError: there is something, but not a table this version of deltalake can open.
        """
        return Retry(location.retry).call(lambda: cls.open_once(location, version), f"opening {location.uri}")

    @classmethod
    def open_once(cls, location: Location, version: int | None = None, owner: Owner = NODE) -> TableHandle:
        """Like :meth:`open`, without waiting for the store; for callers with retries of their own."""

        def may_be_damage(error: OdiError) -> bool:
            return (
                version is None
                and type(error) is owner.error
                # Both say that no table can be at such a path; looking again changes nothing.
                and not isinstance(error.__cause__, TableNotFoundError | None)
                and not cannot_look(error)
            )

        # Another process may clean the log between its listing and our reading of it; a fixed version stays gone.
        try:
            return raced(lambda: cls._opened(location, version, owner), lost=may_be_damage)
        except OdiError as error:
            if not may_be_damage(error):
                raise
            behind = damage_behind(error, location, owner)
            if behind is error:
                raise
            raise behind from error

    @classmethod
    def _opened(cls, location: Location, version: int | None, owner: Owner) -> TableHandle:
        if (odd := (_UNUSABLE if location.is_local else _UNUSABLE_IN_STORES).search(location.uri)) is not None:
            raise owner.error(
                f"{owner.noun} cannot be at {location.uri}: deltalake takes {odd[0]!r} in a path for something else",
                fix="rename the folder, or choose another path",
                uri=location.uri,
            )
        options = store_options(location)
        at = "" if version is None else f" at version {version}"
        with deltalake_calls(f"opening {owner.noun}{at}", location, owner):
            try:
                opened = cls(location, DeltaTable(location.uri, version=version, storage_options=options), owner)
                if version is None and location.is_local:
                    opened.require_whole_commits()
                return opened
            except TableNotFoundError as error:
                # deltalake has the same type for a URI that it does not understand.
                if "Unknown scheme" not in str(error):
                    # It is also what deltalake says of a folder that it may not look into.
                    if location.is_local and is_there(log := location.local_path / "_delta_log"):
                        list(log.iterdir())
                    if version is not None and cls._opened(location, None, owner).exists:
                        raise _not_held(location, version, owner) from None
                    return cls(location, None, owner)
                scheme = location.uri.partition("://")[0]
                raise owner.error(
                    f"a Delta table cannot be at {location.uri}: `{scheme}` is no scheme of a store",
                    fix="write abfss://container@account.dfs.core.windows.net/…, s3://bucket/… or gs://bucket/…",
                    uri=location.uri,
                ) from error
            except DeltaError as error:
                if version is None or _NO_SCHEMA not in str(error):
                    raise
                raise _not_held(location, version, owner) from None

    def require_whole_commits(self) -> None:
        """Raises DamagedTableError if a commit of a local log is empty: deltalake would leave its rows out silently."""
        fault = None if self.version is None else emptied_commit(self.location, self.version)
        if fault is not None:
            raise damaged(self.location, [fault], self.owner)

    def calls(self, what: str) -> AbstractContextManager[None]:
        """Run deltalake calls on this table and raise its errors as ours; ``what`` names them."""
        return deltalake_calls(what, self.location, self.owner)

    def reads(self, what: str) -> AbstractContextManager[None]:
        """The same for calls that read data files: one that is gone or torn is a DamagedTableError with a remedy."""
        return data_reads(what, self.location, self.owner)

    @property
    def table(self) -> DeltaTable:
        """deltalake's table.

        Raises:
            TableError: there is no table here.
        """
        if self._table is None:
            raise self.owner.error(
                f"there is no Delta table at {self.location.uri}",
                fix="run the node that writes it first",
                uri=self.location.uri,
            )
        return self._table

    @property
    def age(self) -> float:
        """Seconds since it was opened, by the clock that saw more: a machine asleep stops only one of them."""
        return max(time.time() - self.opened_at, time.monotonic() - self._opened_at_monotonic)

    @cached_property
    def table_id(self) -> str:
        """The id Delta gave the table at its creation; a table dropped and made again has another."""
        return str(self.table.metadata().id)

    def once(self, read: Callable[[Location, int], _T], version: int) -> _T:
        """What ``read`` takes from the commit of a version, up to this one: read once, whoever asks."""
        if (read, version) not in self._read:
            self._read[read, version] = read(self.location, version)
        taken: _T = self._read[read, version]
        return taken

    @property
    def commit(self) -> str | None:
        """A digest that identifies the commit of this version (see :func:`commit_digest`); None if the log does not
        have it."""
        return None if self.version is None else self.once(commit_digest, self.version)

    @property
    def position(self) -> dict[str, Any]:
        """Where the table stands, as runs record it: its id, its version and its commit; or that it does not exist."""
        if not self.exists:
            return {"version": None}
        return {"table_id": self.table_id, "version": self.version, "commit": self.commit}

    @cached_property
    def schema_json(self) -> str:
        """The schema in Delta's JSON form, which is also Spark's."""
        return str(self.table.schema().to_json())

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Column name to Delta type: a string for simple types, a dict for nested ones."""
        return {field["name"]: field["type"] for field in json.loads(self.schema_json)["fields"]}

    @property
    def rules(self) -> tuple[str, dict[str, Any]]:
        """What the table demands of rows: its schema and its properties."""
        return self.schema_json, dict(self.table.metadata().configuration)

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        return () if self._table is None else tuple(self.table.metadata().partition_columns)

    def transaction_number(self, app_id: str) -> int:
        """The last fence committed for ``app_id``; 0 if there is none."""
        return 0 if self._table is None else self._table.transaction_version(app_id) or 0

    @cached_property
    def add_actions(self) -> pa.Table:
        """Live files with flat statistics: ``path``, ``size_bytes``, ``num_records``, ``partition.X``, ``min.X``."""
        # `pa.table` would import pandas, to ask whether this is a frame of it.
        actions = Table.from_arrow(self.table.get_add_actions(flatten=True))
        return pa.RecordBatchReader.from_stream(actions).read_all()

    def bounds(self, kind: str, column: str) -> list[Any] | None:
        """The ``min`` or ``max`` of a column in each live file, None where that is not known exactly, or a time beyond
        Python's years; None if no file has one."""
        name = f"{kind}.{column}"
        if name not in self.add_actions.column_names:
            return None
        return [_unless_rounded(value) for value in _values(self.add_actions[name], lambda _: None)]

    def file_columns(self, names: Sequence[str]) -> list[list[Any]]:
        """Columns of :attr:`add_actions`, as lists with a value for each live file, None where a file or the table has
        none, or none that is exact. Loads no pyarrow."""
        actions = Table.from_arrow(self.table.get_add_actions(flatten=True))
        present = set(actions.column_names)
        return [
            [_unless_rounded(value) for value in actions.column(name).to_pylist()]
            if name in present
            else [None] * actions.num_rows
            for name in names
        ]

    @cached_property
    def live_files(self) -> tuple[LiveFile, ...]:
        """Every data file of this version."""
        if self._table is None:
            return ()
        paths, sizes, rows = self.file_columns(("path", "size_bytes", "num_records"))
        columns = {
            name: list(map(partition_string, _values(self.add_actions[f"partition.{name}"], _as_text)))
            for name in self.partition_columns
        }
        partitions = ({name: values[row] for name, values in columns.items()} for row in range(len(paths)))
        return tuple(map(LiveFile, map(unquote, paths), sizes, rows, partitions))

    @property
    def rows(self) -> int | None:
        """Rows of this version by the files' statistics; None if a file has none."""
        return rows_in(self.live_files)

    @property
    def bytes(self) -> int:
        """Size of this version's data files; 0 if there is no table."""
        return sum(file.size for file in self.live_files)

    def commits(self) -> Iterator[TableCommit]:
        """The commits up to this version, newest first, as far back as the log goes."""
        newest = None if self.version is None else self.once(commit_at, self.version)
        if newest is not None:
            yield newest
            yield from commits(self.location, newest.version - 1)

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
        """The same place, opened again."""
        return TableHandle.open(self.location)

    def is_kept(self, version: int) -> bool:
        """Whether the log still has what the table held at ``version``.

        Raises:
            TableError: the store does not answer, or refuses.
        """
        try:
            return TableHandle.open(self.location, version).exists
        except TableError as error:
            if cannot_look(error):
                raise
            return False

    def vacuum(
        self, hours: float | None, *, full: bool = True, dry_run: bool = False, keep_versions: Sequence[int] = ()
    ) -> list[str]:
        """Delete files that left the table ``hours`` ago (None: as long ago as the table's properties say), and with
        ``full`` those that old that never joined it. Files of ``keep_versions`` stay.

        Returns:
            Their paths, relative to the table; in a dry run, those that would be deleted.
        """
        with self.calls("deleting unused files"):
            paths = self.table.vacuum(
                hours,  # type: ignore[arg-type]
                dry_run=dry_run,
                enforce_retention_duration=False,
                full=full,
                keep_versions=list(keep_versions) or None,
            )
        return [unquote(path) for path in paths]

    def shorten_log(self) -> None:
        """Write a checkpoint and delete the commits that it covers, as far as the log's retention lets it."""
        with self.calls("shortening the log"):
            self.table.create_checkpoint()
        sync_commit(self.location, self.table.version())
        self.clean_log()

    def clean_log(self) -> None:
        """Delete the commits that a checkpoint covers, as far as the log's retention lets it. Several writers may do so
        at once: what one of them finds gone, another one has deleted."""
        with self.calls("cleaning the log"):
            try:
                self.table.cleanup_metadata()
            except (DeltaError, OSError) as error:
                if not _GONE.search(str(error)):
                    raise
                _log.debug("%s: another writer cleans the log too: %s", self.location.uri, error)


def _unless_rounded(value: Any) -> Any:
    """A statistic of a file; None for a DECIMAL that may be rounded: deltalake reads and writes decimals as floats."""
    is_long = isinstance(value, Decimal) and len(value.as_tuple().digits) > EXACT_FLOAT_DIGITS
    return None if is_long else value


def _values(column: pa.ChunkedArray, otherwise: Callable[[pa.Scalar], Any]) -> list[Any]:
    """The values of a column, and what ``otherwise`` makes of times beyond Python's years, by other writers."""
    try:
        return list(column.to_pylist())
    except OverflowError:
        return [_value(scalar, otherwise) for scalar in column]


def _value(scalar: pa.Scalar, otherwise: Callable[[pa.Scalar], Any]) -> Any:
    try:
        return scalar.as_py()
    except OverflowError:
        return otherwise(scalar)


def _as_text(scalar: pa.Scalar) -> Any:
    return scalar.cast(pa.string()).as_py()


def position_at(handle: TableHandle, version: int) -> dict[str, Any]:
    """The position of the table of ``handle`` at ``version``, as :attr:`TableHandle.position` has it."""
    return {"table_id": handle.table_id, "version": version, "commit": commit_digest(handle.location, version)}


def rows_in(files: Sequence[LiveFile]) -> int | None:
    """Rows in ``files``; None if one of them carries no count."""
    counts = [file.rows for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)
