"""What a change log says of keys: each change in its order, through all keys that a row had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odi_assets.explain.evidence.collect import key_sql, only_asked
from odi_assets.explain.verdicts import ChangedValue, LoggedKeyChange
from odi_assets.nodes.execution.log_rows import LogShape, facts_of, shown_text, text_of
from odi_assets.nodes.planning.apply import types_of_log
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.mark import PARTITION, position_text
from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from odi_assets.nodes.node import Node

Key = tuple[str, ...]
_ASKED = "asked"
_DATA = (Op.READ, Op.CREATE, Op.UPDATE, Op.DELETE)


class ChangeOp(StrEnum):
    """What a change did."""

    SNAPSHOT = "snapshot"
    """A snapshot read the row."""
    INSERT = "insert"
    UPDATE = "update"
    KEY_CHANGE = "key change"
    DELETE = "delete"
    TRUNCATE = "truncate"
    NEW_SNAPSHOT = "new snapshot"
    """The table was emptied, because a new snapshot of it began."""

    @property
    def removes(self) -> bool:
        """Whether no row is there after it."""
        return self in (ChangeOp.DELETE, ChangeOp.TRUNCATE, ChangeOp.NEW_SNAPSHOT)


_OPS = {
    Op.READ: ChangeOp.SNAPSHOT,
    Op.CREATE: ChangeOp.INSERT,
    Op.UPDATE: ChangeOp.UPDATE,
    Op.DELETE: ChangeOp.DELETE,
    Op.TRUNCATE: ChangeOp.TRUNCATE,
}


class _RowReplay:
    """The values of rows after the changes so far, by key; None for a row that is gone."""

    def __init__(self, shapes: Mapping[str, LogShape], mark: Mapping[str, Any] | None) -> None:
        self._shapes, self._mark = shapes, mark
        self._known: dict[Key, dict[str, str | None] | None] = {}

    def taken(self, row: Any, *, leaves: Key | None = None) -> LoggedKeyChange | None:
        """Take in a row of the log; None if it changes no row that is there.

        Args:
            leaves: of a row whose key changed, the key that it had.
        """
        op = _OPS[Op(row["op"])]
        if op is ChangeOp.TRUNCATE:
            was_there = any(values is not None for values in self._known.values())
            self._known = {}
            op = op if row["xid"] is not None else ChangeOp.NEW_SNAPSHOT
            return self._change(row, op, ()) if was_there else None
        key = tuple(row["key"])
        if op is ChangeOp.DELETE:
            self._known[key] = None
            return self._change(row, op, key)
        former = key if leaves is None else leaves
        before = self._known.get(former)
        if leaves is not None:
            self._known[leaves], op = None, ChangeOp.KEY_CHANGE
        after = self._known[key] = self._values(row, before or {})
        # The first row of a key shows no change: what was there before is not in the log.
        names = after if before else ()
        changed = {
            name: ChangedValue(before.get(name), after[name])
            for name in names
            if before and before.get(name) != after[name]
        }
        return self._change(row, op, key, leaves, changed)

    def _change(
        self,
        row: Any,
        op: ChangeOp,
        key: Key,
        former: Key | None = None,
        changed: Mapping[str, ChangedValue] | None = None,
    ) -> LoggedKeyChange:
        lsn = None if row["lsn"] is None else position_text(self._mark, int(row["lsn"]))
        return LoggedKeyChange(
            int(row["n"]), lsn, row["xid"], _moment(row["at"]), op.value, key, former, dict(changed or {})
        )

    def _values(self, row: Any, before: Mapping[str, str | None]) -> dict[str, str | None]:
        lacking = set(row["unchanged"] or ())
        after = {
            name: row["after"][index]
            for index, (name, _) in enumerate(self._shapes[row["shape"]].columns)
            if index not in lacking
        }
        return {**before, **after}


@dataclass(frozen=True)
class KeyHistory:
    """The changes of the rows that had a key.

    Attributes:
        keys: the keys of the log that are meant.
        changes: of all keys that their rows had, in their order.
    """

    keys: frozenset[Key] = frozenset()
    changes: tuple[LoggedKeyChange, ...] = ()

    def last(self, changes: Iterable[LoggedKeyChange]) -> LoggedKeyChange | None:
        """The last of ``changes`` after which one of the keys is there, or is there no more."""
        meant = [
            change for change in changes if not change.key or change.key in self.keys or change.former in self.keys
        ]
        return meant[-1] if meant else None

    def is_removed_by(self, change: LoggedKeyChange) -> bool:
        """Whether a change took the last row of the keys away."""
        return ChangeOp(change.op).removes or (change.former is not None and change.key not in self.keys)


class TableLog:
    """The changes of one table in a change log.

    Attributes:
        columns: the columns of the table, and their types; the last shape's first.
    """

    def __init__(self, log: DataFrame, table: str, capture: Node, mark: Mapping[str, Any] | None) -> None:
        self._mark = mark
        self._rows = log.where(F.col(PARTITION) == table)
        self._shapes = facts_of(self._rows, str(capture), capture).shapes
        self._by_id = {shape.id: shape for shape in self._shapes}
        self.columns: dict[str, str] = {}
        for shape in self._shapes:
            for name, kind in shape.columns:
                self.columns.setdefault(name, kind)

    @property
    def key(self) -> Key:
        """The columns of the table's key, in the order in which the log has their values."""
        return self._shapes[0].key

    def histories(self, columns: Sequence[str], asked: Sequence[str]) -> dict[str, KeyHistory]:
        """By key that is asked for, the changes of all rows that had it, in their order.

        Args:
            columns: the columns that the keys are of.
            asked: each key as one text, of values as the node's table has them or as the database writes them.
        """
        data = self._rows.where(F.col("op").isin([op.value for op in _DATA]))
        by_key = self._keys(data, columns, asked)
        pairs = self._pairs(data)
        connected_keys = {asked_key: _connected(keys, pairs) for asked_key, keys in by_key.items()}
        rows = self._collected(data, set().union(*connected_keys.values()) if connected_keys else set())
        history_by_key: dict[str, KeyHistory] = {}
        for asked_key, keys in connected_keys.items():
            of_keys = [row for row in rows if row["key"] is None or tuple(row["key"]) in keys]
            history_by_key[asked_key] = KeyHistory(frozenset(by_key[asked_key]), tuple(self._replayed(of_keys)))
        return history_by_key

    def _keys(self, data: DataFrame, columns: Sequence[str], asked: Sequence[str]) -> dict[str, set[Key]]:
        """By key that is asked for, the keys of the log's rows that have it."""
        by_lower = {name.lower(): name for name in self.columns}
        names = [by_lower[column.lower()] for column in columns]
        texts = [self._text(name) for name in names]
        kept = data.select(
            "key",
            *[
                text_column.alias(f"{form}{index}")
                for index, pair in enumerate(texts)
                for form, text_column in pair.items()
            ],
        )
        keys_by_asked: dict[str, set[Key]] = defaultdict(set)
        for form in ("written", "shown"):
            sql = key_sql([f"{form}{index}" for index in range(len(names))])
            rows = only_asked(
                kept.where(F.col("key").isNotNull()).selectExpr(f"{sql} AS {_ASKED}", "key"), asked, _ASKED
            )
            for row in rows.select(_ASKED, "key").distinct().collect():
                keys_by_asked[row[_ASKED]].add(tuple(row["key"]))
        return keys_by_asked

    def _text(self, name: str) -> dict[str, Column]:
        """A column's value in a row: as the database writes it, and as the node's table has it."""
        value = text_of(self._shapes, name)
        if name in self.key:
            # A row that is gone has its key alone.
            value = F.coalesce(value, F.col("key")[self.key.index(name)])
        return {"written": value, "shown": shown_text(value, self.columns[name], types_of_log(self._mark))}

    def _pairs(self, data: DataFrame) -> list[tuple[Key, Key]]:
        """The keys of rows whose key changed: before and after."""
        former = F.array(*[text_of(self._shapes, name, "before") for name in self.key])
        moved = data.where((F.col("op") == Op.CREATE.value) & F.col("before").isNotNull())
        return [
            (tuple(row["former"]), tuple(row["key"])) for row in moved.select("key", former.alias("former")).collect()
        ]

    def _collected(self, data: DataFrame, keys: Collection[Key]) -> list[Any]:
        if not keys:
            return []
        spark = data.sparkSession
        wanted = spark.createDataFrame([(list(key),) for key in sorted(keys)], "key ARRAY<STRING>")
        emptied = self._rows.where(F.col("op") == Op.TRUNCATE.value)
        rows = data.join(F.broadcast(wanted), "key", "left_semi").select(*data.columns).unionByName(emptied)
        chosen = rows.select(
            "n",
            "op",
            "lsn",
            "xid",
            F.unix_micros("committed_at").alias("at"),
            "key",
            "before",
            "after",
            "unchanged",
            "shape",
        )
        return sorted(chosen.collect(), key=lambda row: int(row["n"]))

    def _replayed(self, rows: Sequence[Any]) -> Iterator[LoggedKeyChange]:
        """The changes that the rows of the log are, with what each changed."""
        replay, leaves = _RowReplay(self._by_id, self._mark), None
        for index, row in enumerate(rows):
            if index + 1 < len(rows) and self._is_moved(row, rows[index + 1]):
                # A changed key is a deletion and an insertion in the log.
                leaves = tuple(row["key"])
                continue
            change = replay.taken(row, leaves=leaves)
            leaves = None
            if change is not None:
                yield change

    def _is_moved(self, row: Any, following: Any) -> bool:
        """Whether a deletion and the row that follows it are one change of a key."""
        is_deletion, same = row["op"] == Op.DELETE.value, row["lsn"] == following["lsn"]
        return bool(is_deletion and same and self._former(following) == row["key"])

    def _former(self, row: Any) -> list[str | None] | None:
        """The key that a row had before the change; None if its key did not change."""
        if row["op"] != Op.CREATE.value or row["before"] is None:
            return None
        shape = self._by_id[row["shape"]]
        return [row["before"][shape.place(name) or 0] for name in shape.key]


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _connected(keys: set[Key], pairs: Sequence[tuple[Key, Key]]) -> set[Key]:
    """``keys``, and all keys that their rows had before and after."""
    connected = set(keys)
    while more := {key for pair in pairs if connected.intersection(pair) for key in pair} - connected:
        connected |= more
    return connected
