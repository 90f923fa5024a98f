"""Marks of snapshots as OLake 0.9.4 keeps them, in the state of a stream in its `state.json`, and back.

What OLake makes of such a state was read in its source (drivers/postgres and drivers/mysql, pkg/jdbc, types/state.go):
bounds are ``min <= key < max``. Bounds of MySQL are texts, of several columns joined by commas, the columns sorted by
name. Bounds of PostgreSQL go into its SQL as they are, so places in a table have quotes, and other keys are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from odi_assets.config.models import CTID, CursorsIncrement, StatefulIncrement
from odi_assets.errors import CursorDocumentError, IncrementError
from odi_assets.sources.cursor.types import TypeName, kind_of, parse
from odi_assets.sources.sql.chunks import Cutter, key_columns, storage_of
from odi_assets.sources.sql.dialects import Dialect, Mysql
from odi_assets.sources.sql.keys import OURS, PostgresKeys, keys_of, utf8_text
from odi_assets.sources.sql.marks import Chunks, SnapshotMark, TableChunk
from odi_assets.sources.sql.statements import Ask, Relation

CHUNKS = "chunks"
LAST_PAGE = 2**32 - 1
"""The page that OLake ends the last chunk of a table with."""

_PLACE = re.compile(r"'?(\((\d+),\d+\))'?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_OF_NUMBERS = {"int", "decimal", "float"}
_ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


# -- written -----------------------------------------------------------------------------------------------------------


def stream_state(mark: SnapshotMark, dialect: Dialect, label: str) -> dict[str, Any]:
    """The state of a stream of OLake that says what ``mark`` says, JSON-ready.

    Raises:
        CursorDocumentError: OLake has no such chunks, and would read rows twice or never.
    """
    cursors: dict[str, Any] = {name: _written(value) for name, value in mark.cursors.items()}
    chunks = mark.chunks
    left = [] if chunks is None else [_bounds(chunk, chunks.by, dialect, label) for chunk in chunks.left]
    return {CHUNKS: left, **cursors}


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"{moment.isoformat(timespec='microseconds')}000Z"
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00.000000000Z"
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.decode("utf-8", "strict") if isinstance(value, bytes) else value


def _bounds(chunk: TableChunk, by: Sequence[str], dialect: Dialect, label: str) -> dict[str, Any]:
    if isinstance(dialect, Mysql):
        if list(by) != sorted(by):
            raise _unknown(label, f"cut by {', '.join(by)}, and OLake takes the columns of a key in the order of names")
        return {"min": _joined(chunk.low, label), "max": _joined(chunk.high, label)}
    if by == (CTID,):
        low, high = chunk.low or ("(0,0)",), chunk.high or (f"({LAST_PAGE},0)",)
        return {"min": f"'{low[0]}'", "max": f"'{high[0]}'"}
    return {"min": _as_number(chunk.low, by, label), "max": _as_number(chunk.high, by, label)}


def _joined(bound: Sequence[str] | None, label: str) -> str | None:
    if bound is None:
        return None
    if any("," in text or text != text.strip() or OURS.fullmatch(text) for text in bound):
        shown = ", ".join(map(repr, bound))
        raise _unknown(label, f"bounded by {shown}, and OLake compares texts, which it takes apart at their commas")
    return ",".join(bound)


def _as_number(bound: Sequence[str] | None, by: Sequence[str], label: str) -> int | float | None:
    if bound is None:
        return None
    if len(bound) != 1 or not _NUMBER.fullmatch(bound[0]):
        raise _unknown(label, f"cut by {', '.join(by)}, and OLake cuts tables of PostgreSQL by ctid or a number alone")
    return float(bound[0]) if "." in bound[0] else int(bound[0])


def _unknown(label: str, why: str) -> CursorDocumentError:
    return CursorDocumentError(
        f"the chunks of {label} that are left are {why}",
        fix="let a run complete the snapshot, and export it then",
        label=label,
    )


# -- taken over --------------------------------------------------------------------------------------------------------


def mark_of_stream(
    state: Mapping[str, Any],
    relation: Relation,
    increment: CursorsIncrement,
    types: Mapping[str, TypeName | None],
    ask: Ask,
) -> SnapshotMark:
    """The mark that goes on where OLake stopped.

    Args:
        state: the state of the stream in OLake's document.
        types: the columns of the table.
        ask: asks the database.

    Raises:
        CursorDocumentError: OLake did not begin a snapshot with these cursors; or its chunks cannot be read by others.
        IncrementError: a value is none of its column.
        SourceError: the database does not answer.
    """
    if CHUNKS not in state or any(name not in state for name in increment.columns):
        missing = [name for name in (CHUNKS, *increment.columns) if name not in state]
        raise CursorDocumentError(
            f"the state of {relation.label} has no {' and no '.join(f'`{name}`' for name in missing)}: OLake did not "
            f"begin to follow it by {', '.join(increment.columns)}",
            fix="name the cursors that OLake follows it by in `incremental.columns`; or run the node, which begins a "
            "snapshot of its own",
            label=relation.label,
        )
    cursors = {name: _cursor(state[name], name, types, relation, ask) for name in increment.columns}
    left = state[CHUNKS]
    if not isinstance(left, list) or any(not isinstance(chunk, Mapping) for chunk in left):
        raise _unreadable(relation.label, "are no list of `min` and `max`")
    chunks = _chunks(left, relation, increment, types, ask) if left else None
    return SnapshotMark(cursors, chunks)


def _chunks(
    left: Sequence[Mapping[str, Any]],
    relation: Relation,
    increment: CursorsIncrement,
    types: Mapping[str, TypeName | None],
    ask: Ask,
) -> Chunks:
    texts = [(_text(olake_chunk.get("min")), _text(olake_chunk.get("max"))) for olake_chunk in left]
    bounds = [text for pair in texts for text in pair if text is not None]
    # A chunk that is open on both sides is one of any key.
    of_places = all(map(_PLACE.fullmatch, bounds)) if bounds else increment.snapshot.by in (None, (CTID,))
    if of_places and relation.table is not None and isinstance(keys_of(relation.dialect), PostgresKeys):
        storage, *_ = storage_of(relation, ask)
        chunks = apart([TableChunk(_place(low), _place(high)) for low, high in texts])
        return Chunks((CTID,), tuple(sorted(chunks, key=_in_order)), len(chunks), storage)
    cutter = Cutter(relation, increment.snapshot, types, ask)
    by = increment.snapshot.by or tuple(sorted(cutter.primary_key()))
    if not by:
        raise _unreadable(relation.label, "count rows in no order, because the table has no key")
    keys = key_columns(relation, by, types, ask)
    table_chunks = [
        TableChunk(_split(low, len(by), relation.label), _split(high, len(by), relation.label)) for low, high in texts
    ]
    for chunk in table_chunks:
        # Its bounds have to be values of the key.
        keys_of(relation.dialect).within(chunk, keys)
    kinds = {kind_of(str(types.get(name))) for name in by}
    table_chunks = apart(table_chunks) if kinds <= _OF_NUMBERS else list(dict.fromkeys(table_chunks))
    return Chunks(by, tuple(sorted(table_chunks, key=_in_order)), len(table_chunks))


def apart(chunks: Iterable[TableChunk]) -> list[TableChunk]:
    """Chunks of a key of numbers, or of places in a table, with the same rows, each of them in one chunk.

    Others may cut a document by hand, and rows in two chunks would be read twice.
    """
    disjoint: list[TableChunk] = []
    end: tuple[Decimal, ...] | None = ()
    for chunk in sorted(chunks, key=lambda piece: (piece.low is not None, _numbers(piece.low))):
        low, high = _numbers(chunk.low), _numbers(chunk.high)
        if chunk.low is not None and chunk.high is not None and low >= high:
            continue
        if disjoint and (end is None or (chunk.high is not None and high <= end)):
            # All of its rows are in those before it.
            continue
        is_within = bool(disjoint) and (chunk.low is None or low < (end or ()))
        disjoint.append(replace(chunk, low=disjoint[-1].high) if is_within else chunk)
        end = None if chunk.high is None else high
    return disjoint


def _numbers(bound: Sequence[str] | None) -> tuple[Decimal, ...]:
    return tuple(Decimal(number) for text in bound or () for number in _NUMBER.findall(text))


def _text(bound: Any) -> str | None:
    return None if bound is None else bound if isinstance(bound, str) else str(bound)


def _place(text: str | None) -> tuple[str, ...] | None:
    match = _PLACE.fullmatch(text or "")
    if match is None or int(match[2]) in (0, LAST_PAGE):
        return None
    return (match[1],)


def _split(text: str | None, columns: int, label: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    # As OLake does, whatever the values are: what it has read ends at the same bounds.
    parts = tuple(part.strip() for part in text.split(","))[:columns]
    if len(parts) < columns:
        raise _unreadable(label, f"have the bound {text!r}, and the key has {columns} columns")
    return parts


def _in_order(chunk: TableChunk) -> tuple[bool, list[int], tuple[str, ...]]:
    """The order in which chunks are read; no row depends on it."""
    texts = chunk.low or ()
    return chunk.low is not None, [int(number) for text in texts for number in re.findall(r"\d+", text)], texts


def _cursor(value: Any, name: str, types: Mapping[str, TypeName | None], relation: Relation, ask: Ask) -> Any:
    kind = types.get(name)
    if kind is None:
        raise IncrementError(
            f"{relation.label} has no column `{name}` of a type that is a cursor; it has {', '.join(types)}",
            fix="correct `incremental.columns`",
            column=name,
        )
    if value is None:
        return None
    text = str(value)
    if kind == "date":
        text = text[:10]
    elif kind == "timestamp_ntz":
        text = _ZONED.sub("", text)
    elif kind == "timestamp" and not _ZONED.search(text) and isinstance(relation.dialect, Mysql):
        # OLake takes it over from a session in the server's own zone.
        text = str(
            ask(f"SELECT CAST(CONVERT_TZ({utf8_text(text)}, @@global.time_zone, '+00:00') AS CHAR) AS moment")[0][0]
        )
    return parse(text, str(kind), StatefulIncrement(mode="stateful", column=name), relation.label)


def _unreadable(label: str, why: str) -> CursorDocumentError:
    return CursorDocumentError(
        f"the chunks of {label} in OLake's state {why}",
        fix="let OLake complete its snapshot, or begin one here: run the node without its state",
        label=label,
    )
