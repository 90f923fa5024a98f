"""The log of a PostgreSQL database, through one slot and one publication."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from odi_assets.config.models.databases import LogSettings
from odi_assets.errors import ConfigError, IdentityMismatchError, SourceError
from odi_assets.sources.cdc.changes import LoggedRelation, LogWindow, Transactions, Values
from odi_assets.sources.cdc.database import CapturedTable, DatabaseLog, LoggedDatabase, SnapshotReader
from odi_assets.sources.cdc.definition import TableDefinition
from odi_assets.sources.cdc.lag import LogLag
from odi_assets.sources.cdc.log import Shape, ShapeColumn
from odi_assets.sources.cdc.look import LONGEST_LOOK
from odi_assets.sources.cdc.mark import CaptureMark, lsn_text
from odi_assets.sources.cdc.postgres.definitions import definitions
from odi_assets.sources.cdc.postgres.peek import PublicationGapError
from odi_assets.sources.cdc.postgres.pgoutput import Counted, LogRelation, begun, completed, decode, first_of
from odi_assets.sources.cdc.postgres.server import ServerSession, Slot, connected
from odi_assets.sources.cdc.postgres.tables import PostgresTable
from odi_assets.sources.cdc.postgres.visible import Visible
from odi_assets.sources.cdc.postgres.waiting import TAKEN_FIX, SlotTakenError, await_others, is_let_go, wait
from odi_assets.sources.snapshot import Position

_log = logging.getLogger(__name__)

_BEHIND = "it was behind by more log than the server may keep (`max_slot_wal_keep_size`)"
_WHY_LOST = {
    "idle_timeout": "nobody has read it for longer than the server allows (`idle_replication_slot_timeout`)",
    "wal_level_insufficient": "the server's `wal_level` was not `logical` for a while",
    "rows_removed": "rows that are needed to read it are gone",
}
"""By the server's word, why a slot was invalidated; else it was behind."""


@dataclass(frozen=True, kw_only=True)
class PostgresDatabase(LoggedDatabase):
    """A PostgreSQL database whose log is captured.

    Attributes:
        log: the slot and the publication.
    """

    log: LogSettings

    @property
    def slot(self) -> str:
        if self.log.slot is None:
            raise AssertionError("the model of connections wants one")
        return self.log.slot

    @property
    def name(self) -> str:
        return f"{self.dialect.database}:{self.slot}"

    @property
    def cursor_name(self) -> str:
        return "lsn"

    @property
    def uri(self) -> str:
        return f"{self.dialect.uri}/{self.slot}"

    @property
    def publication(self) -> str:
        return self.log.publication or self.slot

    @property
    def warn_lag(self) -> int:
        return self.log.warn_lag

    @contextmanager
    def opened(self) -> Iterator[PostgresLog]:
        with connected(self.dialect, self.label) as session:
            yield PostgresLog(self, session)


class PostgresReader(SnapshotReader):
    """A repeatable read of a PostgreSQL database."""

    def __init__(self, session: ServerSession, publication: str) -> None:
        self._session, self._publication = session, publication
        self._seen = session.snapshot()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._session.rows(query)

    def sees(self, transactions: Transactions) -> Any:
        return self._seen.sees(self._seen.whole(transactions.xid))

    def log_end(self) -> int:
        return self._session.log_end()

    def shape(self, table: CapturedTable) -> Shape:
        return self._session.shapes([cast(PostgresTable, table)], self._publication)[table.name]

    def publishing(self, table: CapturedTable) -> str:
        return self._session.publishing(self._publication).get(table.name, "")

    def texts(self, relation: str, shape: Shape, where: str) -> tuple[Any, Values]:
        return self._session.texts(relation, [column.name for column in shape.columns], where)


class PostgresLog(DatabaseLog):
    """The log of a PostgreSQL database, through a session of it."""

    def __init__(self, database: PostgresDatabase, session: ServerSession) -> None:
        self._database, self.session = database, session
        self._slot_name, self._publication = database.slot, database.publication
        self._oids: dict[str, int] = {}

    @cached_property
    def slot(self) -> Slot | None:
        return self.session.slot(self._slot_name)

    def position(self) -> Position:
        return {} if self.slot is None else {"confirmed": lsn_text(self.slot.confirmed)}

    def text(self, position: int) -> str:
        return lsn_text(position)

    def require(self, mark: CaptureMark | None) -> None:
        self.session.require_logical()
        self.require_slot(mark)

    def require_slot(self, mark: CaptureMark | None) -> None:
        """Raises an error that names a way on if the slot does not go on where the mark is."""
        slot = self.slot
        label, name, again = self._database.label, self._slot_name, self._database.again
        if slot is None:
            self._require_new(mark)
            return
        if slot.plugin != "pgoutput" or slot.database != self._database.dialect.database:
            raise ConfigError(
                f"{label}: the slot `{name}` is one of the plugin {slot.plugin} and of the database "
                f"{slot.database or 'none'}",
                fix="name another slot in `log.slot` of the connection",
                node=self._database.node,
            )
        if slot.wal_status == "lost":
            raise IdentityMismatchError(
                f"{label}: the server has invalidated the slot `{name}`: {_WHY_LOST.get(slot.why_lost, _BEHIND)}",
                fix=f"SELECT pg_drop_replication_slot('{name}'); then {again}",
            )
        if slot.active_pid is not None:
            slot = self._let_go(slot)
        if mark is None:
            if slot.confirmed:
                where = lsn_text(slot.confirmed)
                _log.info("%s: the slot %s is there already, and is used from %s on", self._database.node, name, where)
            return
        if mark.system != self.session.system():
            raise IdentityMismatchError(
                f"{label}: this is another server or another database than was captured before",
                fix=f"correct the connection; or {again}",
            )
        if slot.confirmed > mark.end:
            raise IdentityMismatchError(
                f"{label}: the slot `{name}` was moved to {lsn_text(slot.confirmed)} by somebody else, or made "
                f"again; the log above {lsn_text(mark.lsn)} is lost to it{self._taken_over(mark)}",
                fix=again,
            )
        other = self._other_history(mark, slot)
        if other is not None:
            raise IdentityMismatchError(
                f"{label}: {other}: the server was put back from an older copy of its data, and its log is another one "
                f"from there on{self._taken_over(mark)}",
                fix=again,
            )
        if taken_over := self._taken_over(mark):
            _log.warning("%s: the slot %s goes on%s", self._database.node, name, taken_over)

    def _taken_over(self, mark: CaptureMark) -> str:
        """That another server has taken over since the mark was noted, in words; empty if nothing says so."""
        now = self.session.timeline()
        if mark.timeline in (None, now):
            return ""
        return (
            f"; since then a standby was promoted, or the server was restored: its log is of timeline {now}, and was "
            f"of timeline {mark.timeline}"
        )

    def _let_go(self, slot: Slot) -> Slot:
        """The slot, once another session has let it go: it has moved then, perhaps."""
        newest: Slot | None = slot

        def is_free() -> bool:
            nonlocal newest
            newest = self.session.slot(slot.name)
            return newest is None or newest.active_pid is None

        if not is_let_go(is_free) or newest is None:
            raise SlotTakenError(
                f"{self._database.label}: the slot `{slot.name}` is read by another session now (pid "
                f"{slot.active_pid}), and a slot has one reader",
                fix=TAKEN_FIX,
            )
        self.slot = newest
        return newest

    def _other_history(self, mark: CaptureMark, slot: Slot) -> str | None:
        """Why the log up to the mark is not the one that was captured, in words; None if nothing says so.

        The slot moves to the mark after each commit. If it stands below, the run died before, or the server lost the
        move in a crash; or server and slot are older than the mark.
        """
        end = self.log_end()
        if end < mark.end:
            return f"the log ends at {lsn_text(end)}, and was captured up to {lsn_text(mark.end)}"
        if slot.confirmed >= mark.end:
            return None
        self.session.await_flushed(mark.end)
        is_there = mark.xid is None or mark.lsn < slot.confirmed
        for part in self._peek(mark.end, None):
            for transaction in begun(part):
                if mark.lsn < transaction.lsn < mark.end:
                    return (
                        f"the transaction {transaction.xid} at {lsn_text(transaction.lsn)} was not there when the log "
                        "was captured"
                    )
                is_there = is_there or (transaction.lsn == mark.lsn and transaction.xid == mark.xid)
        if is_there:
            return None
        now = self.session.slot(slot.name)
        if now is not None and now.confirmed > slot.confirmed:
            # A run has moved the slot during the look, which begins where the slot stands.
            self.slot = now
            return self._other_history(mark, now)
        return f"the transaction {mark.xid} is not at {lsn_text(mark.lsn)}, where it was captured"

    def _require_new(self, mark: CaptureMark | None) -> None:
        """Raises an error if a slot that is not there may not be made."""
        label, name = self._database.label, self._slot_name
        if mark is not None:
            raise IdentityMismatchError(
                f"{label}: the slot `{name}` is gone, and with it the log above {lsn_text(mark.lsn)}"
                f"{self._taken_over(mark)}",
                fix=self._database.again,
            )
        if not self._database.log.create:
            raise SourceError(
                f"{label}: the server has no slot `{name}`",
                fix=f"add `create: true` to `log`; or SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')",
            )

    def tables(self, patterns: Sequence[str], known: Collection[str] = ()) -> dict[str, CapturedTable]:
        tables = {table.name: table for table in self.session.tables(patterns, known)}
        self._oids |= {name: table.oid for name, table in tables.items()}
        return dict(tables)

    def require_captured(self, tables: Sequence[CapturedTable]) -> None:
        for table in cast(Sequence[PostgresTable], tables):
            if table.unidentified is not None:
                raise ConfigError(
                    f"{self._database.label}: {table.name} has {table.unidentified}, so the log does not say which row "
                    "was changed, and its applications could change no row any more once it is published",
                    fix=f"give it a primary key; or ALTER TABLE {table.quoted} REPLICA IDENTITY FULL; or leave it out "
                    "of `tables`",
                    node=self._database.node,
                )

    def shapes(self, tables: Sequence[CapturedTable]) -> dict[str, Shape]:
        return self.session.shapes(cast(Sequence[PostgresTable], tables), self._publication)

    def columns_left_out(self) -> Mapping[str, Sequence[str]]:
        return self.session.columns_left_out(self._publication)

    def publishing(self) -> Mapping[str, str]:
        return self.session.publishing(self._publication)

    def definitions(self, tables: Sequence[CapturedTable]) -> Mapping[str, TableDefinition]:
        return definitions(self.session, cast(Sequence[PostgresTable], tables))

    def begin(
        self, mark: CaptureMark | None, tables: Mapping[str, CapturedTable], joined: Mapping[str, CapturedTable]
    ) -> CaptureMark:
        """The mark where the log begins; the publication and the slot are there then."""
        session, publication = self.session, self._publication
        published = session.published(publication)
        missing = [
            cast(PostgresTable, table) for name, table in tables.items() if published is None or name not in published
        ]
        if missing:
            if not self._database.log.create:
                names = ", ".join(table.name for table in missing)
                quoted = ", ".join(table.quoted for table in missing)
                raise SourceError(
                    f"{self._database.label}: the publication `{publication}` lacks {names}",
                    fix=f"add `create: true` to `log`; or ALTER PUBLICATION {publication} ADD TABLE {quoted}",
                )
            session.publish(publication, missing, new=published is None)
        if joined or missing:
            # A transaction that changed a table before it was published goes without these changes into the log. The
            # publication may be older than this run: another run that was stopped here, or somebody else, made it.
            await_others(session.label, session.rows)
        if mark is None:
            slot = session.slot(self._slot_name)
            start = session.create_slot(self._slot_name) if slot is None else slot.confirmed
            # The record that commits a transaction may begin exactly where the slot does.
            mark = CaptureMark(start - 1, start, 1, session.system())
        session.require_all_published(publication, {name: table.key for name, table in tables.items()})
        return mark

    def log_end(self) -> int:
        return self.session.log_end()

    def first_above(self, mark: CaptureMark, until: int) -> int | None:
        """Acknowledged transactions, and those of other tables, may be in the way of a look."""
        published = [table.published.partition("/")[0] for table in mark.tables.values()]
        # Marks of earlier versions do not know the numbers of their tables.
        tables = {int(oid) for oid in published} if all(published) else None
        deadline = time.monotonic() + LONGEST_LOOK
        most, count = 1, 1
        while count >= most:
            most *= 16
            looked_at = Counted(self._peek(until, most, deadline - time.monotonic()))
            transaction = first_of(looked_at, mark.lsn, tables)
            if transaction is not None:
                return transaction.committed_us
            count = looked_at.count
        return None

    def lag(self, mark: CaptureMark, until: int, oldest: int | None) -> LogLag | None:
        if self.slot is None:
            return None
        seconds = oldest
        if oldest:
            now = int(self.session.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))
            seconds = max(0, (now - oldest) // 1_000_000)
        return LogLag(max(0, until - mark.end), seconds, self.slot.behind_bytes)

    def outrun(self, mark: CaptureMark, until: int, most_bytes: int) -> str | None:
        gap = until - mark.end
        return f"the server may let {gap:,} bytes of its log go" if gap > most_bytes else None

    def _peek(self, upto: int, most: int | None, seconds: float | None = None) -> Iterator[list[bytes]]:
        try:
            yield from self.session.peek(self._slot_name, self._publication, upto, most, seconds)
        except PublicationGapError as error:
            # The server reads the log with the catalog of the time of each change.
            raise IdentityMismatchError(
                f"{self._database.label}: there was no publication `{self._publication}` for a while, and the server "
                "does not read its log over that time",
                fix=f"SELECT pg_drop_replication_slot('{self._slot_name}'); then {self._database.again}",
            ) from error

    def is_behind(self, mark: CaptureMark, upto: int, most: int) -> bool:
        del mark
        self.session.await_flushed(upto)
        return sum(map(len, self._peek(upto, most))) >= most

    def windows(self, mark: CaptureMark, upto: int, most: int | None) -> Iterator[LogWindow]:
        self.session.await_flushed(upto)
        followed = _Followed.of(mark, self._oids)
        if most is None:
            window = decode([message for part in self._peek(upto, None) for message in part])
            yield _ended(followed.named(window), more=False)
            return
        known: Mapping[int, LogRelation] = {}
        count = 0
        for messages in completed(self._peek(upto, most)):
            count += len(messages)
            window = decode(messages, known)
            known = cast(Mapping[int, LogRelation], window.relations)
            yield _ended(followed.named(window), more=count >= most)

    def looked_at(self, mark: CaptureMark, upto: int) -> int:
        return max(mark.end, upto)

    def shape_of(self, relation: LoggedRelation, table: CapturedTable) -> Shape:
        columns = cast(LogRelation, relation).columns
        kinds = [(column.type_oid, column.modifier) for column in columns]
        names = self.session.type_names(kinds)
        # Where the identity is all columns, each of them is flagged as one of the key.
        of_all = relation.identity == "f"
        return Shape(
            tuple(
                ShapeColumn(column.name, names[kind], column.name in table.key if of_all else column.is_key)
                for column, kind in zip(columns, kinds, strict=True)
            )
        )

    @contextmanager
    def reading(self, mark: CaptureMark) -> Iterator[PostgresReader]:
        with connected(self._database.dialect, self._database.label) as session:
            if mark.pending:
                wait(
                    session.label,
                    lambda: not set(mark.pending) & session.snapshot().running,
                    "a transaction that is in the log is not seen by anybody yet: its commit waits for a standby",
                )
            session.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield PostgresReader(session, self._publication)
            session.rows("ROLLBACK")

    def pending(self, mark: CaptureMark, passed: Transactions) -> tuple[int, ...]:
        visible: Visible = self.session.snapshot()
        known = {int(xid) for xid in visible.whole(passed.xid)} | set(mark.pending)
        return tuple(sorted(known & visible.running))

    def noted(self, mark: CaptureMark) -> CaptureMark:
        return replace(mark, timeline=self.session.timeline())

    def why_gone(self, mark: CaptureMark) -> str | None:
        if self.slot is None:
            return f"the slot `{self._slot_name}` is gone"
        confirmed = self.slot.confirmed
        return None if confirmed <= mark.end else f"it is gone below {lsn_text(confirmed)}"

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.session.rows(query)

    def key_text(self, text: str, kind: str) -> str:
        del kind
        return text

    def acknowledge(self, mark: CaptureMark) -> None:
        self.session.advance(self._slot_name, lsn_text(mark.end))

    def worries(self, mark: CaptureMark) -> str | None:
        del mark
        return None


@dataclass(frozen=True)
class _Followed:
    """Captured tables that are the same as when their snapshots were read: they are known by their numbers.

    Attributes:
        names: by number, what the tables are called. A table may have had another name for a while.
    """

    names: Mapping[int, str]

    @classmethod
    def of(cls, mark: CaptureMark, oids: Mapping[str, int]) -> _Followed:
        """The tables of ``mark`` that are the same.

        Args:
            oids: by name, the numbers that tables have now.
        """
        known = {name: table.published.partition("/")[0] for name, table in mark.tables.items()}
        return cls({oid: name for name, oid in oids.items() if known.get(name) == str(oid)})

    def named(self, window: LogWindow) -> LogWindow:
        """A window that calls each of them by its name of now, and no other table so."""
        relations = {oid: self._named(cast(LogRelation, relation)) for oid, relation in window.relations.items()}
        changes = [
            replace(change, relation=self._named(cast(LogRelation, change.relation))) for change in window.changes
        ]
        return replace(window, changes=tuple(changes), relations=relations)

    def _named(self, relation: LogRelation) -> LogRelation:
        if relation.oid in self.names:
            return relation.renamed(self.names[relation.oid])
        return relation.renamed(None) if relation.table in self.names.values() else relation


def _ended(window: LogWindow, *, more: bool) -> LogWindow:
    end = int(window.transactions.end[-1]) if len(window.transactions) else 0
    return replace(window, more=more, end=end)
