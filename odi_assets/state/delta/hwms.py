"""High-water marks in Delta: ``meta_state`` as a log of revisions per key.

A write looks up its key's newest revision and appends the next one, fenced by an app transaction of that key alone:
writers of different keys never meet, and of two writers of one key the second starts over from a fresh look.

Odibi's ``set_hwm`` is a MERGE that rewrites ``value``, ``environment`` and ``updated_at`` of every row of the key and
leaves our columns as they are. So each row of ours says twice when it was written: one whose ``updated_at`` is no
longer its ``written_at`` was written over, whatever its type, its tombstone and its revision still say. A row without a
revision is another tool's from the start. Both count as a revision of their own, untyped, after the one they follow.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from deltalake import Transaction

from odi_assets.connections.location import Location
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.state.backend import HISTORY_KEPT, KeyChange
from odi_assets.state.delta.system_columns import Columns, as_rows
from odi_assets.state.delta.table import SystemTable, in_environment, query, sql
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import decode, encode
from odi_assets.util.lazy import pa

COLUMNS = Columns(
    {
        "key": "string",
        "value": "string",
        "environment": "string",
        "updated_at": "timestamp",
        "value_type": "string",
        "revision": "long",
        "deleted": "boolean",
        "target_commit": "long",
        "run_id": "string",
        "written_at": "timestamp",
        "origin": "string",
    },
    ours=("value_type", "revision", "deleted", "target_commit", "run_id", "written_at", "origin"),
)
INDEXED = ("key", "environment", "updated_at", "revision")
_FEW_KEYS = 50
_NEWEST_FIRST = "revision DESC NULLS LAST, updated_at DESC NULLS LAST"
_NEVER = datetime.min.replace(tzinfo=UTC)


Foreign = tuple[HwmEntry, str | None]
"""What another tool set: the entry that it counts as, and its JSON as the tool wrote it."""


class HwmLog(SystemTable):
    """The revisions of the keys of one environment.

    Attributes:
        fence_prefix: with a key, the app transaction whose number is the key's newest revision.
    """

    takes_odibis = False

    def __init__(self, location: Location, environment: str | None) -> None:
        super().__init__(location, COLUMNS, INDEXED)
        self.environment = environment
        self._mine = in_environment(environment)
        self.fence_prefix = f"odi/hwm/{quote(environment or '', safe='')}/"

    def latest(self, key: str) -> HwmEntry | None:
        """The newest revision of ``key``, a tombstone too; None if it was never set."""
        return newest_of_each(self.read(lambda handle: self._newest_rows(handle, [key])) or {}).get(key)

    def latest_of_all(self) -> list[HwmEntry]:
        """The newest revision of every key, tombstones too, in order of the keys."""
        entries = newest_of_each(self.read(lambda handle: self._newest_rows(handle, None)) or {})
        return [entries[key] for key in sorted(entries)]

    def stamp(self) -> Hashable | None:
        """What is another one whenever :meth:`latest_of_all` gives something else; None where that is not known."""
        handle = self.open()
        if handle is None:
            return None
        with handle.calls("listing the files of a system table"):
            # Two logs may have the same versions, where one was copied and both went on; files have names of their own.
            return self.uri, self.environment, handle.version, tuple(sorted(handle.table.file_uris()))

    def history(self, key: str) -> list[HwmEntry]:
        """Every revision of ``key`` that is kept, newest first."""
        return revisions(self.read(lambda handle: self.rows(handle, self._is(key))) or [])

    def histories(self) -> dict[str, list[HwmEntry]]:
        """What :meth:`history` gives, of every key, in order of the keys."""
        return revisions_by_key(self.read(lambda handle: self.rows(handle, self._mine)) or [])

    def append(self, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        """Make all changes or none, each checked against the revision that it follows; one attempt.

        Raises:
            CommitConflict: another writer of one of the keys came between; nothing was written.
            OdiError: a check refused its change; nothing was written.
        """
        return self.write(lambda handle: self._append(handle, changes))

    def check(self, changes: Sequence[KeyChange]) -> None:
        """Look whether all changes could be made now.

        Raises:
            OdiError: a check refuses its change.
        """
        self.read(lambda handle: self._entries(handle, changes))

    def mirror(self, keys: Collection[str]) -> int:
        """Write the keys' newest revisions into another tool's table, where there is one; how many it lacked."""
        del keys
        return 0

    def rows_to_keep(self, handle: TableHandle, files: Sequence[LiveFile]) -> pa.Table:
        """What a compaction keeps, of all environments: the newest revisions of each key, and as many rows that other
        tools added, in order of the keys."""
        del files
        stream = query(
            handle,
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY environment, key, "
            f"revision IS NULL ORDER BY {_NEWEST_FIRST}) AS nth FROM state) WHERE nth <= {HISTORY_KEPT} "
            "ORDER BY environment, key, revision",
        )
        # Not pa.table(): that imports pandas.
        rows = pa.RecordBatchReader.from_stream(stream).read_all().drop_columns("nth")
        return rows.cast(pa.schema(handle.table.schema().to_arrow()))

    def _append(self, handle: TableHandle, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        with handle.calls("reading a system table"):
            entries, before = self._entries(handle, changes)
        added = to_add(entries, changes, before, self.environment)
        last = {name: items[-1] for name, items in added.items()}
        fences = [Transaction(self.fence_prefix + entry.key, entry.revision) for entry in entries]
        return self.append_rows(handle, COLUMNS.to_arrow(added), fences, lambda now: self._holds(now, last), entries)

    def _entries(
        self, handle: TableHandle, changes: Sequence[KeyChange]
    ) -> tuple[list[HwmEntry], Mapping[str, Sequence[Foreign]]]:
        """The entries that the changes make; and by key what another tool set before, if no row of ours has it."""
        latest = newest_of_each(self._newest_rows(handle, [change.key for change in changes]))
        now = datetime.now(UTC)
        return [change.entry_after(latest.get(change.key), self.environment, now) for change in changes], {}

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _newest_rows(self, handle: TableHandle, keys: Sequence[str] | None) -> dict[str, list[Any]]:
        """Rows that tell the newest revision of each of ``keys``, or of all; column by column."""
        if keys is None or len(keys) > _FEW_KEYS:
            return self._newest_rows_where(handle, "TRUE")
        if len(keys) > 1:
            return self._newest_rows_where(handle, f"key IN ({', '.join(map(sql, keys))})")
        fenced = handle.table.transaction_version(self.fence_prefix + keys[0])
        if fenced is not None:
            # The fence is the newest revision, and statistics name its file: one small file is read, whatever there is.
            columns = self.lists(handle, f"{self._is(keys[0])} AND (revision >= {fenced} OR revision IS NULL)")
            if any(revision is not None for revision in columns["revision"]):
                return columns
        return self.lists(handle, self._is(keys[0]))

    def _newest_rows_where(self, handle: TableHandle, predicate: str) -> dict[str, list[Any]]:
        columns = ", ".join(name for name in COLUMNS.kinds if name in handle.columns)
        # The newest revision, and every row that has none: only together do they tell which is the newest.
        # A join of hashes: ranking the revisions would sort all of them.
        wanted = (
            f"SELECT {columns} FROM state JOIN (SELECT key AS of, max(revision) AS newest FROM state "
            f"WHERE {self._mine} AND {predicate} GROUP BY key) ON key = of "
            f"AND (revision = newest OR revision IS NULL) WHERE {self._mine} AND {predicate}"
        )
        return COLUMNS.lists(query(handle, wanted))

    def _holds(self, handle: TableHandle, row: Mapping[str, Any]) -> bool:
        return row in self.rows(handle, f"{self._is(row['key'])} AND revision = {row['revision']}")

    def _is(self, key: str) -> str:
        return f"key = {sql(key)} AND {self._mine}"


# -- rows as revisions -------------------------------------------------------------------------------------------------


def revisions(rows: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
    """The revisions that the rows of one key tell, newest first.

    Rows that one MERGE wrote over are one revision: what they held before is gone.
    """
    numbered = sorted((row for row in rows if row["revision"] is not None), key=_by_revision, reverse=True)
    ours: list[HwmEntry] = []
    merges: set[datetime] = set()
    for row in numbered:
        if not _written_over(row):
            ours.append(_own(row))
        elif _written(row) not in merges:
            merges.add(_written(row))
            ours.append(_foreign(row, row["revision"] + 1))
    return _with_unnumbered(ours, [row for row in rows if row["revision"] is None and _written(row) not in merges])


def revisions_by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[HwmEntry]]:
    """The revisions that rows tell, newest first, by key, in order of the keys."""
    by_key = groupby(sorted(rows, key=itemgetter("key")), itemgetter("key"))
    return {key: revisions(list(same)) for key, same in by_key}


def newest_of_each(columns: Mapping[str, Sequence[Any]]) -> dict[str, HwmEntry]:
    """The newest revision that the rows of each key tell; all rows of the keys, column by column."""
    keys = columns.get("key")
    if not keys:
        return {}
    if len(set(keys)) == len(keys) and not _any_foreign(columns):
        own = {**columns, "value": _decoded(columns), "deleted": [bool(deleted) for deleted in columns["deleted"]]}
        entries = map(HwmEntry._make, zip(*(own[name] for name in HwmEntry._fields), strict=True))
        return dict(zip(keys, entries, strict=True))
    return {key: key_entries[0] for key, key_entries in revisions_by_key(as_rows(columns)).items()}


def to_add(
    entries: Sequence[HwmEntry],
    changes: Sequence[KeyChange],
    before: Mapping[str, Sequence[Foreign]],
    environment: str | None,
) -> dict[str, Sequence[Any]]:
    """The rows that the changes add, with the older revisions that they bring along and what another tool set
    ``before`` them; column by column."""
    added: list[HwmEntry] = []
    texts: list[str | None] = []
    for entry, change in zip(entries, changes, strict=True):
        for foreign, text in before.get(entry.key, ()):
            added.append(foreign)
            texts.append(text)
        for older in change.move.older if change.move is not None else ():
            added.append(older._replace(environment=environment))
            texts.append(None if older.deleted else encode(older.value).json)
        added.append(entry)
        texts.append(None if entry.deleted else change.encoded.json)
    columns = dict(zip(HwmEntry._fields, zip(*added, strict=True), strict=True))
    return {**columns, "value": texts, "written_at": columns["updated_at"]}


def _any_foreign(columns: Mapping[str, Sequence[Any]]) -> bool:
    if None in columns["revision"] or None in columns["updated_at"]:
        return True
    pairs = zip(columns["written_at"], columns["updated_at"], strict=True)
    return any(written is not None and written != updated for written, updated in pairs)


def _decoded(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    parts = zip(columns["value"], columns["value_type"], columns["deleted"], strict=True)
    return [None if deleted else decode(text, kind) for text, kind, deleted in parts]


def _with_unnumbered(ours: list[HwmEntry], unnumbered: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
    """Rows without a revision have nothing but their time to say where they belong, and fill the numbers left there."""
    waiting = sorted(unnumbered, key=_written)
    newer = [row for row in waiting if not ours or _written(row) > ours[0].updated_at]
    first = ours[0].revision + 1 if ours else 0
    entries = [_foreign(row, first + offset) for offset, row in enumerate(newer)][::-1]
    del waiting[len(waiting) - len(newer) :]
    for entry, before in zip_longest(ours, ours[1:]):
        entries.append(entry)
        number = entry.revision
        while waiting and (before is None or _written(waiting[-1]) > before.updated_at):
            number -= 1
            taken = before is not None and number <= before.revision
            entries.append(_foreign(waiting.pop(), 0 if taken else max(number, 0)))
    return entries


def _by_revision(row: Mapping[str, Any]) -> tuple[int, datetime]:
    return row["revision"], _written(row)


def _written(row: Mapping[str, Any]) -> datetime:
    return row["updated_at"] or _NEVER


def _written_over(row: Mapping[str, Any]) -> bool:
    return row["written_at"] is not None and row["updated_at"] != row["written_at"]


def _own(row: Mapping[str, Any]) -> HwmEntry:
    deleted = bool(row["deleted"])
    value = None if deleted else decode(row["value"], row["value_type"])
    stored = {name: row[name] for name in HwmEntry._fields}
    return HwmEntry(**{**stored, "value": value, "updated_at": _written(row), "deleted": deleted})


def _foreign(row: Mapping[str, Any], revision: int) -> HwmEntry:
    return HwmEntry(row["key"], decode(row["value"], None), row["environment"], _written(row), revision)
