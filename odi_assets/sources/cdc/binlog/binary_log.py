"""The binary log of a server, through a session of it: what MariaDB and MySQL have in common.

A snapshot and the log meet at a position: a chunk is read in a consistent snapshot, and it is known up to where the log
has what the snapshot sees. How it is known differs: see :mod:`mariadb` and :mod:`mysql`. Only InnoDB keeps such a
promise: tables of other engines are refused.

A commit is in the log before others see it: for a moment, or as long as it waits for a replica. A chunk is read once
the snapshot has reached the last transaction that is in the change log. The mark is two positions. All transactions
that end at or below ``lsn`` are in the change log. Reading goes on at ``end``, which is below if a transaction was
prepared by XA there and has not ended yet.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from odi_assets.errors import ConfigError, IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.counter import ChangeCounter
from odi_assets.sources.cdc.binlog.events import ChangedRows, Committed, EventReader
from odi_assets.sources.cdc.binlog.reader import BinlogReader
from odi_assets.sources.cdc.binlog.rows import RowEvents, changes_of, grouped, joined
from odi_assets.sources.cdc.binlog.session import BinlogSession, ServerTable
from odi_assets.sources.cdc.binlog.statements import Statement
from odi_assets.sources.cdc.binlog.tables import BinlogTable, NamedTable
from odi_assets.sources.cdc.binlog.texts import Charsets, TextPool, of_32_bits
from odi_assets.sources.cdc.changes import (
    LoggedRelation,
    LogWindow,
    Numbers,
    Restart,
    Transactions,
    Truncation,
)
from odi_assets.sources.cdc.database import CapturedTable, DatabaseLog, LoggedDatabase
from odi_assets.sources.cdc.definition import TableDefinition
from odi_assets.sources.cdc.lag import LogLag
from odi_assets.sources.cdc.log import Shape
from odi_assets.sources.cdc.look import LONGEST_LOOK, within
from odi_assets.sources.cdc.mark import BinlogPlace, CaptureMark, binlog_text
from odi_assets.sources.snapshot import Position
from odi_assets.sources.sql.keys import HEX, NUMBER
from odi_assets.util.words import counted

_log = logging.getLogger(__name__)
_LISTED_SECONDS = 1.0
"""Seconds after which a transaction that XA prepares is listed, if it is in the log."""
PATIENCE = 60.0
"""Seconds to wait until transactions that are in the log are seen."""


@dataclass(frozen=True)
class LogPart:
    """Transactions of a binary log.

    Attributes:
        more: there are more below the bound.
        end: where reading goes on.
    """

    transactions: list[Committed]
    more: bool
    end: int


class BinaryLog(DatabaseLog):
    """The binary log of a server, through a session of it.

    Args:
        another: opens one more session.

    Attributes:
        settled: up to this position, all transactions of XA that the last window read are seen by everybody.
        of_xa: where these transactions end; of MySQL, none.
    """

    def __init__(
        self,
        database: LoggedDatabase,
        session: BinlogSession,
        server_id: int,
        another: Callable[[], AbstractContextManager[BinlogSession]],
    ) -> None:
        self._database, self._session = database, session
        self._server_id, self._another = server_id, another
        self._created: dict[int, int] = {}
        self._gtid = ""
        self._types: dict[str, dict[str, str]] = {}
        self.settled, self.of_xa = 0, list[int]()

    @property
    def _label(self) -> str:
        return self._database.label

    @cached_property
    def _status(self) -> tuple[str, int, str, str]:
        return self._session.status()

    @cached_property
    def _base(self) -> str:
        return self._status[0].rpartition(".")[0]

    def _name(self, file: int) -> str:
        return f"{self._base}.{file:06d}"

    def position(self) -> Position:
        # The server keeps its log as long as it is set to.
        return {}

    def text(self, position: int) -> str:
        return binlog_text(self._base, position)

    # Whether the log goes on

    def require(self, mark: CaptureMark | None) -> None:
        self._session.require_rows()
        files = self._session.files()
        if mark is None:
            self._created_of(self.log_end() >> 32)
            return
        again = self._database.again
        if mark.binlog is None or mark.system != self._session.system():
            raise IdentityMismatchError(
                f"{self._label}: this is another server than was captured before",
                fix=f"correct the connection; or {again}",
            )
        end = mark.text(mark.end)
        file, number = end.rpartition(":")[0], mark.end >> 32
        numbers = [int(name.rpartition(".")[2]) for name in files]
        if file not in files and mark.binlog.base == self._base and number < min(numbers, default=0):
            raise IdentityMismatchError(
                f"{self._label}: the server has deleted its log up to {min(files)}, and the capture has read it up "
                f"to {end}: what lies between is lost",
                fix=f"{again}; a longer `binlog_expire_logs_seconds` of the server keeps its log until the next run",
            )
        if file not in files or mark.end & 0xFFFFFFFF > files[file] or self._created_of(number) != mark.binlog.created:
            raise IdentityMismatchError(
                f"{self._label}: the server's log is not the one that was read up to {end}: it was made again (RESET "
                "MASTER), or lost its end in a crash",
                fix=again,
            )

    @property
    def system(self) -> str:
        """What identifies the server's data."""
        return self._session.system()

    def recognized(self, mark: CaptureMark) -> CaptureMark:
        """``mark``, with the second in which its file of the log was made, if the server has the file."""
        number, known = mark.end >> 32, mark.binlog or BinlogPlace(self._base)
        if self._name(number) not in self._session.files():
            return mark
        return replace(mark, binlog=replace(known, created=self._created_of(number)))

    def _events(self, file: int, offset: int) -> Generator[bytes]:
        with self._another() as reader:
            yield from reader.events(self._name(file), offset, self._server_id, self._database.again)

    def _created_of(self, file: int) -> int:
        """When a file of the log was made, in seconds since 1970."""
        if file not in self._created:
            reader = EventReader(self._label, self._database.again, frozenset(), self._base, file)
            with closing(self._events(file, 4)) as events:
                for event in events:
                    for _ in reader.committed([event]):
                        pass
                    if file in reader.created:
                        break
            self._created |= reader.created
        return self._created[file]

    def worries(self, mark: CaptureMark) -> str | None:
        files, file = self._session.files(), mark.text(mark.end).rpartition(":")[0]
        seconds = int(self._session.variable("binlog_expire_logs_seconds") or 0)
        if not seconds or len(files) < 2 or file != min(files, key=lambda name: int(name.rpartition(".")[2])):
            return None
        return (
            f"the server deletes its log after {seconds:,} seconds, and {file}, which is not read to its end, is the "
            "oldest file that is there"
        )

    # Its tables

    def tables(self, patterns: Sequence[str], known: Collection[str] = ()) -> dict[str, CapturedTable]:
        tables = self._session.tables(patterns, known)
        for table in tables:
            if table.refused is not None:
                why, fix = table.refused
                raise ConfigError(f"{self._label}: {table.name} {why}", fix=fix, node=self._database.node)
        return {table.name: table for table in tables}

    def require_captured(self, tables: Sequence[CapturedTable]) -> None:
        for table in cast(Sequence[ServerTable], tables):
            name = self._session.leaving_out(table.database)
            if name is not None:
                raise ConfigError(
                    f"{self._label}: the server leaves the database {table.database} out of its log (`{name}`)",
                    fix=f"change `{name}` in the server's settings, and restart it",
                    node=self._database.node,
                )

    def shapes(self, tables: Sequence[CapturedTable]) -> dict[str, Shape]:
        return self._session.shapes(tables)

    def columns_left_out(self) -> Mapping[str, Sequence[str]]:
        return {}

    def publishing(self) -> Mapping[str, str]:
        return {}

    def definitions(self, tables: Sequence[CapturedTable]) -> Mapping[str, TableDefinition]:
        del tables
        return {}

    # Where it begins and ends

    def begin(
        self, mark: CaptureMark | None, tables: Mapping[str, CapturedTable], joined: Mapping[str, CapturedTable]
    ) -> CaptureMark:
        del tables
        end = self.log_end()
        if joined and self._session.has_prepared():
            # Their changes are in the log already, and count later. A transaction is in the log before it is listed.
            before = self._session.prepared()
            time.sleep(_LISTED_SECONDS)
            before |= self._session.prepared()
            self._await_ended(before, "may have changed the tables, and have neither committed nor rolled back")
        if mark is not None:
            return mark
        start = self._first_position(end)
        binlog = BinlogPlace(self._base, self._created_of(start >> 32))
        return CaptureMark(start, start, 1, self._session.system(), binlog=binlog)

    @abstractmethod
    def _first_position(self, end: int) -> int:
        """A position at or below the ``end`` of the log, so that any snapshot sees what lies below."""

    def _await_ended(self, prepared: set[str], otherwise: str) -> None:
        """Wait until transactions of XA have ended; raises SourceError if one of them goes on for too long."""
        deadline = time.monotonic() + PATIENCE
        left = prepared & self._session.prepared()
        while left:
            if time.monotonic() > deadline:
                raise SourceError(
                    f"{self._label}: {counted(len(left), 'transaction')} prepared by XA {otherwise}, for "
                    f"{PATIENCE:.0f} seconds now",
                    fix="XA RECOVER lists them; XA COMMIT or XA ROLLBACK ends them. The next run tries again",
                    label=self._label,
                )
            time.sleep(0.02)
            left &= self._session.prepared()

    @abstractmethod
    def _settle(self, part: LogPart) -> None:
        """Wait until everybody sees the transactions of XA in a part of the log, where a snapshot may overlook them."""

    def log_end(self) -> int:
        file, offset, _, _ = self._session.status()
        return int(file.rpartition(".")[2]) << 32 | offset

    def first_above(self, mark: CaptureMark, until: int) -> int | None:
        transactions = self._part(mark, until, 1, LONGEST_LOOK).transactions
        return transactions[0].committed_us if transactions else None

    def lag(self, mark: CaptureMark, until: int, oldest: int | None) -> LogLag | None:
        files = {int(name.rpartition(".")[2]): size for name, size in self._session.files().items()}
        first, last = mark.end >> 32, until >> 32
        if first not in files:
            return None
        between = sum(files.get(number, 0) for number in range(first, last)) + (until & 0xFFFFFFFF)
        seconds = oldest
        if oldest:
            (row,) = self._session.rows("SELECT UNIX_TIMESTAMP()")
            seconds = max(0, int(row[0]) - oldest // 1_000_000)
        return LogLag(max(0, between - (mark.end & 0xFFFFFFFF)), seconds, 0)

    def outrun(self, mark: CaptureMark, until: int, most_bytes: int) -> str | None:
        is_far = until - mark.end > most_bytes
        # Also at the end of a file: it would be deleted some day, and nobody knew that nothing was missed.
        return f"its mark goes on to {self.text(until)}" if is_far else None

    # What it holds

    def _part(self, mark: CaptureMark, upto: int, most: int | None, seconds: float | None = None) -> LogPart:
        """The transactions above a mark, up to a bound, or to the one with which there are as many changes."""
        reader = EventReader(self._label, self._database.again, frozenset(mark.tables), self._base, mark.end >> 32)
        events = self._events(reader.file, mark.end & 0xFFFFFFFF)
        taken: list[Committed] = []
        counter = ChangeCounter(most)
        cut, began = None, list[int]()
        with closing(events):
            for transaction in reader.committed(within(events, seconds)):
                if transaction.position > upto:
                    # It may have been prepared below.
                    began.append(transaction.began)
                    break
                if transaction.position <= mark.lsn or not transaction.entries:
                    continue
                taken.append(transaction)
                cut = counter.full_with(transaction)
                if cut is not None:
                    break
            if cut is None:
                # Those that were not counted yet; if all of them are enough, nothing is left.
                cut = counter.full()
                cut = None if cut == len(taken) else cut
        self._created |= reader.created
        # A server that waits for its disk gives less of its log than it says there is.
        began += [min(upto, reader.whole), *(prepared.began for prepared in reader.prepared.values())]
        if cut is None:
            return LogPart(taken, False, min(began))
        kept, later = taken[:cut], taken[cut:]
        return LogPart(kept, True, min([kept[-1].position, *(committed.began for committed in later), *began]))

    def is_behind(self, mark: CaptureMark, upto: int, most: int) -> bool:
        part = self._part(mark, upto, most)
        self._settle(part)
        return part.more

    def looked_at(self, mark: CaptureMark, upto: int) -> int:
        # A window says itself where the log goes on.
        del upto
        return mark.end

    def windows(self, mark: CaptureMark, upto: int, most: int | None) -> Iterator[LogWindow]:
        part = self._part(mark, upto, most)
        self._settle(part)
        if part.transactions:
            self._gtid = part.transactions[-1].gtid
        yield self._window(part)

    def _window(self, part: LogPart) -> LogWindow:
        """The changes of a part of the log, column by column."""
        entries = [
            (number, entry) for number, transaction in enumerate(part.transactions) for entry in transaction.entries
        ]
        rows = [
            (index, number, entry) for index, (number, entry) in enumerate(entries) if isinstance(entry, ChangedRows)
        ]
        data, ends = joined([event for _, _, event in rows])
        numbers, owners = (np.array([row[which] for row in rows], np.int64) for which in (0, 1))
        groups = grouped([event for _, _, event in rows], numbers, owners, data, ends)
        first_row = _first_rows(len(entries), groups)
        pool = TextPool(data)
        changes = [
            changes_of(group, pool, first_row, self._shape, self._charsets)
            for group in groups
            # Changes of a table without a key lie between two statements, and a new snapshot comes after the second.
            if group.table.key_places
        ]
        truncations, restarts, relations = self._of_statements(entries, first_row)
        transactions = part.transactions
        return LogWindow(
            pool.joined(),
            Transactions(
                np.array([transaction.position for transaction in transactions], np.int64),
                np.array([transaction.position for transaction in transactions], np.int64),
                np.array([transaction.sequence for transaction in transactions], np.int64),
                np.array([transaction.committed_us for transaction in transactions], np.int64),
            ),
            tuple(changes),
            truncations,
            relations,
            restarts,
            part.more,
            part.end,
        )

    def _of_statements(
        self, entries: Sequence[tuple[int, Any]], first_row: Numbers
    ) -> tuple[tuple[Truncation, ...], tuple[Restart, ...], dict[int, LoggedRelation]]:
        """What statements of the log emptied, and what a new snapshot is needed of."""
        truncations: list[Truncation] = []
        restarts: list[Restart] = []
        relations: dict[int, LoggedRelation] = {}
        for index, (number, entry) in enumerate(entries):
            if not isinstance(entry, Statement):
                continue
            if entry.changed:
                _log.warning(
                    "%s: a session whose binlog_format is not ROW wrote a statement to the log (%s …) in the place of "
                    "the rows that it changed: %s gets a new snapshot",
                    self._database.node,
                    entry.verb,
                    ", ".join(entry.restarted),
                )
            for table in entry.emptied:
                relations[len(relations)] = NamedTable(table)
                truncations.append(Truncation(int(first_row[index]), number, (len(relations) - 1,)))
            restarts += [Restart(number, table) for table in entry.restarted]
        return tuple(truncations), tuple(restarts), relations

    @cached_property
    def _charsets(self) -> Charsets:
        return Charsets(self._session.charsets, self._session.byte_texts)

    def _shape(self, table: BinlogTable) -> Shape:
        if table.table not in self._types:
            self._types[table.table] = self._session.types(table.table)
        return table.shape(self._types[table.table], self._session.bytes_of)

    def shape_of(self, relation: LoggedRelation, table: CapturedTable) -> Shape:
        if isinstance(relation, BinlogTable):
            return self._shape(relation)
        return self._session.shapes([table])[table.name]

    @contextmanager
    def reading(self, mark: CaptureMark) -> Iterator[BinlogReader]:
        with self._snapshot(mark) as (session, position):
            yield BinlogReader(session, position, self)

    @abstractmethod
    def _snapshot(self, mark: CaptureMark) -> AbstractContextManager[tuple[BinlogSession, int]]:
        """A consistent snapshot that sees all transactions up to ``mark``, and up to where it sees the log.

        Raises:
            SourceError: some of them are not seen by anybody for too long.
        """

    def pending(self, mark: CaptureMark, passed: Transactions) -> tuple[int, ...]:
        del mark, passed
        return ()

    def noted(self, mark: CaptureMark) -> CaptureMark:
        known = mark.binlog if mark.binlog is not None else BinlogPlace(self._base)
        created = self._created.get(mark.end >> 32, known.created)
        return replace(mark, binlog=BinlogPlace(self._base, created, self._gtid or known.gtid))

    def why_gone(self, mark: CaptureMark) -> str | None:
        try:
            self.require(mark)
        except IdentityMismatchError as error:
            return error.message.removeprefix(f"{self._label}: ")
        return None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._session.rows(query)

    def key_text(self, text: str, kind: str) -> str:
        bare = kind.partition("(")[0]
        if bare in ("enum", "set"):
            raise SourceError(f"{self._label}: keys of the type {kind} are not looked up", label=self._label)
        if bare == "bit":
            return f"{NUMBER}{text}"
        if bare == "float":
            return of_32_bits(text)
        return HEX + text[2:].upper() if bare.endswith(("binary", "blob")) else text

    def acknowledge(self, mark: CaptureMark) -> None:
        del mark


def _first_rows(count: int, groups: Sequence[RowEvents]) -> Numbers:
    """By entry of a window, the number of its first row; a statement counts as one."""
    rows = np.ones(count, np.int64)
    for group in groups:
        numbers, counts = group.rows_of
        rows[numbers] = counts
    return np.cumsum(rows) - rows
