"""Compares the table of a node that applies a change log with its table in the database, key by key, at one LSN.

The database is read in one repeatable read. Keys with changes that the table has not got yet are no differences: they
are left out, and counted. No other row has changed since the table took its last change in.

The database has no former versions of its rows: a history is compared with the change log, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel

from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.audit.found import BY_KEY, BY_VERSION, Audit, AuditRange, KeyDifference
from odi_assets.nodes.audit.rows import RangeDifference, as_stored
from odi_assets.nodes.execution.apply import history_rows
from odi_assets.nodes.execution.log_rows import LogShape, column_types, facts_of, text_of, typed
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.apply import applied_below, key_in_log, mark_of_log, types_of_log
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.cdc.compare import TableNow, emptied, table_now
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.mark import PARTITION, CaptureMark
from odi_assets.sources.cdc.source import LogSource
from odi_assets.sources.cdc.value_types import ValueTypes
from odi_assets.spark.arrow import dataframe_of
from odi_assets.spark.lazy import F
from odi_assets.state.backend import StateBackend
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHOWN = 1_000
"""Keys that are named; all are counted."""
_SOURCE, _TABLE, _KEY = "odi_source", "odi_table", "odi_key"
_REPEATED = "odi_repeated"
_NUMBER = "_n"
"""The column of a history that says which row of the change log its row is."""


def audit_applied(node: Node, target: TableHandle, spark: SparkSession, state: StateBackend, by: str | None) -> Audit:
    """Compare the table of a node with what its database has, or a history with the change log. Changes nothing, at the
    server neither.

    Raises:
        ConfigError: ``by`` is given; nothing of the log is applied yet.
        SourceError: the capture has to run first; the server cannot be reached.
        IdentityMismatchError: the slot does not go on where the log ends.
    """
    apply, captured_by = node.config.apply, node.applies
    assert apply is not None
    assert captured_by is not None
    if by is not None:
        raise ConfigError(f"{node} is compared row by row", fix="leave --by out", node=str(node))
    capture = Node.of(node.project, captured_by)
    log = TableHandle.open(capture.target.location)
    key = key_in_log(log, str(capture), apply.table, str(node))
    source, value = capture.sources[0], mark_of_log(log)
    rows = engine_of(log).read(spark, log).where(F.col(PARTITION) == apply.table)
    below = applied_below(node, target, log, state)
    if apply.history:
        return _audit_history(node, capture, target, spark, rows, below, types_of_log(value))
    if not isinstance(source, LogSource):
        raise ConfigError(
            f"{node} is made of what {capture} was given, and the database that it comes from is not known",
            fix=f"read the table of the database with a node of `format: sql`, and compare the two; or follow a key: "
            f"odi explain {node} --key KEY",
            node=str(node),
        )
    with remedies_named(capture):
        mark = CaptureMark.of(value, source.label)
    above = rows.where((F.col("n") >= below) & (F.col("op") != Op.SHAPE.value))
    with table_now(source, mark, apply.table) as now:
        shapes = facts_of(rows, str(node), capture).shapes
        return _TableAudit(node, key, target, spark, shapes, types_of_log(value)).compared(now, above)


def _audit_history(
    node: Node,
    capture: Node,
    target: TableHandle,
    spark: SparkSession,
    rows: DataFrame,
    below: int,
    types: ValueTypes,
) -> Audit:
    """Compare a history with the rows of the log that it was made of.

    Args:
        capture: the node that writes the log.
        rows: of the log, of its table.
        below: the number in the log below which they are applied.
    """
    if not below:
        raise ConfigError(
            f"{node}: nothing of the change log is applied, or the log has begun again since",
            fix=f"odi run {node.command}; or, if the log has begun again, odi run {node.command} --full-refresh",
            node=str(node),
        )
    shapes = facts_of(rows, str(node), capture).shapes
    applied = rows.where((F.col("n") < below) & (F.col("op") != Op.SHAPE.value))
    table = engine_of(target).read(spark, target)
    history = as_stored(history_rows(applied, shapes, types), table.schema, target.partition_columns)
    compared = tuple(name for name in table.columns if name in history.columns)
    notes = [
        f"compared with the change log up to its row {below - 1:,}; whether the log has all that the database has, "
        "an audit of a node says that applies the table without `history`"
    ]
    if waiting := rows.where((F.col("n") >= below) & (F.col("op") != Op.SHAPE.value)).count():
        notes.append(
            f"not compared: {counted(waiting, 'change')} not applied yet; odi run {node.key.pipeline} applies them"
        )
    alone = [name for name in table.columns if name not in history.columns]
    notes += [f"`{name}` is in the table alone, and is not compared" for name in alone]
    table_audit = _TableAudit(node, (_NUMBER,), target, spark, shapes, types)
    joined = table_audit.joined(history, table, history.select(_NUMBER).limit(0), compared)
    return table_audit.audit(joined, compared, notes, BY_VERSION)


@dataclass(frozen=True)
class _TableAudit:
    node: Node
    key: tuple[str, ...]
    target: TableHandle
    spark: SparkSession
    shapes: Sequence[LogShape]
    types: ValueTypes

    def compared(self, now: TableNow, above: DataFrame) -> Audit:
        """The audit of a table as it is now.

        Args:
            above: the rows of the log that the table has not applied yet.
        """
        if emptied(now.waiting) or above.where(F.col("op") == Op.TRUNCATE.value).take(1):
            command = f"odi run {self.node.key.pipeline}"
            raise ConfigError(
                f"{self.node}: a TRUNCATE of its table, or a new snapshot, is not applied yet",
                fix=f"run it and the node that captures first: {command}",
                node=str(self.node),
            )
        table = engine_of(self.target).read(self.spark, self.target)
        types = {column.name: column.type for column in now.shape.columns}
        compared = tuple(name for name in table.columns if name in types)
        waiting = self._waiting(now, above)
        parts = [self._part(chunk, types, table) for chunk in now.chunks() if chunk.num_rows]
        try:
            source = self._typed(above.limit(0), types, table)
            for part in parts:
                source = source.unionByName(part)
            left_out = waiting.count()
            joined = self.joined(source, table, waiting, compared)
            return self.audit(joined, compared, self._notes(now, table, left_out), BY_KEY)
        finally:
            for part in parts:
                part.unpersist()

    def _part(self, chunk: pa.Table, types: dict[str, str], table: DataFrame) -> DataFrame:
        """The rows of a chunk, kept by Spark, so that this process holds one chunk at a time."""
        part = self._typed(dataframe_of(self.spark, chunk), types, table).persist(StorageLevel.DISK_ONLY)
        part.count()
        return part

    def _typed(self, rows: DataFrame, types: dict[str, str], table: DataFrame) -> DataFrame:
        values = rows.select(
            *[typed(text_of(self.shapes, name), kind, name, self.types).alias(name) for name, kind in types.items()]
        )
        return as_stored(values, table.schema, self.target.partition_columns)

    def _waiting(self, now: TableNow, above: DataFrame) -> DataFrame:
        """The keys that have changes above what the table has, as the table has them."""
        known = column_types(self.shapes)
        changed = above.select("key")
        if now.waiting.num_rows:
            changed = changed.unionByName(dataframe_of(self.spark, now.waiting.select(["key"])))
        order = self.shapes[0].key
        keys = changed.where(F.col("key").isNotNull()).distinct()
        return keys.select(
            *[typed(F.col("key")[order.index(name)], known[name], name, self.types).alias(name) for name in self.key]
        ).distinct()

    def joined(self, source: DataFrame, table: DataFrame, waiting: DataFrame, compared: Sequence[str]) -> DataFrame:
        """All keys of both sides that wait for no change, with their rows."""
        stored = as_stored(table, table.schema, self.target.partition_columns)
        sides = []
        for rows, side in ((source, _SOURCE), (stored, _TABLE)):
            keys = [F.col(quoted(name)).alias(f"{side}_{index}") for index, name in enumerate(self.key)]
            values = F.struct(*[F.col(quoted(name)) for name in compared]).alias(side)
            sides.append(self._without(rows, waiting).select(*keys, values))
        first, second = sides
        counted_rows = second.groupBy(*[f"{_TABLE}_{index}" for index in range(len(self.key))]).agg(
            F.first(_TABLE).alias(_TABLE), F.count(F.lit(1)).alias(_REPEATED)
        )
        same = [first[f"{_SOURCE}_{index}"] == counted_rows[f"{_TABLE}_{index}"] for index in range(len(self.key))]
        return first.join(counted_rows, same, "full_outer")

    def _without(self, rows: DataFrame, waiting: DataFrame) -> DataFrame:
        renamed = waiting.toDF(*[f"{_KEY}_{index}" for index in range(len(self.key))])
        same = [rows[quoted(name)] == renamed[f"{_KEY}_{index}"] for index, name in enumerate(self.key)]
        return rows.join(F.broadcast(renamed), same, "left_anti")

    def audit(self, joined: DataFrame, compared: tuple[str, ...], notes: Sequence[str], by: str) -> Audit:
        """What differs in rows that :meth:`joined` has put side by side."""
        what = (
            F.when(F.col(_TABLE).isNull(), "missing")
            .when(F.col(_SOURCE).isNull(), "extra")
            .when(F.col(_REPEATED) > 1, "repeated")
            .when(~F.col(_SOURCE).eqNullSafe(F.col(_TABLE)), "changed")
        )
        judged = joined.withColumn("what", what).persist(StorageLevel.DISK_ONLY)
        try:
            counts = {row["what"]: row for row in judged.groupBy("what").agg(*_counts()).collect()}
            keys = self._named(judged.where(F.col("what").isNotNull()), compared)
        finally:
            judged.unpersist()
        total = {name: sum(int(row[name]) for row in counts.values()) for name in ("source_rows", "table_rows")}
        count_by_kind = {name: int(counts[name]["keys"]) if name in counts else 0 for name in _KINDS}
        missing, extra, repeated, changed = (count_by_kind[name] for name in _KINDS)
        rows = (total["source_rows"], total["table_rows"])
        difference = RangeDifference(f"all {by}s", *rows, missing, extra, repeated, changed)
        command = None if difference.agrees else f"odi run {self.node.command} --full-refresh"
        if unnamed := sum(count_by_kind.values()) - len(keys):
            notes = (*notes, f"{counted(unnamed, by)} more differ, and are not named")
        if command is not None and by == BY_KEY:
            again = f"odi run {str(self.node.applies).replace('.', ' --node ')} --full-refresh --yes"
            notes = (*notes, f"if it differs after the repair too, the log lacks a change: {again}")
        return Audit(
            self.node.key, by, compared, tuple(notes), (AuditRange(difference, f"all {by}s", command),), tuple(keys)
        )

    def _named(self, rows: DataFrame, compared: Sequence[str]) -> list[KeyDifference]:
        def shown(side: str, name: str) -> Column:
            return F.col(side)[name].cast("string")

        keys = [F.coalesce(shown(_SOURCE, name), shown(_TABLE, name)).alias(f"k{i}") for i, name in enumerate(self.key)]
        differs = [
            F.when(
                ~F.col(_SOURCE)[name].eqNullSafe(F.col(_TABLE)[name]),
                F.struct(shown(_SOURCE, name).alias("source"), shown(_TABLE, name).alias("table")),
            ).alias(f"c{index}")
            for index, name in enumerate(compared)
        ]
        order = [F.coalesce(F.col(_SOURCE)[name], F.col(_TABLE)[name]) for name in self.key]
        shown_rows = rows.orderBy(*order).limit(SHOWN).select("what", *keys, *differs).collect()
        return [_difference(row, self.key, compared) for row in shown_rows]

    def _notes(self, now: TableNow, table: DataFrame, left_out: int) -> tuple[str, ...]:
        column_names = [column.name for column in now.shape.columns]
        notes = [f"compared at {now.log_end} of the database's log"]
        if left_out:
            notes.append(
                f"not compared: {counted(left_out, 'key')} with changes that are not applied yet; "
                f"odi run {self.node.key.pipeline} applies them"
            )
        alone = [name for name in table.columns if name not in (*column_names, *now.table.generated)]
        notes += [f"`{name}` is in the table alone, and is not compared" for name in alone]
        notes += [
            f"not compared: the database generates `{name}`, and its log and the table do not have it"
            for name in now.table.generated
            if name not in column_names
        ]
        notes += [
            f"not compared: `{name}` is not in the table yet" for name in column_names if name not in table.columns
        ]
        return tuple(notes)


_KINDS = ("missing", "extra", "repeated", "changed")


def _counts() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("keys"),
        F.count(_SOURCE).alias("source_rows"),
        F.coalesce(F.sum(_REPEATED), F.lit(0)).alias("table_rows"),
    ]


def _difference(row: Any, key: Sequence[str], compared: Sequence[str]) -> KeyDifference:
    names = {name: row[f"k{index}"] for index, name in enumerate(key)}
    if row["what"] != "changed":
        return KeyDifference(names, row["what"])
    columns = {
        name: (row[f"c{index}"]["source"], row[f"c{index}"]["table"])
        for index, name in enumerate(compared)
        if row[f"c{index}"] is not None
    }
    return KeyDifference(names, row["what"], columns)
