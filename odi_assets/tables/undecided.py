"""Columns of Arrow tables that have no type: all of them is NULL, or their frame has no rows.

The table's type is theirs. Where the table has none, a frame without rows leaves the decision to the next one; one with
rows has to decide.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import pyarrow as pa
from deltalake import Schema

from odi_assets.delta.schema_evolution import UNDECIDED
from odi_assets.delta.table import TableHandle

_MARK = {UNDECIDED.encode(): b"true"}


def marked(rows: pa.Table, names: Collection[str]) -> pa.Table:
    """``rows`` with a mark at the columns ``names``: nobody chose their types."""
    fields = [field.with_metadata(_MARK) if field.name in names else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def with_types(rows: pa.Table, handle: TableHandle, *, may_decide_later: bool) -> tuple[pa.Table, frozenset[str]]:
    """``rows`` with the table's types for columns that have none, and the columns whose type is left open.

    Args:
        may_decide_later: the columns of ``rows`` become the table's columns.
    """
    kinds_by_name = {name.lower(): kind for name, kind in _types_of(handle)}
    undecided: set[str] = set()
    for index, field in enumerate(rows.schema):
        is_marked = not rows.num_rows and UNDECIDED.encode() in (field.metadata or {})
        if not is_marked and not _is_open(field.type):
            continue
        kind = kinds_by_name.get(field.name.lower())
        if kind is None and may_decide_later and not rows.num_rows:
            undecided.add(field.name)
            kind = pa.string() if _is_open(field.type) else field.type
        if kind is not None:
            rows = rows.set_column(index, field.name, _as(kind, rows[field.name]))
    return rows, frozenset(undecided)


def _types_of(handle: TableHandle) -> Iterator[tuple[str, pa.DataType]]:
    if handle.exists:
        yield from ((field.name, field.type) for field in pa.schema(Schema.from_json(handle.schema_json).to_arrow()))


def _is_open(kind: pa.DataType) -> bool:
    """Whether a type is the type of NULL, or contains it."""
    return kind == pa.null() or any(_is_open(kind.field(index).type) for index in range(kind.num_fields))


def _as(kind: pa.DataType, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not len(column):
        return pa.chunked_array([], kind)
    try:
        return column.cast(kind)
    except pa.ArrowException:
        # The table's column has another shape; the one of the rows is refused by its name.
        return column


def with_marks(schema_json: str, undecided: Collection[str]) -> str:
    """The schema with the mark of Delta at these columns."""
    if not undecided:
        return schema_json
    schema = json.loads(schema_json)
    for field in schema["fields"]:
        if field["name"] in undecided:
            field["metadata"] = {**field.get("metadata", {}), UNDECIDED: "true"}
    return json.dumps(schema)
