"""Batches of stream nodes in Delta: ``meta_batches``, what Spark's checkpoint forgets.

A row is appended for each batch once it is committed, and again when more of it is known: the newest row of a query's
batch counts. All of it can be rebuilt from the stamps of the nodes' commits and the checkpoints
(``nodes.recovery.batches``), except for the figures that only Spark's progress reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from odi_assets.connections.location import Location
from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.retry import Retry
from odi_assets.delta.table import TableHandle
from odi_assets.state.delta.system_columns import Columns
from odi_assets.state.delta.table import SystemTable, in_environment, sql

COLUMNS = Columns(
    {
        "node": "string",
        "environment": "string",
        "query": "string",
        "batch": "long",
        "checkpoint": "string",
        "planned_at": "timestamp",
        "committed_at": "timestamp",
        "watermark": "timestamp",
        "offsets": "string",
        "rows_in": "string",
        "rows_out": "long",
        "rows_dropped": "long",
        "rows_removed": "long",
        "state_rows": "long",
        "state_bytes": "long",
        "operators": "string",
        "durations_ms": "string",
        "run_id": "string",
        "table_version": "long",
        "written_at": "timestamp",
    }
)
INDEXED = ("node", "environment", "query", "batch")


@dataclass(frozen=True, kw_only=True)
class OperatorFigures:
    """What a stateful operator did in one batch, as Spark's progress reports it.

    Attributes:
        operator: its number: the folder of its state in the checkpoint.
        name: ``symmetricHashJoin``, ``stateStoreSave``, ``dedupe`` …
        rows_total, state_bytes: its state after the batch.
        rows_updated, rows_removed: rows that the batch put into the state, and that the watermark took out of it.
        rows_dropped: rows that came too late.
        update_ms, removal_ms, commit_ms: time spent, summed over all partitions.
        partitions: partitions of its state.
        custom: what the state store provider adds: ``rocksdbLoadLatencyMs`` …
    """

    operator: int
    name: str
    rows_total: int = 0
    rows_updated: int = 0
    rows_removed: int = 0
    rows_dropped: int = 0
    state_bytes: int = 0
    update_ms: int = 0
    removal_ms: int = 0
    commit_ms: int = 0
    partitions: int = 0
    custom: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> OperatorFigures:
        """The figures that a row stores; what a later version added is left out."""
        return cls(**{item.name: stored[item.name] for item in fields(cls) if item.name in stored})


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """One batch of a stream node. What is not known is None.

    Attributes:
        node: ``pipeline.node``.
        query: the id of the query, from its checkpoint's ``metadata``.
        batch: its number, from 0.
        checkpoint: the folder of the query's checkpoint: a path or a URI.
        planned_at: when Spark planned it.
        committed_at: when its rows were committed into the node's table.
        watermark: the one it ran with, UTC; None before there was one. It evicts state in this batch, and decides in
            the **next** batch which rows are late: a row of this batch is late if it is not after the watermark of the
            batch before.
        offsets: by input, how far the batch reads: ``{"end": …}`` is what Spark's offset log says, None for an input
            that gave nothing so far; for files also ``"read"``, a digest of the files up to there since the batch
            before. The offset of a table contains its version.
        rows_in: by input, the rows that it gave. Spark may apply ``where`` as it reads files.
        rows_out: rows written to the node's table.
        rows_dropped, rows_removed, state_rows, state_bytes: summed over ``operators``.
        operators: the stateful operators; empty if they are not known or there are none.
        durations_ms: what took how long: ``addBatch``, ``triggerExecution`` …
        table_version: the version of the node's table that holds the batch.
        written_at: when this record was written; set by :class:`BatchLog`.
    """

    node: str
    query: str
    batch: int
    checkpoint: str | None = None
    planned_at: datetime | None = None
    committed_at: datetime | None = None
    watermark: datetime | None = None
    offsets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_out: int | None = None
    rows_dropped: int | None = None
    rows_removed: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    operators: tuple[OperatorFigures, ...] = ()
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    run_id: str | None = None
    table_version: int | None = None
    written_at: datetime | None = None

    def to_row(self, environment: str | None, written_at: datetime) -> dict[str, Any]:
        """The record as a row of the table."""
        nested = {
            "offsets": self.offsets,
            "rows_in": self.rows_in,
            "operators": [vars(operator) | {"custom": dict(operator.custom)} for operator in self.operators],
            "durations_ms": self.durations_ms,
        }
        texts = {name: json.dumps(value, sort_keys=True) for name, value in nested.items()}
        return {**vars(self), **texts, "environment": environment, "written_at": written_at}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> BatchRecord:
        """The record of a row."""
        known = {item.name: row[item.name] for item in fields(cls)}
        nested = {name: json.loads(row[name] or "{}") for name in ("offsets", "rows_in", "durations_ms")}
        operators = tuple(map(OperatorFigures.from_json, json.loads(row["operators"] or "[]")))
        return cls(**{**known, **nested, "operators": operators})


class BatchLog(SystemTable):
    """The batches of the stream nodes of one environment."""

    largest_file = 20_000

    def __init__(self, location: Location, environment: str | None, retry: Retry | None = None) -> None:
        super().__init__(location, COLUMNS, INDEXED)
        self.environment = environment
        self._retry = retry or Retry()

    def record(self, records: Iterable[BatchRecord]) -> None:
        """Add records in one commit, if there are any. Written twice, a record counts once.

        Raises:
            StateError: they could not be written.
        """
        now = datetime.now(UTC)
        rows = [record.to_row(self.environment, now) for record in records]
        if not rows:
            return
        added = COLUMNS.to_arrow({name: [row[name] for row in rows] for name in COLUMNS.kinds})

        def landed(handle: TableHandle) -> bool:
            return any(row["written_at"] == now for row in self.rows(handle, self._of(rows[-1]["node"])))

        self._retry.call(
            lambda: self.write(lambda handle: self.append_rows(handle, added, [], landed, True)), "recording batches"
        )

    def of_node(self, node: str, query: str | None = None, since: int | None = None) -> list[BatchRecord]:
        """The batches of a node, in order; a query after the queries before it.

        Args:
            node: ``pipeline.node``.
            query: only the batches of this query.
            since: only the batches from this number on.

        Raises:
            StateError: the table cannot be read.
        """
        where = self._of(node)
        if query is not None:
            where += f" AND query = {sql(query)}"
        if since is not None:
            where += f" AND batch >= {since}"
        rows = self._retry.call(lambda: self.read(lambda handle: self.rows(handle, where)), "reading batches") or []
        newest: dict[tuple[str, int], BatchRecord] = {}
        for record in sorted(map(BatchRecord.from_row, rows), key=_written):
            newest[record.query, record.batch] = record
        first: dict[str, datetime] = {}
        for record in newest.values():
            first[record.query] = min(first.get(record.query, _written(record)), _written(record))
        return sorted(
            newest.values(),
            key=lambda batch_record: (first[batch_record.query], batch_record.query, batch_record.batch),
        )

    def forget_after(self, node: str, query: str, batch: int) -> int:
        """Take out the batches after ``batch`` of a query that goes back to it; how many there were.

        Raises:
            StateError: the table cannot be written.
        """
        where = f"{self._of(node)} AND query = {sql(query)} AND batch > {batch}"

        def once() -> int:
            handle = self.open()
            if handle is None:
                return 0
            with handle.calls("taking batches out of a system table"):
                return int(handle.table.delete(where)["num_deleted_rows"])

        return self._retry.call(once, "forgetting batches", again=lambda error: isinstance(error, CommitConflict))

    def _of(self, node: str) -> str:
        return f"node = {sql(node)} AND {in_environment(self.environment)}"


def stateful_operators(records: Sequence[BatchRecord]) -> frozenset[int]:
    """The numbers of the stateful operators of a node's last query, as far as its records have them.

    Args:
        records: of one node, in order.
    """
    of_last = [record for record in records if record.query == records[-1].query]
    return frozenset(operator.operator for record in of_last for operator in record.operators)


def _written(record: BatchRecord) -> datetime:
    return record.written_at or datetime.min.replace(tzinfo=UTC)
