"""What tables must hold: the database's own texts, and the change log applied by a few lines of Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

Row = dict[str, str | None]
Rows = dict[tuple[str | None, ...], Row]
_ARROW = {
    "integer": "int32",
    "bigint": "int64",
    "text": "string",
    "numeric(10,2)": "decimal128(10, 2)",
    "timestamp with time zone": "timestamp[us, tz=UTC]",
    "boolean": "bool",
    "int(11)": "int32",
    "int": "int32",
    "bigint(20)": "int64",
    "decimal(10,2)": "decimal128(10, 2)",
    "datetime": "timestamp[us]",
}
"""Types that tables have for types of the database; for all others, text."""


@dataclass(frozen=True)
class DatabaseTable:
    """A table of the database: its columns with their types, and its rows by key, each value as its own text.

    Attributes:
        has_key: otherwise each row is its own key.
    """

    kinds: Mapping[str, str]
    rows: Rows
    has_key: bool


@dataclass
class Replay:
    """The change log, applied row by row.

    Attributes:
        last: the number of its last row.
        lsn: up to where changes were in commits before.
        tables: the rows of each table, by key.
    """

    last: int = 0
    lsn: int = 0
    tables: dict[str, Rows] = field(default_factory=dict)
    _shapes: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def take(self, log: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Take in what the log gained in a run, in the order of `n`; yields what is wrong with its order."""
        new = [row for row in log if row["n"] > self.last]
        if [row["n"] for row in new] != list(range(self.last + 1, self.last + 1 + len(new))):
            yield f"the numbers of the log have gaps above {self.last}"
        changes = [row["lsn"] for row in new if row["xid"] is not None]
        if changes and min(changes) <= self.lsn:
            yield f"the change at {min(changes)} is in the log, which had all up to {self.lsn}"
        self.last, self.lsn = self.last + len(new), max([self.lsn, *changes])
        gone: dict[str, Row] = {}
        for row in new:
            self._apply(row, gone)

    def _apply(self, row: Mapping[str, Any], gone: dict[str, Row]) -> None:
        name, op = row["table"], row["op"]
        if op == "s":
            self._shapes[name, row["shape"]] = [one["name"] for one in row["columns"]]
            self.tables.setdefault(name, {})
            return
        held = self.tables.setdefault(name, {})
        if op == "t":
            held.clear()
            return
        key = tuple(row["key"] or ())
        if op == "d":
            gone[name] = held.pop(key, {})
            return
        names = self._shapes[name, row["shape"]]
        values = dict(zip(names, row["after"], strict=True))
        former = gone.get(name, {}) if op == "c" else held.get(key, {})
        for place in row["unchanged"] or ():
            values[names[place]] = former.get(names[place], "(unknown)")
        held[key] = values


def log_differences(name: str, theirs: DatabaseTable, ours: Rows) -> Iterator[str]:
    """Where the log's rows of a table differ from the database's."""
    if not theirs.has_key:
        return
    for key in sorted({*theirs.rows, *ours}, key=str):
        there, here = theirs.rows.get(key), ours.get(key)
        if there != here:
            yield f"log of {name}, key {key}: the database has {_short(there)}, the log {_short(here)}"


def table_differences(name: str, theirs: DatabaseTable, ours: Any) -> Iterator[str]:
    """Where a node's table differs from the database's: columns, types and rows."""
    if ours is None:
        yield f"{name}: there is no table"
        return
    for column, kind in theirs.kinds.items():
        if column not in ours.column_names:
            yield f"{name}: there is no column {column}"
            return
        if str(ours.schema.field(column).type) != (wanted := _ARROW.get(kind, "string")):
            yield f"{name}: column {column} is {ours.schema.field(column).type}, not {wanted}"
    for column in set(ours.column_names) - set(theirs.kinds):
        if ours.column(column).null_count != ours.num_rows:
            yield f"{name}: column {column} is dropped in the database, and has values"
    held = ours.select(list(theirs.kinds)).to_pylist() if theirs.kinds else []
    yield from _row_differences(name, theirs.rows.values(), held)


def history_differences(name: str, theirs: DatabaseTable, history: Any, upto: int) -> Iterator[str]:
    """Where the rows that were current after a change, by a history, differ from the database's at that time.

    Columns that are gone since are not compared.
    """
    current: dict[tuple[str, ...], dict[str, Any]] = {}
    gone: dict[str, Any] = {}
    if history is None:
        yield f"{name}: there is no table"
        return
    for row in history.sort_by("_n").to_pylist():
        if row["_n"] > upto:
            break
        if row["_op"] == "t":
            current.clear()
        elif row["_op"] == "d":
            gone = current.pop(tuple(row["_key"]), {})
        else:
            key = tuple(row["_key"] or (str(row["_n"]),))
            former = gone if row["_op"] == "c" else current.get(key, {})
            current[key] = {**row, **{name: former.get(name) for name in row["_unchanged"] or ()}}
    kinds = [one for one in theirs.kinds if one in history.column_names]
    if theirs.has_key:
        wanted = [{one: row[one] for one in kinds} for row in theirs.rows.values()]
        yield from _row_differences(name, wanted, [{one: row[one] for one in kinds} for row in current.values()])


def _row_differences(name: str, theirs: Iterable[Row], ours: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Rows as texts that compare: a value of ours as the database's text of it."""
    wanted = sorted(str({one: _canonical(text) for one, text in row.items()}) for row in theirs)
    held = sorted(str({one: _text(value) for one, value in row.items()}) for row in ours)
    lacking, surplus = list(wanted), []
    for row in held:
        lacking.remove(row) if row in lacking else surplus.append(row)
    for row in lacking[:3]:
        yield f"{name} lacks {row[:200]} ({len(lacking)} rows)"
    for row in surplus[:3]:
        yield f"{name} has {row[:200]} ({len(surplus)} rows too many)"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return _canonical(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    return _canonical(f"{value:f}" if isinstance(value, Decimal) else str(value))


def _canonical(text: str | None) -> str | None:
    """The same text for times that differ in how they are written."""
    if text is None or len(text) < len("2024-01-01 00:00") or text[4:5] != "-":
        return text
    try:
        return datetime.fromisoformat(text).isoformat()
    except ValueError:
        return text


def _short(row: Row | None) -> str:
    return str({name: (value or "")[:20] if value is not None else None for name, value in row.items()} if row else row)
