"""High-water marks in a ``meta_state`` that Odibi made and goes on using.

Odibi has four columns, and one row per key whatever the environment; on Spark it fails on more of either. So its table
stays as it is: our revisions are a log of ours beside it, ``meta_state_revisions``, and the key's row in Odibi's table
repeats the newest revision.

A write is two commits: the revision, which is what counts, and then Odibi's row, on the very version of Odibi's table
that was looked at. The second carries the revision's number as an app transaction of the key. So whoever looks at both
tables later knows what Odibi's row should be, and sees the difference:

* Our newest revision has a higher number: a writer died between its commits. The row is written again by whoever reads
  or writes the key next, and by maintenance.
* The row is none of our revisions since that number: Odibi wrote it afterwards, and it counts, as the next revision.
* There is no row, and no revision since that number is a deletion: Odibi removed it, and the key is deleted.
* The row is another environment's: Odibi has no room for ours, and the revisions alone count.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

from deltalake import CommitProperties, Transaction, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.errors import CommitConflict, UnsupportedFeatureError
from odi_assets.delta.retry import raced
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.state.backend import KeyChange
from odi_assets.state.delta.hwms import (
    Foreign,
    HwmLog,
    newest_of_each,
)
from odi_assets.state.delta.spark import through_spark
from odi_assets.state.delta.system_columns import Columns, by_column
from odi_assets.state.delta.table import OtherLayout, SystemTable, in_environment, sql
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import decode

_log = logging.getLogger(__name__)

COLUMNS = Columns({"key": "string", "value": "string", "environment": "string", "updated_at": "timestamp"})
_FEW_KEYS = 50
_NEVER = datetime.min.replace(tzinfo=UTC)


def revisions_beside(location: Location) -> Location:
    """Where our revisions are of the ``meta_state`` at ``location`` that Odibi made."""
    return replace(location, uri=f"{location.uri.rstrip('/')}_revisions")


def mark_of(environment: str | None, key: str) -> str:
    """The app transaction of Odibi's table whose number is the revision that the key's row was last written from."""
    return f"odi/mirror/{quote(environment or '', safe='')}/{key}"


class Row(NamedTuple):
    """A row of Odibi's table, but for its key."""

    value: str | None
    environment: str | None
    updated_at: datetime


@dataclass(frozen=True)
class OdibiRows:
    """Odibi's table at one version.

    Attributes:
        rows: by key. Several of a key are no doing of Odibi's.
    """

    handle: TableHandle
    rows: Mapping[str, Sequence[Row]]

    def of(self, key: str, environment: str | None) -> list[Row]:
        """The rows of a key of an environment, the one that Odibi takes last."""
        mine = [row for row in self.rows.get(key, ()) if row.environment == environment]
        return sorted(mine, key=lambda row: row.updated_at)

    def takes(self, key: str, environment: str | None) -> bool:
        """Whether there is room for the key's row of an environment."""
        known = environment is None or "environment" in _columns(self.handle)
        return known and all(row.environment == environment for row in self.rows.get(key, ()))

    def mark(self, key: str, environment: str | None) -> int:
        """The revision that the key's row was last written from; 0 if it never was."""
        return self.handle.transaction_number(mark_of(environment, key))


class OdibiTable(SystemTable):
    """Odibi's ``meta_state``."""

    def __init__(self, location: Location) -> None:
        super().__init__(location, COLUMNS, ())

    def look(self, keys: Collection[str] | None) -> OdibiRows:
        """The rows of ``keys``, or of all.

        Raises:
            OtherLayout: Odibi's table is not there any more.
            StateError: it cannot be read, or is no table of Odibi's.
        """
        look = self.read(lambda handle: OdibiRows(handle, self._rows_of(handle, keys)))
        if look is None:
            raise OtherLayout(f"Odibi's table at {self.uri} is gone", uri=self.uri)
        return look

    def put(self, look: OdibiRows, entries: Sequence[HwmEntry], rows: Sequence[Mapping[str, Any]]) -> None:
        """Make ``rows`` the only ones of the entries' keys, unless the table was changed since the look.

        Raises:
            CommitConflict: it was; nothing was written.
            StateError: nothing was written.
        """
        handle, environment = look.handle, entries[0].environment
        which = f"key IN ({', '.join(sql(entry.key) for entry in entries)})"
        if "environment" in _columns(handle):
            which += f" AND {in_environment(environment)}"
        lists = by_column(rows) if rows else dict.fromkeys(COLUMNS.kinds, ())
        names = _columns(handle)
        marks = [Transaction(mark_of(environment, entry.key), entry.revision) for entry in entries]
        with handle.calls("writing a high-water mark into Odibi's table"):
            write_deltalake(
                handle.table,
                COLUMNS.to_arrow(lists).select(names),
                mode="overwrite",
                predicate=which,
                schema_mode="merge" if handle.columns.keys() - set(names) else None,
                commit_properties=CommitProperties(app_transactions=marks, max_commit_retries=0),
            )

    def _rows_of(self, handle: TableHandle, keys: Collection[str] | None) -> dict[str, list[Row]]:
        if not {"key", "value"} <= handle.columns.keys():
            raise StateError(
                f"the table at {self.uri} holds no high-water marks: it has neither our columns nor Odibi's",
                fix="name the place of meta_state in `system`, or move the table away",
                uri=self.uri,
            )
        if "revision" in handle.columns:
            raise OtherLayout(f"the table at {self.uri} is Odibi's no more", uri=self.uri)
        few = keys is not None and len(keys) <= _FEW_KEYS
        table_rows = self.rows(handle, f"key IN ({', '.join(map(sql, keys or ()))})" if few else "TRUE")
        rows: dict[str, list[Row]] = {}
        for row in table_rows:
            if row["key"] is not None:
                rows.setdefault(row["key"], []).append(
                    Row(row["value"], row["environment"], row["updated_at"] or _NEVER)
                )
        return rows


class _KeyInBothTables(NamedTuple):
    """What both tables tell of a key.

    Attributes:
        entry: the newest revision, whoever set it, a tombstone too; None if it was never set.
        text: its value as it is stored.
        foreign: what Odibi set since our newest revision, oldest first.
        due: Odibi's table lacks the newest revision.
    """

    entry: HwmEntry | None
    text: str | None = None
    foreign: tuple[Foreign, ...] = ()
    due: bool = False


class OdibiHwmLog(HwmLog):
    """The revisions of the keys of one environment, beside Odibi's table."""

    def __init__(self, log: HwmLog, odibi: OdibiTable | None = None) -> None:
        super().__init__(revisions_beside(log.location), log.environment)
        self.odibi = odibi or OdibiTable(log.location)

    def latest(self, key: str) -> HwmEntry | None:
        key_state = self._now([key]).get(key, _KeyInBothTables(None))
        if key_state.due:
            self._repair(key)
        return key_state.entry

    def latest_of_all(self) -> list[HwmEntry]:
        key_states = self._now(None)
        return [entry for key in sorted(key_states) if (entry := key_states[key].entry) is not None]

    def stamp(self) -> None:
        """Two tables decide."""

    def history(self, key: str) -> list[HwmEntry]:
        key_state = self._now([key]).get(key, _KeyInBothTables(None))
        return [*_newest_first(key_state.foreign), *super().history(key)]

    def histories(self) -> dict[str, list[HwmEntry]]:
        key_states, own = self._now(None), super().histories()
        return {key: [*_newest_first(key_states[key].foreign), *own.get(key, ())] for key in sorted(key_states)}

    def environments(self) -> set[str | None]:
        return super().environments() | self.odibi.environments()

    def check(self, changes: Sequence[KeyChange]) -> None:
        key_states = self._now([change.key for change in changes])
        self._next(key_states, changes)

    def mirror(self, keys: Collection[str] | None = None) -> int:
        """Write what Odibi's table lacks of ``keys``, or of all; how many keys that was.

        Raises:
            CommitConflict: others kept changing Odibi's table.
            StateError: it cannot be written.
        """
        wanted = [keys]

        def attempt() -> int:
            # After a lost race all that is due: of many writers one then does the work of the others.
            these = wanted.pop() if wanted else None
            return self._mirror(these)

        return raced(attempt, lost=lambda error: isinstance(error, CommitConflict))

    def maintain(self, *, dry_run: bool = False) -> dict[str, int]:
        due = sum(key_state.due for key_state in self._now(None).values()) if dry_run else self.mirror()
        return {**super().maintain(dry_run=dry_run), "rows_mirrored": due}

    def _mirror(self, keys: Collection[str] | None) -> int:
        look = self.odibi.look(keys)
        key_states = self._beside(look, keys)
        due = [
            (key_state.entry, key_state.text) for key_state in key_states.values() if key_state.due and key_state.entry
        ]
        if due:
            rows = [{**entry._asdict(), "value": text} for entry, text in due if not entry.deleted]
            self.odibi.put(look, [entry for entry, _ in due], rows)
        return len(due)

    def _repair(self, key: str) -> None:
        try:
            self.mirror([key])
            _log.info("the row of `%s` in Odibi's table %s lacked our newest revision", key, self.odibi.uri)
        except StateError as error:
            # Who reads a key has it: Odibi's row can wait for one who may write.
            _log.warning("the row of `%s` in Odibi's table is older than its high-water mark: %s", key, error.message)

    def _entries(
        self, handle: TableHandle, changes: Sequence[KeyChange]
    ) -> tuple[list[HwmEntry], Mapping[str, Sequence[Foreign]]]:
        keys = [change.key for change in changes]
        key_states = self._decided(handle, self.odibi.look(keys), keys)
        before = {key: key_state.foreign for key, key_state in key_states.items()}
        return self._next(key_states, changes), before

    def _next(self, key_states: Mapping[str, _KeyInBothTables], changes: Sequence[KeyChange]) -> list[HwmEntry]:
        now = datetime.now(UTC)
        return [
            change.entry_after(key_states.get(change.key, _KeyInBothTables(None)).entry, self.environment, now)
            for change in changes
        ]

    # -- what both tables tell ----------------------------------------------------------------------------------------

    def _now(self, keys: Collection[str] | None) -> dict[str, _KeyInBothTables]:
        return self._beside(self.odibi.look(keys), keys)

    def _beside(self, look: OdibiRows, keys: Collection[str] | None) -> dict[str, _KeyInBothTables]:
        # Odibi's table was looked at before our log is: whatever its rows were written from, the log has it.
        key_states = self.read(lambda handle: self._decided(handle, look, keys))
        return self._decided(None, look, keys) if key_states is None else key_states

    def _decided(
        self, handle: TableHandle | None, look: OdibiRows, keys: Collection[str] | None
    ) -> dict[str, _KeyInBothTables]:
        lists = {} if handle is None else self._newest_rows(handle, None if keys is None else list(keys))
        own = newest_of_each(lists)
        texts = dict(zip(lists.get("key", ()), lists.get("value", ()), strict=True))
        wanted = own.keys() | look.rows.keys() if keys is None else set(keys)
        doubtful = [key for key in own if key in wanted and not self._is_in_row(look, own[key], texts[key])]
        older = self._rows_of(handle, doubtful) if handle is not None and doubtful else {}
        decided = ((key, self._found(look, key, own.get(key), texts.get(key), older.get(key, ()))) for key in wanted)
        return {key: key_state for key, key_state in decided if key_state.entry is not None}

    def _is_in_row(self, look: OdibiRows, entry: HwmEntry, text: str | None) -> bool:
        rows = look.of(entry.key, self.environment)
        return bool(rows) and not entry.deleted and _is(rows[-1], text, entry.updated_at)

    def _rows_of(self, handle: TableHandle, keys: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        which = f" AND key IN ({', '.join(map(sql, keys))})" if len(keys) <= _FEW_KEYS else ""
        rows_by_key: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows(handle, self._mine + which):
            rows_by_key.setdefault(row["key"], []).append(row)
        return rows_by_key

    def _found(
        self,
        look: OdibiRows,
        key: str,
        own: HwmEntry | None,
        text: str | None,
        older: Sequence[Mapping[str, Any]],
    ) -> _KeyInBothTables:
        rows, mark = look.of(key, self.environment), look.mark(key, self.environment)
        since = [own_row for own_row in older if own_row["revision"] >= mark]
        latest = max(mark, own.revision if own is not None else -1)
        if rows:
            if own is not None and self._is_in_row(look, own, text):
                return _KeyInBothTables(own, text)
            new = [
                row for row in rows if not any(_is(row, own_row["value"], own_row["updated_at"]) for own_row in since)
            ]
            if rows[-1] not in new:
                return _KeyInBothTables(own, text, due=True)
            # Where there is neither mark nor revision, Odibi alone has ever set the key: it begins with revision 0.
            first = latest + 1 if own is not None or mark else 0
            return _set_by_odibi(key, self.environment, new, first)
        if not look.takes(key, self.environment) or (own is not None and own.deleted):
            return _KeyInBothTables(own, text)
        if not mark or any(own_row["deleted"] for own_row in since):
            return _KeyInBothTables(own, text, due=own is not None)
        moment = own.updated_at + timedelta(microseconds=1) if own is not None else _NEVER
        gone = HwmEntry(key, None, self.environment, moment, latest + 1, deleted=True)
        return _KeyInBothTables(gone, None, ((gone, None),))


def _columns(handle: TableHandle) -> list[str]:
    """Odibi's columns that can be written: its first write with newer versions of deltalake makes one of no type."""
    return [name for name in COLUMNS.kinds if handle.columns.get(name, "void") != "void"]


def _is(row: Row, text: str | None, updated_at: datetime) -> bool:
    return (row.value, row.updated_at) == (text, updated_at)


def _set_by_odibi(key: str, environment: str | None, rows: Sequence[Row], first: int) -> _KeyInBothTables:
    foreign = tuple(
        (HwmEntry(key, decode(row.value, None), environment, row.updated_at, number), row.value)
        for number, row in enumerate(rows, first)
    )
    return _KeyInBothTables(*foreign[-1], foreign)


def _newest_first(foreign: Sequence[Foreign]) -> list[HwmEntry]:
    return [entry for entry, _ in reversed(foreign)]


def another(log: Any, present: Any, error: UnsupportedFeatureError, spark: Any) -> Any:
    """What to use for a table that ``present``, which is used for ``log``'s table, could not handle. Spark is for
    tables of ours alone: a ``meta_state`` of Odibi's with such features is refused.

    Args:
        error: what it said.
        spark: a session; None if there is none.

    Raises:
        UnsupportedFeatureError: ``error``; nothing else can handle the table either.
    """
    if isinstance(error, OtherLayout):
        return log if isinstance(present, OdibiHwmLog) else OdibiHwmLog(log)
    if spark is None or present is not log:
        raise error

    _log.info("%s; going on through Spark", error.message)
    return through_spark(log, spark)
