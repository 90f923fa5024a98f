"""Applies what a change log gained in this process, with Arrow: faster than Spark plans it, where it is little.

It makes the rows that :mod:`odi_assets.nodes.execution.apply` makes. What Arrow might make otherwise is left to Spark:
a table that was emptied, rows of several shapes, a last row without all of its values, texts that are not the plain
ones of their type. So it is Spark that names what is wrong with a log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from odi_assets.nodes.execution.apply import DELETED, HISTORY
from odi_assets.nodes.execution.log_rows import AFTER, DATA, KEY, UNCHANGED, LogShape, N, same_names
from odi_assets.nodes.planning.apply import key_of_log, value_types
from odi_assets.sources.cdc.log import SCHEMA, Op
from odi_assets.sources.cdc.value_types import ValueTypes
from odi_assets.sources.delta.source import NewVersions
from odi_assets.tables.arrow_reader import rows_of_files

if TYPE_CHECKING:
    from odi_assets.nodes.planning.plan import NodePlan
    from odi_assets.sources.reads import Read

MOST_BYTES = 128 << 20
"""Memory that the rows of the log may take: about a million of them."""
_OF_STATE = pa.schema([SCHEMA.field(name) for name in (N, "op", KEY, AFTER, UNCHANGED, "shape", "columns")])
_OF_HISTORY = pa.schema([*_OF_STATE, *(SCHEMA.field(name) for name in ("lsn", "xid", "committed_at"))])
_DAY = r"[1-9]\d{3}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d(\.\d{1,6})?"
_NUMBER = r"-?\d+(\.\d+)?"
_PLAIN = {
    "TINYINT": (pa.int8(), r"-?\d+"),
    "SMALLINT": (pa.int16(), r"-?\d+"),
    "INT": (pa.int32(), r"-?\d+"),
    "BIGINT": (pa.int64(), r"-?\d+"),
    "FLOAT": (pa.float32(), rf"{_NUMBER}([eE][+-]?\d+)?"),
    "DOUBLE": (pa.float64(), rf"{_NUMBER}([eE][+-]?\d+)?"),
    "DATE": (pa.date32(), _DAY),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), rf"{_DAY}[ T]{_TIME}(Z|[+-]\d\d(:?\d\d)?)"),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), rf"{_DAY}[ T]{_TIME}"),
}
"""By Spark's type, Arrow's, and the texts that both take for the same value."""


class _NeedsSpark(Exception):
    """Arrow might make other rows than Spark."""


def applied_here(plan: NodePlan) -> tuple[Read, pa.Table] | None:
    """The read of a log, and the rows that the node's table gains, and those that leave it, marked; None if Spark has
    to find them.

    Raises:
        ConfigError: the log does not capture the table, or the table has no key.
    """
    config, (read,) = plan.node.config.apply, plan.reads
    if config is None or plan.write.mode is not plan.node.config.write.mode or not isinstance(read, NewVersions):
        return None
    files, key = read.plain_files, () if config.history else key_of_log(plan)
    columns = _OF_HISTORY if config.history else _OF_STATE
    try:
        rows = None if files is None else rows_of_files(read.snapshot.handle, files, columns, MOST_BYTES)
        if rows is None:
            return None
        shape, types = _only_shape(rows, HISTORY if config.history else (DELETED,)), value_types(plan)
        changes = rows.filter(pc.not_equal(rows["op"], Op.SHAPE.value)).combine_chunks()
        made = _versions(changes, shape, types) if config.history else _last_rows(changes, shape, key, types)
    except (_NeedsSpark, OSError, pa.ArrowException):
        # Spark reads it, or says what is wrong.
        return None
    return read, made


def _only_shape(rows: pa.Table, added: Sequence[str]) -> LogShape:
    """The shape of all rows, which say nothing but what the table's rows are.

    Args:
        added: names of the columns that the node adds to the database's.
    """
    listed = rows.filter(pc.equal(rows["op"], Op.SHAPE.value))
    known = pc.is_in(rows["op"], pa.array([op.value for op in (*DATA, Op.SHAPE)]))
    names = pc.unique(rows["shape"]).to_pylist()
    if len(names) != 1 or not listed.num_rows or not pc.all(known).as_py():
        raise _NeedsSpark
    shape = LogShape.of(names[0], listed["columns"][0].as_py())
    if same_names(shape, added) is not None:
        raise _NeedsSpark
    return shape


def _versions(changes: pa.Table, shape: LogShape, types: ValueTypes) -> pa.Table:
    """Each change as a row, as ``apply.history_rows`` makes them."""
    values = {
        name: _typed(pc.list_element(changes[AFTER], index), kind, types)
        for index, (name, kind) in enumerate(shape.columns)
    }
    lacking = [
        None if indexes is None else [shape.columns[index][0] for index in indexes]
        for indexes in changes[UNCHANGED].to_pylist()
    ]
    facts = {f"_{name}": changes[name] for name in ("op", N, "lsn", "xid", "committed_at", KEY)}
    return pa.table({**values, **facts, "_unchanged": pa.array(lacking, pa.list_(pa.string()))})


def _last_rows(changes: pa.Table, shape: LogShape, key: tuple[str, ...], types: ValueTypes) -> pa.Table:
    """The last row of each key that changed, and whether it is gone."""
    kinds = {name: types.spark_type(kind) for name, kind in shape.columns}
    if shape.key != key or any(_has_spellings(kinds[name]) for name in key):
        raise _NeedsSpark
    key_columns = [f"k{index}" for index in range(len(key))]
    keys = [pc.list_element(changes[KEY], index) for index in range(len(key))]
    newest = pa.table([*keys, changes[N]], [*key_columns, N]).group_by(key_columns).aggregate([(N, "max")])
    last = changes.filter(pc.is_in(changes[N], newest[f"{N}_max"].combine_chunks())).combine_chunks()
    if last[UNCHANGED].null_count < last.num_rows:
        raise _NeedsSpark
    gone = pc.equal(last["op"], Op.DELETE.value)
    columns = {}
    for column_index, (name, kind) in enumerate(shape.columns):
        text = pc.list_element(last[AFTER], column_index)
        if name in key:
            # A row that is gone has no values but its key.
            text = pc.if_else(gone, pc.list_element(last[KEY], key.index(name)), text)
        columns[name] = _typed(text, kind, types)
    return pa.table({**columns, DELETED: gone})


def _has_spellings(wanted: str) -> bool:
    """Whether texts of a type differ that are one value of it."""
    return wanted.startswith(("DECIMAL", "FLOAT", "DOUBLE"))


def _typed(text: pa.ChunkedArray, kind: str, types: ValueTypes) -> pa.ChunkedArray:
    """A column of texts as values, as ``log_rows.typed`` makes them."""
    wanted = types.spark_type(kind)
    if wanted == "STRING":
        return text
    if wanted == "BOOLEAN":
        no = pc.if_else(pc.equal(text, types.false), False, pa.scalar(None, pa.bool_()))
        return pc.if_else(pc.equal(text, types.true), True, no)
    if wanted == "BINARY":
        _require_form(text, "..([0-9a-fA-F]{2})*")
        return pa.chunked_array(
            [[None if hex_text is None else bytes.fromhex(hex_text[2:]) for hex_text in text.to_pylist()]], "binary"
        )
    if wanted == "TIMESTAMP":
        text = pc.binary_join_element_wise(text, types.zone, "")
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", wanted)
    target, form = _PLAIN[wanted] if decimal is None else (pa.decimal128(*map(int, decimal.groups())), _NUMBER)
    _require_form(text, form)
    return text.cast(target)


def _require_form(text: pa.ChunkedArray, form: str) -> None:
    if not pc.all(pc.match_substring_regex(text, f"^({form})$"), min_count=0).as_py():
        raise _NeedsSpark
