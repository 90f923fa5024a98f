"""High-water marks in Delta: ``meta_state`` as a log of revisions per key.

A write looks up its key's newest revision and appends the next one, fenced by an app transaction of that key alone:
writers of different keys never meet, and of two writers of one key the second starts over from a fresh look.

Odibi's ``set_hwm`` is a MERGE that rewrites ``value``, ``environment`` and ``updated_at`` of every row of the key and
leaves our columns as they are. So each row of ours says twice when it was written: one whose ``updated_at`` is no
longer its ``written_at`` was written over, whatever its type, its tombstone and its revision still say. A row without a
revision is another tool's from the start. Both count as a revision of their own, untyped, after the one they follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltalake import Transaction

from odi_assets.connections.location import Location
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.state import values
from odi_assets.state.backend import HISTORY_KEPT, Change
from odi_assets.state.delta.columns import Columns
from odi_assets.state.delta.table import SystemTable, in_environment, query, sql
from odi_assets.state.records import HwmEntry

if TYPE_CHECKING:
    import pyarrow as pa

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
    }
)
INDEXED = ("key", "environment", "updated_at", "revision")
_FEW_KEYS = 50
_NEWEST_FIRST = "revision DESC NULLS LAST, updated_at DESC NULLS LAST"
_NEVER = datetime.min.replace(tzinfo=UTC)


class HwmLog:
    """The revisions of the keys of one environment."""

    def __init__(self, location: Location, environment: str | None) -> None:
        self.table = SystemTable(location, COLUMNS, INDEXED)
        self.environment = environment
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

    def append(self, changes: Sequence[Change]) -> tuple[TableHandle | None, list[HwmEntry]]:
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

    def _append(self, handle: TableHandle, changes: Sequence[Change]) -> tuple[TableHandle, list[HwmEntry]]:
        with handle.calls("reading a system table"):
            entries = self._entries(handle, changes)
        added, texts = self._to_add(entries, changes)
        fences = [Transaction(self._fence_prefix + entry.key, entry.revision) for entry in entries]
        rows = COLUMNS.to_arrow(columns_of(added, texts))
        return self.table.append(
            handle, rows, fences, lambda now: self._holds(now, row_of(added[-1], texts[-1])), (handle, entries)
        )

    def _to_add(self, entries: Sequence[HwmEntry], changes: Sequence[Change]) -> tuple[list[HwmEntry], list[str]]:
        """The revisions that the changes add, with the older ones that they bring along, and the JSON of the values."""
        added: list[HwmEntry] = []
        texts: list[str] = []
        for entry, change in zip(entries, changes, strict=True):
            for older in change.older:
                added.append(older._replace(environment=self.environment))
                texts.append(values.encode(older.value).json)
            added.append(entry)
            texts.append(change.encoded.json)
        return added, texts

    def rows_to_keep(self, handle: TableHandle, _files: Sequence[LiveFile]) -> pa.Table:
        """What a compaction keeps, of all environments: the newest revisions of each key, and as many rows that other
        tools added, in order of the keys."""
        import pyarrow as pa

        found = query(
            handle,
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY environment, key, "
            f"revision IS NULL ORDER BY {_NEWEST_FIRST}) AS nth FROM state) WHERE nth <= {HISTORY_KEPT} "
            "ORDER BY environment, key, revision",
        )
        # Not pa.table(): that imports pandas.
        rows = pa.RecordBatchReader.from_stream(found).read_all().drop_columns("nth")
        return rows.cast(pa.schema(handle.table.schema().to_arrow()))

    def _entries(self, handle: TableHandle, changes: Sequence[Change]) -> list[HwmEntry]:
        latest = self._latest_of_these(handle, [change.key for change in changes])
        now = datetime.now(UTC)
        return [change.entry_after(latest.get(change.key), self.environment, now) for change in changes]

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _latest_of_these(self, handle: TableHandle, keys: Sequence[str]) -> dict[str, HwmEntry]:
        if len(keys) == 1:
            entry = self._latest_of(handle, keys[0])
            return {} if entry is None else {keys[0]: entry}
        if len(keys) <= _FEW_KEYS:
            return self._latest_by_key(handle, f"key IN ({', '.join(map(sql, keys))})")
        return self._latest_by_key(handle, "TRUE")

    def _latest_of(self, handle: TableHandle, key: str) -> HwmEntry | None:
        fenced = handle.table.transaction_version(self._fence_prefix + key)
        if fenced is not None and "revision" in handle.columns:
            # The fence tells the newest revision, and statistics its file: one small file is read, whatever there is.
            rows = self.table.rows(handle, f"{self._is(key)} AND (revision >= {fenced} OR revision IS NULL)")
            if any(row["revision"] is not None for row in rows):
                return newest(rows)
        return newest(self.table.rows(handle, self._is(key)))

    def _latest_by_key(self, handle: TableHandle, predicate: str) -> dict[str, HwmEntry]:
        columns = ", ".join(name for name in COLUMNS.kinds if name in handle.columns)
        wanted = f"SELECT {columns} FROM state WHERE {self._mine} AND {predicate}"
        if "revision" in handle.columns:
            # The newest revision, and every row that has none: only together do they tell which is the newest.
            # A join of hashes: ranking the revisions would sort all of them.
            wanted = (
                f"SELECT {columns} FROM state JOIN (SELECT key AS of, max(revision) AS newest FROM state "
                f"WHERE {self._mine} AND {predicate} GROUP BY key) ON key = of "
                f"AND (revision = newest OR revision IS NULL) WHERE {self._mine} AND {predicate}"
            )
        return newest_of_each(COLUMNS.lists(query(handle, wanted)))

    def _holds(self, handle: TableHandle, row: Mapping[str, Any]) -> bool:
        found = self.table.rows(handle, f"{self._is(row['key'])} AND revision = {row['revision']}")
        return any(all(other[name] == row[name] for name in COLUMNS.kinds) for other in found)

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


def newest(rows: Sequence[Mapping[str, Any]]) -> HwmEntry | None:
    """The newest revision that the rows of one key tell; None if there are no rows."""
    if not rows:
        return None
    if len(rows) == 1 and rows[0]["revision"] is not None and not _written_over(rows[0]):
        return _own(rows[0])
    return revisions(rows)[0]


def newest_of_each(columns: Mapping[str, Sequence[Any]]) -> dict[str, HwmEntry]:
    """The newest revision that the rows of each key tell; all rows of the keys, column by column."""
    keys = columns["key"]
    if len(set(keys)) == len(keys) and not _any_foreign(columns):
        own = {**columns, "value": _decoded(columns), "deleted": [bool(deleted) for deleted in columns["deleted"]]}
        entries = map(HwmEntry._make, zip(*(own[name] for name in HwmEntry._fields), strict=True))
        return dict(zip(keys, entries, strict=True))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows.sort(key=itemgetter("key"))
    return {key: revisions(list(same))[0] for key, same in groupby(rows, itemgetter("key"))}


def row_of(entry: HwmEntry, value: str) -> dict[str, Any]:
    """The row of a revision of ours; ``value`` is its JSON."""
    return {**entry._asdict(), "value": None if entry.deleted else value, "written_at": entry.updated_at}


def columns_of(entries: Sequence[HwmEntry], texts: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The rows of revisions of ours, at least one, column by column; ``texts`` are the JSON of their values."""
    columns: dict[str, Sequence[Any]] = dict(zip(HwmEntry._fields, zip(*entries, strict=True), strict=True))
    stored = [None if deleted else text for deleted, text in zip(columns["deleted"], texts, strict=True)]
    return {**columns, "value": stored, "written_at": columns["updated_at"]}


def _any_foreign(columns: Mapping[str, Sequence[Any]]) -> bool:
    if None in columns["revision"] or None in columns["updated_at"]:
        return True
    pairs = zip(columns["written_at"], columns["updated_at"], strict=True)
    return any(written is not None and written != updated for written, updated in pairs)


def _decoded(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    parts = zip(columns["value"], columns["value_type"], columns["deleted"], strict=True)
    return [None if deleted else values.decode(text, kind) for text, kind, deleted in parts]


def _with_unnumbered(ours: list[HwmEntry], unnumbered: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
    """Rows without a revision have nothing but their time to say where they belong, and fill the numbers left there."""
    waiting = sorted(unnumbered, key=_written)
    newer = [row for row in waiting if not ours or _written(row) > ours[0].updated_at]
    first = ours[0].revision + 1 if ours else 0
    found = [_foreign(row, first + place) for place, row in enumerate(newer)][::-1]
    del waiting[len(waiting) - len(newer) :]
    for entry, before in zip_longest(ours, ours[1:]):
        found.append(entry)
        number = entry.revision
        while waiting and (before is None or _written(waiting[-1]) > before.updated_at):
            number -= 1
            taken = before is not None and number <= before.revision
            found.append(_foreign(waiting.pop(), 0 if taken else max(number, 0)))
    return found


def _by_revision(row: Mapping[str, Any]) -> tuple[int, datetime]:
    return row["revision"], _written(row)


def _written(row: Mapping[str, Any]) -> datetime:
    return row["updated_at"] or _NEVER


def _written_over(row: Mapping[str, Any]) -> bool:
    return row["written_at"] is not None and row["updated_at"] != row["written_at"]


def _own(row: Mapping[str, Any]) -> HwmEntry:
    deleted = bool(row["deleted"])
    value = None if deleted else values.decode(row["value"], row["value_type"])
    stored = {name: row[name] for name in HwmEntry._fields}
    return HwmEntry(**{**stored, "value": value, "updated_at": _written(row), "deleted": deleted})


def _foreign(row: Mapping[str, Any], revision: int) -> HwmEntry:
    return HwmEntry(row["key"], values.decode(row["value"], None), row["environment"], _written(row), revision)
