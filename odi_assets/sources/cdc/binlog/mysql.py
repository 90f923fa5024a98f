"""MySQL: what its server is asked, and how a snapshot of it and its log meet.

No statement of MySQL says which position of the log a snapshot sees. What the server does say, without a lock, are two
bounds. Before the snapshot begins, the end of the log is read, and then the transactions are awaited that have their
GTID and are not visible yet (``gtid_owned``): so the snapshot sees the log at least up to that end. The end of the log
that is read once the snapshot has begun is the other bound, for a commit is in the log before anybody sees it.

Between the two lie the transactions of an instant, and commits become visible in the order of the log
(``binlog_order_commits``). So the snapshot sees a first part of them. The rows that they changed are looked up in the
snapshot: it sees as many of the transactions as give these rows together. Where several numbers do, all of them give
the same rows, and the largest counts. The log has whole rows, so they can be compared. A statement that changed a
table, or more changes than can be looked up, leave the place unknown: then another snapshot is begun.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import numpy.typing as npt

from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.binary_log import PATIENCE, BinaryLog, LogPart
from odi_assets.sources.cdc.binlog.events import Committed
from odi_assets.sources.cdc.binlog.session import BinlogSession
from odi_assets.sources.cdc.binlog.statements import Statement
from odi_assets.sources.cdc.binlog.texts import of_32_bits
from odi_assets.sources.cdc.capture import log_rows
from odi_assets.sources.cdc.changes import LogChanges, LogWindow
from odi_assets.sources.cdc.log import Op, Shape, ShapeColumn
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.sources.sql.keys import utf8_text
from odi_assets.util.lazy import pymysql

_OLDEST = (8, 0, 26)
"""Since this version, statements and settings speak of replicas; the log names columns since 8.0.1."""
_STATUS_RENAMED = (8, 2)
_MOST_ROWS, _AT_ONCE = 5_000, 500
_ALTERED_SINCE = 1412
"""The error of a table whose columns changed after a snapshot began."""
_Texts = list[str | None] | None
"""The values of a row; None: there is no such row."""
_NUMBERS = ("int", "bit", "decimal", "year", "float", "double")


class MysqlSession(BinlogSession):
    """A session of MySQL with fixed settings."""

    SETTINGS = (
        "SET time_zone = '+00:00', sql_mode = '', max_execution_time = 0, net_write_timeout = 600 "
        "/*!80030 , show_gipk_in_create_table_and_information_schema = ON */",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    )
    SECTION = "mysqld"
    BEFORE_DUMP = "SET @source_binlog_checksum = @@global.binlog_checksum"
    REPLICAS = "SHOW REPLICAS"
    PREPARED = "XA RECOVER CONVERT XID"
    RIGHTS = "REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN"
    RIGHTS_OF_REPLICAS = "REPLICATION SLAVE"

    @property
    def status_query(self) -> str:
        return "SHOW BINARY LOG STATUS" if self.version >= _STATUS_RENAMED else "SHOW MASTER STATUS"

    @property
    def why_too_old(self) -> str | None:
        if self.version >= _OLDEST:
            return None
        return (
            f"the server is too old ({self.shown_version}): the log of MySQL is captured from version "
            f"{'.'.join(map(str, _OLDEST))} on"
        )

    @property
    def is_replica(self) -> bool:
        with self._as_reader():
            return bool(self.rows("SHOW REPLICA STATUS"))

    def system(self) -> str:
        return self.variable("server_uuid")

    def lacking(self) -> Iterator[tuple[str, str]]:
        yield from super().lacking()
        if self.variable("gtid_mode") != "ON":
            yield (
                "the server gives its transactions no GTIDs, so it does not say which of them can be seen",
                "SET GLOBAL enforce_gtid_consistency = ON; SET GLOBAL gtid_mode = OFF_PERMISSIVE; "
                "SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = ON, one after the other; and the same in "
                "the server's settings",
            )
        if self.variable("binlog_order_commits") != "ON":
            yield (
                "the server's `binlog_order_commits` is OFF: transactions become visible in another order than the "
                "log's",
                "SET GLOBAL binlog_order_commits = ON; and the same in the server's settings",
            )
        if self.variable("binlog_row_value_options"):
            yield (
                "the server's `binlog_row_value_options` leaves a part of changed JSON values out of its log",
                "SET GLOBAL binlog_row_value_options = ''; and the same in the server's settings. Sessions that are "
                "open go on as before: let them end",
            )

    def owned(self) -> set[str]:
        """The transactions that have their GTID, and that are being committed."""
        owned = set()
        for listed in str(self.rows("SELECT @@global.gtid_owned")[0][0]).split(","):
            # A server or a tag, then its transactions: a number and the number of the session, with # between.
            source, *parts = listed.strip().split(":")
            for part in parts:
                if "#" in part:
                    owned.add(f"{source}:{part}")
                else:
                    source = f"{source.partition(':')[0]}:{part}"
        return owned

    def knows(self, gtid: str) -> bool:
        """Whether the server has committed a transaction, or is committing it."""
        owned = any(transaction.startswith(f"{gtid}#") for transaction in self.owned())
        (row,) = self.rows(f"SELECT GTID_SUBSET({utf8_text(gtid)}, @@global.gtid_executed)")
        return owned or bool(row[0])

    @cached_property
    def charsets(self) -> dict[int, str]:
        return self._charsets_in("collations")


class MysqlLog(BinaryLog):
    """The binary log of a MySQL server."""

    _session: MysqlSession

    def require(self, mark: CaptureMark | None) -> None:
        super().require(mark)
        gtid = "" if mark is None or mark.binlog is None else mark.binlog.gtid
        if gtid and not self._session.knows(gtid):
            raise IdentityMismatchError(
                f"{self._label}: the transaction {gtid} was captured, and the server does not know it: it was put back "
                "from an older copy of its data",
                fix=self._database.again,
            )

    def _first_position(self, end: int) -> int:
        self._await_seen()
        return end

    def _settle(self, part: LogPart) -> None:
        # A snapshot begins after what it has to see.
        del part

    def _await_seen(self) -> None:
        """Wait until transactions that are in the log now are seen by everybody."""
        deadline = time.monotonic() + PATIENCE
        left = self._session.owned()
        while left:
            if time.monotonic() > deadline:
                raise SourceError(
                    f"{self._label}: a transaction that is in the log is not seen by anybody, for {PATIENCE:.0f} "
                    "seconds now: its commit waits for a replica",
                    fix="SHOW PROCESSLIST shows what it waits for; the next run tries again",
                    label=self._label,
                )
            time.sleep(0.002)
            left &= self._session.owned()

    @contextmanager
    def _snapshot(self, mark: CaptureMark) -> Iterator[tuple[BinlogSession, int]]:
        deadline = time.monotonic() + PATIENCE
        with self._another() as session:
            while True:
                low = self.log_end()
                self._await_seen()
                session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                try:
                    position = self._seen_by(session, mark, low)
                except pymysql.Error as error:
                    if not error.args or error.args[0] != _ALTERED_SINCE:
                        raise
                    position = None
                if position is not None:
                    break
                session.rows("ROLLBACK")
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"{self._label}: for {PATIENCE:.0f} seconds, no snapshot could be put in its place in the log: "
                        "its tables were changed by statements, or by too many changes at once, all the time",
                        fix="the next run tries again",
                        label=self._label,
                    )
            yield session, position
            session.rows("ROLLBACK")

    def _seen_by(self, session: BinlogSession, mark: CaptureMark, low: int) -> int | None:
        """Up to where the log has what a snapshot sees; None if that cannot be said.

        Args:
            low: what lies below is seen.
        """
        high = self.log_end()
        if low == high:
            return low
        # From the mark on: what is committed in between may have been prepared by XA long before. What the server does
        # not give of its log yet, nobody sees.
        unknown = [found for found in self._part(mark, high, None).transactions if found.position > low]
        if not unknown:
            return low
        if any(isinstance(entry, Statement) for transaction in unknown for entry in transaction.entries):
            return None
        seen = self._count_of_seen(session, unknown, self._window(LogPart(unknown, False, high)))
        if seen is None:
            return None
        return unknown[seen - 1].position if seen else low

    def _count_of_seen(self, session: BinlogSession, unknown: Sequence[Committed], window: LogWindow) -> int | None:
        """How many of the transactions a snapshot sees."""
        if sum(len(changes.at) for changes in window.changes) > _MOST_ROWS:
            return None
        possible = np.ones(len(unknown) + 1, np.bool_)
        by_table: dict[str, list[LogChanges]] = defaultdict(list)
        for changes in window.changes:
            by_table[changes.relation.table].append(changes)
        for table, listed in by_table.items():
            # A statement that changes columns lies between two shapes.
            shapes = {self._shape(changes.relation).id: changes for changes in listed}  # type: ignore[arg-type]
            if len(shapes) > 1:
                return None
            shape = self._shape(listed[0].relation)  # type: ignore[arg-type]
            states = _states(listed, shape, window)
            rows = self._rows_of(session, table, shape, list(states))
            for key, changed in states.items():
                possible &= _possible(changed, rows.get(key), len(unknown))
        counts = np.flatnonzero(possible)
        return int(counts[-1]) if len(counts) else None

    def _rows_of(
        self, session: BinlogSession, table: str, shape: Shape, keys: Sequence[tuple[str, ...]]
    ) -> dict[tuple[str, ...], _Texts]:
        """The rows that a snapshot has of some keys, by key."""
        columns = [column for column in shape.columns if column.key]
        relation = ".".join(map(session.dialect.quoted, table.split(".")))
        rows: dict[tuple[str, ...], _Texts] = {}
        for first in range(0, len(keys), _AT_ONCE):
            where = " OR ".join(
                " AND ".join(
                    f"{session.dialect.quoted(column.name)} = {_constant(text, column)}"
                    for column, text in zip(columns, key, strict=True)
                )
                for key in keys[first : first + _AT_ONCE]
            )
            data, values = session.texts(relation, shape, where)
            found = values.texts(data).to_pylist()
            rows |= {tuple(row[place] for place in shape.key_places): row for row in found}
        return rows


def _states(
    listed: Sequence[LogChanges], shape: Shape, window: LogWindow
) -> dict[tuple[str, ...], list[tuple[int, _Texts]]]:
    """By key, the rows that transactions have left, in their order, each with the number of its transaction."""
    changed: list[tuple[int, int, int, tuple[str, ...], _Texts]] = []
    for changes in listed:
        logged = log_rows(changes, shape, window)
        numbers = changes.transaction[logged.of]
        for row, number, (at, which) in zip(logged.rows.to_pylist(), numbers, logged.at, strict=True):
            after = None if row["op"] == Op.DELETE else row["after"]
            changed.append((int(at), int(which), int(number), tuple(row["key"]), after))
    states: dict[tuple[str, ...], list[tuple[int, _Texts]]] = defaultdict(list)
    for _, _, number, key, after in sorted(changed, key=lambda row: row[:2]):
        states[key].append((number, after))
    return states


def _possible(changed: Sequence[tuple[int, _Texts]], row: _Texts, count: int) -> npt.NDArray[np.bool_]:
    """By number of transactions, whether a snapshot that sees as many of them may have this row for a key."""
    possible = np.zeros(count + 1, np.bool_)
    # Before its first change, the row is what it was.
    possible[: changed[0][0] + 1] = True
    ends = [number for number, _ in changed[1:]] + [count]
    for (number, after), end in zip(changed, ends, strict=True):
        possible[number + 1 : end + 1] = after == row
    return possible


def _constant(text: str, column: ShapeColumn) -> str:
    """A key's value in SQL. A collation may find other texts too: the caller compares them."""
    bare = column.type.partition("(")[0].partition(" ")[0]
    if bare == "float":
        return f"({of_32_bits(text)})"
    if bare.endswith(_NUMBERS):
        return f"({text})"
    return f"X'{text[2:]}'" if text.startswith("\\x") and bare.endswith(("binary", "blob")) else utf8_text(text)
