"""How a table of a database is read so that no row and no change of one is left out.

Only a column that moves with each change of a row says which rows changed. A number that grows says which rows are
new, and nothing of changes: it is an increment for tables whose rows never change, which nobody but their owner knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.scaffold.catalog import CatalogTable, TableColumn
from odi_assets.sources.cursor.types import TypeName

_CHANGED = (
    r"(row|sys|system|dt|ts)?(last)?(updated?|modif(y|ied|ication)|changed?|mod)(date|time|datetime|timestamp|ts|utc)?"
    r"(at|on|utc)?|(date|time|ts|dt)(last)?(updated?|modified|changed)|mtime|writedate|systemmodstamp"
)
_CREATED = (
    r"(row|sys|system|dt|ts)?(created?|inserted|added|creation)(date|time|datetime|timestamp|ts|utc)?(at|on|utc)?"
    r"|(date|time|ts|dt)(created|added|inserted)|ctime"
)
_INSTANTS, _LOCAL = "timestamp", "timestamp_ntz"
_LAGS = {_INSTANTS: "10m", _LOCAL: "2h"}
"""How far increments look back, for rows that are committed late; where a time has no zone, also over the hour that a
clock is put back."""
_NUMBERS_BACK = 10_000
"""How far increments by a number look back: numbers are given out before their rows are committed."""
_MANY_ROWS = 1_000_000
"""From as many rows on, a whole table is read in parts, over a connection each."""
_CUTTABLE = frozenset({"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string"})


@dataclass(frozen=True)
class TableReading:
    """How a table is read and written.

    Attributes:
        read: what its node's ``read`` has beside connection, format, table and columns.
        write: what its node's ``write`` has beside connection and path.
        why: why it is read so, and what that leaves out.
    """

    read: Mapping[str, Any]
    write: Mapping[str, Any]
    why: tuple[str, ...]


def reading_of(
    table: CatalogTable, types: Mapping[str, TypeName | None], *, appended: bool, unusable: frozenset[str]
) -> TableReading:
    """How ``table`` is read.

    Args:
        types: by column, its type as Spark reads it; None for one that is not known.
        appended: its owner says that its rows never change and are never deleted.
        unusable: columns with values that cannot be cursors.
    """
    if not table.key:
        return _whole(table, types, f"Read whole each time: {table.why_no_key}.")
    usable = [column for column in table.columns if column.name not in unusable]
    if appended:
        grows = [column for column in usable if column.grows and types.get(column.name) in ("short", "integer", "long")]
        number = next((column for column in grows if not column.nullable), None)
        if number is not None:
            why = f"New rows by {number.name}, which grows: rows never change, says --append-only."
            return _followed(table, (number.name,), _NUMBERS_BACK, why)
        born = _times(usable, _CREATED, types, nullable=False)
        if born:
            why = f"New rows by {born[0].name}: rows never change, says --append-only."
            return _followed(table, (born[0].name,), _LAGS[str(types[born[0].name])], why)
    return _by_changes(table, usable, types)


def _by_changes(table: CatalogTable, usable: list[TableColumn], types: Mapping[str, TypeName | None]) -> TableReading:
    moving = [column for column in usable if column.moves and types.get(column.name) in _LAGS]
    named = moving or _times(usable, _CHANGED, types)
    if not named:
        return _whole(table, types, "Read whole each time, which alone is safe: no column says when a row changed.")
    changed = next((column for column in named if not column.nullable), named[0])
    lag = _LAGS[str(types[changed.name])]
    moves = "moves with each change" if changed.moves else "has to move with each change"
    if not changed.nullable:
        return _followed(table, (changed.name,), lag, f"Changes by {changed.name}, which {moves}.")
    # A row that was never changed has no time of change; then its time of birth counts.
    born = [
        column
        for column in _times(usable, _CREATED, types, nullable=False)
        if types[column.name] == types[changed.name]
    ]
    if not born:
        why = f"Read whole each time, which alone is safe: {changed.name} may be NULL, and then nothing says "
        return _whole(table, types, why + "when the row came.")
    why = f"Changes by {changed.name}, which {moves}, and where it is NULL by {born[0].name}."
    return _followed(table, (changed.name, born[0].name), lag, why)


def _followed(table: CatalogTable, columns: tuple[str, ...], lag: str | int, why: str) -> TableReading:
    index = [] if table.column(columns[0]).indexed else [f"An index of {columns[0]} makes it fast."]
    incremental: dict[str, Any] = {"mode": "cursors", "columns": columns, "watermark_lag": lag}
    if not table.is_primary:
        incremental["snapshot"] = {"by": table.key}
    return TableReading({"incremental": incremental}, {"mode": "upsert", "keys": table.key}, (why, *index))


def _whole(table: CatalogTable, types: Mapping[str, TypeName | None], why: str) -> TableReading:
    read: dict[str, Any] = {}
    if table.rows >= _MANY_ROWS and table.key and types.get(table.key[0]) in _CUTTABLE:
        read = {"partition_column": table.key[0], "pieces": 4}
    return TableReading(read, {"mode": "overwrite"}, (why,))


def _times(
    columns: list[TableColumn], pattern: str, types: Mapping[str, TypeName | None], *, nullable: bool = True
) -> list[TableColumn]:
    """The columns of times that are called what ``pattern`` says, whatever stands between its words."""
    return [
        column
        for column in columns
        if types.get(column.name) in _LAGS
        and (nullable or not column.nullable)
        and re.fullmatch(pattern, re.sub(r"[^a-z]", "", column.name.lower()))
    ]
