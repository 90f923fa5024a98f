"""High-water marks in Delta: ``meta_state`` as a log of revisions per key.

A write looks up its key's newest revision and appends the next one, fenced by an app transaction of that key alone:
writers of different keys never meet, and of two writers of one key the second starts over from a fresh look.
The newest revision counts; :mod:`~odi_assets.state.delta.revisions` tells which that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltalake import QueryBuilder, Transaction

from odi_assets.delta.errors import OutcomeUnknown
from odi_assets.state import values
from odi_assets.state.backend import HISTORY_KEPT
from odi_assets.state.base import Change
from odi_assets.state.delta.arrow import Columns, Kind
from odi_assets.state.delta.revisions import columns_of, newest, newest_of_each, revisions, row_of
from odi_assets.state.delta.table import SystemTable, in_environment, sql
from odi_assets.state.delta.table_opening import Handle
from odi_assets.state.records import HwmEntry

if TYPE_CHECKING:
    import pyarrow as pa

    from odi_assets.state.delta.compaction import DataFile

COLUMNS = Columns(
    {
        "key": Kind.STRING,
        "value": Kind.STRING,
        "environment": Kind.STRING,
        "updated_at": Kind.TIMESTAMP,
        "value_type": Kind.STRING,
        "revision": Kind.LONG,
        "deleted": Kind.BOOLEAN,
        "target_commit": Kind.LONG,
        "run_id": Kind.STRING,
        "written_at": Kind.TIMESTAMP,
    }
)
INDEXED = ("key", "environment", "updated_at", "revision")
_FEW_KEYS = 50
_NEWEST_FIRST = "revision DESC NULLS LAST, updated_at DESC NULLS LAST"


class HwmLog:
    """The revisions of the keys of one environment."""

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str] | None,
        environment: str | None,
        connection: str | None = None,
    ) -> None:
        self.table = SystemTable(uri, COLUMNS, storage_options, INDEXED, connection)
        self._environment = environment
        self._mine = in_environment(environment)
        self._fence_prefix = f"odi/hwm/{quote(environment or '', safe='')}/"

    def latest(self, key: str) -> HwmEntry | None:
        """The newest revision of ``key``, a tombstone too; None if it was never set."""
        return self.table.read(lambda handle: self._latest_of(handle, key))

    def history(self, key: str) -> list[HwmEntry]:
        """Every revision of ``key`` that is kept, newest first."""
        rows = self.table.read(lambda handle: self.table.rows(handle, self._is(key)))
        return revisions(rows or [])

    def histories(self) -> dict[str, list[HwmEntry]]:
        """What :meth:`history` gives, of every key, in order of the keys."""
        rows = self.table.read(lambda handle: self.table.rows(handle, self._mine)) or []
        rows.sort(key=itemgetter("key"))
        return {key: revisions(list(same)) for key, same in groupby(rows, itemgetter("key"))}

    def latest_of_all(self) -> list[HwmEntry]:
        """The newest revision of every key, tombstones too, in order of the keys."""
        found = self.table.read(lambda handle: self._latest_by_key(handle, "TRUE")) or {}
        return [found[key] for key in sorted(found)]

    def append(self, changes: Sequence[Change]) -> tuple[Handle | None, list[HwmEntry]]:
        """Make all changes or none, each checked against the revision that it follows; one attempt.

        Returns the handle that the commit went through, None if it did not go through deltalake, and the entries.

        Raises:
            CommitConflict: another writer of one of the keys came between; nothing was written.
            OdiError: a check refused its change; nothing was written.
        """
        return self.table.write(lambda handle: self._append(handle, changes))

    def check(self, changes: Sequence[Change]) -> None:
        """Look whether all changes could be made now.

        Raises:
            OdiError: a check refuses its change.
        """
        self.table.read(lambda handle: self._entries(handle, changes))

    def _append(self, handle: Handle, changes: Sequence[Change]) -> tuple[Handle, list[HwmEntry]]:
        with self.table.reading():
            entries = self._entries(handle, changes)
        added, texts = self._to_add(entries, changes)
        prefix = self._fence_prefix
        last = row_of(added[-1], texts[-1])
        fences = [Transaction(prefix + entry.key, entry.revision) for entry in entries]
        rows = COLUMNS.table_of(columns_of(added, texts))
        try:
            self.table.append(handle, rows, fences, landed=lambda now: self._holds(now, last))
        except OutcomeUnknown as error:
            error.result = handle, entries
            raise
        return handle, entries

    def _to_add(self, entries: Sequence[HwmEntry], changes: Sequence[Change]) -> tuple[list[HwmEntry], list[str]]:
        """The revisions that the changes add, with the older ones that they bring along, and the JSON of the values."""
        added: list[HwmEntry] = []
        texts: list[str] = []
        for entry, change in zip(entries, changes, strict=True):
            for older in change.older:
                added.append(older._replace(environment=self._environment))
                texts.append(values.encode(older.value).json)
            added.append(entry)
            texts.append(change.encoded.json)
        return added, texts

    def rows_to_keep(self, handle: Handle, _files: Sequence[DataFile]) -> pa.Table:
        """What folding keeps, of all environments: the newest revisions of each key, and as many rows that other
        tools added, in order of the keys."""
        import pyarrow as pa

        query = (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY environment, key, "
            f"revision IS NULL ORDER BY {_NEWEST_FIRST}) AS nth FROM state) WHERE nth <= {HISTORY_KEPT} "
            "ORDER BY environment, key, revision"
        )
        found = QueryBuilder().register("state", handle.table).execute(query)
        # Not pa.table(): that imports pandas.
        rows = pa.RecordBatchReader.from_stream(found).read_all().drop_columns("nth")
        return rows.cast(pa.schema(handle.table.schema().to_arrow()))

    def _entries(self, handle: Handle, changes: Sequence[Change]) -> list[HwmEntry]:
        latest = self._latest_of_these(handle, [change.key for change in changes])
        now = datetime.now(UTC)
        return [change.entry_after(latest.get(change.key), self._environment, now) for change in changes]

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _latest_of_these(self, handle: Handle, keys: Sequence[str]) -> dict[str, HwmEntry]:
        if len(keys) == 1:
            entry = self._latest_of(handle, keys[0])
            return {} if entry is None else {keys[0]: entry}
        if len(keys) <= _FEW_KEYS:
            return self._latest_by_key(handle, f"key IN ({', '.join(map(sql, keys))})")
        return self._latest_by_key(handle, "TRUE")

    def _latest_of(self, handle: Handle, key: str) -> HwmEntry | None:
        fenced = handle.table.transaction_version(self._fence(key))
        if fenced is not None and "revision" in handle.names:
            # The fence tells the newest revision, and statistics its file: one small file is read, whatever there is.
            rows = self.table.rows(handle, f"{self._is(key)} AND (revision >= {fenced} OR revision IS NULL)")
            if any(row["revision"] is not None for row in rows):
                return newest(rows)
        return newest(self.table.rows(handle, self._is(key)))

    def _latest_by_key(self, handle: Handle, predicate: str) -> dict[str, HwmEntry]:
        columns = ", ".join(name for name in COLUMNS.kinds if name in handle.names)
        query = f"SELECT {columns} FROM state WHERE {self._mine} AND {predicate}"
        if "revision" in handle.names:
            # The newest revision, and every row that has none: only together do they tell which is the newest.
            # A join of hashes: ranking the revisions would sort all of them.
            query = (
                f"SELECT {columns} FROM state JOIN (SELECT key AS of, max(revision) AS newest FROM state "
                f"WHERE {self._mine} AND {predicate} GROUP BY key) ON key = of "
                f"AND (revision = newest OR revision IS NULL) WHERE {self._mine} AND {predicate}"
            )
        found = QueryBuilder().register("state", handle.table).execute(query)
        return newest_of_each(COLUMNS.lists_of(found.read_all()))

    def _holds(self, handle: Handle, row: Mapping[str, Any]) -> bool:
        found = self.table.rows(handle, f"{self._is(row['key'])} AND revision = {row['revision']}")
        return any(all(other[name] == row[name] for name in COLUMNS.kinds) for other in found)

    def _is(self, key: str) -> str:
        return f"key = {sql(key)} AND {self._mine}"

    def _fence(self, key: str) -> str:
        return self._fence_prefix + key
