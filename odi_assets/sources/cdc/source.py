"""The log of a database as a source: all changes of some of its tables, from one slot, into one change log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odi_assets.config.models import ChunksConfig, Connection, ReadConfig
from odi_assets.config.models.databases import LogSettings, ServerConnection
from odi_assets.errors import ConfigError, IdentityMismatchError, IncrementError, OdiError, SourceError
from odi_assets.sources.cdc.capture import Capture, CaptureStep
from odi_assets.sources.cdc.lag import LogLag, age_seconds
from odi_assets.sources.cdc.mark import CaptureMark, TableMark, lsn_text
from odi_assets.sources.cdc.server import CapturedTable, ServerSession, Slot, connected
from odi_assets.sources.marks import Identity, Mark
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import Source, Target
from odi_assets.sources.sql.dialects import Dialect, dialect_of
from odi_assets.tables.parts import TableParts
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.sources.losses import Loss

_log = logging.getLogger(__name__)

MOST_CHANGES = 500_000
"""Changes of a step, about: a transaction is never cut."""
QUIET_BYTES = 64 << 20
"""Log that the server keeps although no change of the tables is in it, before a commit without rows lets it go."""


def capture_source(name: str, label: str, read: ReadConfig, target: Target, connection: Connection) -> LogSource:
    """The source that a ``read`` with ``format: cdc`` names."""
    if not isinstance(connection, ServerConnection) or connection.type != "postgres":
        raise ConfigError(
            f"{label}: `format: cdc` reads the log of a PostgreSQL server, and the connection is of another type",
            fix="name a connection of `type: postgres`",
            node=target.node,
        )
    if connection.log is None:
        raise ConfigError(
            f"{label}: the connection `{read.connection}` does not say which slot its log is read through",
            fix=f"add to the connection `log: {{slot: {_slot_of(target.node)}, create: true}}`",
            node=target.node,
        )
    return LogSource(
        name=name,
        label=label,
        target=target,
        connection=read.connection,
        dialect=dialect_of(connection),
        patterns=read.tables,
        log=connection.log,
        chunks=read.snapshot,
    )


def _slot_of(node: str) -> str:
    return "odi_" + "".join(one if one.isalnum() else "_" for one in node.lower())


@dataclass(frozen=True, kw_only=True)
class LogSource(Source):
    """The log of a PostgreSQL database.

    Attributes:
        patterns: the tables, as the project file names them.
        log: the slot and the publication.
        chunks: how snapshots are cut.
        until: where the log ended when the run began, if it began with an earlier step.
    """

    dialect: Dialect
    patterns: tuple[str, ...]
    log: LogSettings
    chunks: ChunksConfig
    until: int | None = None

    @property
    def identity(self) -> Identity:
        return Identity("cdc", f"{self.dialect.database}:{self.log.slot}", "lsn", "log", self.connection, self.uri)

    @property
    def uri(self) -> str:
        return f"{self.dialect.uri}/{self.log.slot}"

    @property
    def watchable(self) -> bool:
        return True

    @property
    def follows(self) -> bool:
        return True

    @property
    def publication(self) -> str:
        return self.log.publication or self.log.slot

    def bounded(self, until: Any, mark: Mark | None) -> LogSource:
        del mark
        return self if until is None else replace(self, until=int(until))

    def snapshot(self) -> LogSnapshot:
        with self.opened() as session:
            return self._snapshot(session.slot(self.log.slot))

    def _snapshot(self, slot: Slot | None) -> LogSnapshot:
        return LogSnapshot(name=self.name, label=self.label, format="cdc", identity=self.identity, slot=slot)

    def position(self) -> Position:
        with self.opened() as session:
            return {"lsn": lsn_text(session.log_end())}

    def change_since(self, then: Position | None) -> str | None:
        del then
        return "what the log holds is not known without reading it"

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        del remembered, typed
        return CaptureMark.of(value, self.label)

    def opened(self) -> Any:
        """A session of the server."""
        return connected(self.dialect, self.label)

    def whole(self) -> Read:
        raise ConfigError(
            f"{self.label}: a log has no beginning that can be read again",
            fix=f"{self._again}, and goes on with the log from there",
            node=self.target.node,
        )

    @property
    def _again(self) -> str:
        node = self.target.node.replace(".", " --node ")
        return f"odi run {node} --full-refresh --yes makes new snapshots of its tables in an empty change log"

    def why_unreachable(self, mark: Mark) -> str | None:
        before = mark if isinstance(mark, CaptureMark) else None
        with self.opened() as session:
            try:
                self.require_slot(session, session.slot(self.log.slot), before)
            except OdiError as error:
                return error.message.removeprefix(f"{self.label}: ")
        return None

    def plan(self, mark: Mark | None) -> PlannedRead:
        before = mark if isinstance(mark, CaptureMark) else None
        with self.opened() as session:
            session.require_logical()
            tables = {table.name: table for table in session.tables(self.patterns)}
            slot = session.slot(self.log.slot)
            self.require_slot(session, slot, before)
            found = self._snapshot(slot)
            new = [name for name in tables if before is None or name not in before.tables]
            changed = [] if before is None else self.with_other_columns(session, before, tables)
            self._require_captured([tables[name] for name in new])
            lag = None if before is None or slot is None else self._lag(session, slot, before)
            read = LogRead(snapshot=found, summary="", before=before, follows=True, source=self, lag=lag)
            if before is None:
                words = f"snapshots of {counted(len(tables), 'table')}, then the log from there"
                return replace(read, summary=words)
            changed += [] if before is None else self.made_again(session, before.tables)
            left = [*dict.fromkeys([*before.snapshots_left, *new, *changed])]
            if left:
                words = f"snapshots of {counted(len(left), 'table')} left, and the log above {lsn_text(before.lsn)}"
                return replace(read, summary=words)
            until = session.log_end() if self.until is None else self.until
            oldest = self._first_above(session, before, until)
            lag = None if slot is None else self._lag(session, slot, before, oldest or 0)
            read = replace(read, lag=lag)
            if oldest is not None:
                return replace(read, summary=f"the log from {lsn_text(before.lsn)} to {lsn_text(until)}: {lag}")
            quiet = until - before.end > QUIET_BYTES and self.until is None
            words = f"no change above {lsn_text(before.lsn)}"
            if quiet:
                return replace(read, summary=f"{words}; the server may let {until - before.end:,} bytes of its log go")
            return NothingNew.of(replace(read, summary=words), words, before)

    def with_other_columns(
        self, session: ServerSession, mark: CaptureMark, tables: Mapping[str, CapturedTable]
    ) -> list[str]:
        """The tables whose columns, types or keys are not those of their last rows in the log."""
        known = {name: one.shape for name, one in mark.tables.items() if one.shape and name in tables}
        now = session.shapes([tables[name] for name in known], self.publication) if known else {}
        layouts = {name: one.layout for name, one in mark.tables.items() if one.layout}
        return [
            name
            for name, shape in known.items()
            if now[name].id != shape or tables[name].layout != layouts.get(name, tables[name].layout)
        ]

    def made_again(self, session: ServerSession, known: Mapping[str, TableMark]) -> list[str]:
        """The tables that were dropped and made again, or published again, since their snapshot was read."""
        now = session.publishing(self.publication)
        return [name for name, one in known.items() if one.published and one.published != now.get(name)]

    def lag(self, mark: CaptureMark) -> LogLag | None:
        """How far a capture is behind now; None if its slot is gone.

        Raises:
            SourceError: the server cannot be reached, or the slot is read by somebody else.
        """
        with self.opened() as session:
            slot = session.slot(self.log.slot)
            oldest = None if slot is None else self._first_above(session, mark, session.log_end())
            return None if slot is None else self._lag(session, slot, mark, oldest or 0)

    def _lag(self, session: ServerSession, slot: Slot, mark: CaptureMark, oldest: int | None = None) -> LogLag:
        """How far a capture is behind.

        Args:
            oldest: when the first transaction above the mark was committed, in microseconds; 0: there is none.
        """
        until = session.log_end() if self.until is None else self.until
        seconds = age_seconds(session, oldest) if oldest else oldest
        return LogLag(max(0, until - mark.end), seconds, slot.behind_bytes)

    def _first_above(self, session: ServerSession, mark: CaptureMark, until: int) -> int | None:
        """When the first transaction above ``mark`` was committed, in microseconds since 1970; None if there is none.

        Acknowledged ones may be in the way of a look.
        """
        from odi_assets.sources.cdc.pgoutput import begun

        most, count = 1, 1
        while count >= most:
            most, count = most * 16, 0
            for part in session.peek(self.log.slot, self.publication, until, most):
                count += len(part)
                for lsn, committed_us in begun(part):
                    if lsn > mark.lsn:
                        return committed_us
        return None

    def require_slot(self, session: ServerSession, slot: Slot | None, mark: CaptureMark | None) -> None:
        """Raises an error that names a way on if the slot does not go on where the mark is."""
        node, name = self.target.node, self.log.slot
        again = self._again
        if slot is None:
            if mark is None:
                if not self.log.create:
                    raise SourceError(
                        f"{self.label}: the server has no slot `{name}`",
                        fix=f"add `create: true` to `log`; or SELECT pg_create_logical_replication_slot('{name}', "
                        "'pgoutput')",
                    )
                return
            raise IdentityMismatchError(
                f"{self.label}: the slot `{name}` is gone, and with it the log above {lsn_text(mark.lsn)}", fix=again
            )
        if slot.plugin != "pgoutput" or slot.database != getattr(self.dialect.connection, "database", ""):
            raise ConfigError(
                f"{self.label}: the slot `{name}` is one of the plugin {slot.plugin} and of the database "
                f"{slot.database or 'none'}",
                fix="name another slot in `log.slot` of the connection",
                node=node,
            )
        if slot.wal_status == "lost":
            raise IdentityMismatchError(
                f"{self.label}: the server has invalidated the slot `{name}`: it was behind by more log than the "
                "server may keep (`max_slot_wal_keep_size`)",
                fix=f"SELECT pg_drop_replication_slot('{name}'); then {again}",
            )
        if slot.active_pid is not None:
            raise SourceError(
                f"{self.label}: the slot `{name}` is read by another session now (pid {slot.active_pid}), and a slot "
                "has one reader",
                fix="give each reader a slot of its own (`log.slot`); a run that has just ended lets it go at once",
            )
        if mark is None:
            if slot.confirmed:
                _log.info(
                    "%s: the slot %s is there already, and is used from %s on", node, name, lsn_text(slot.confirmed)
                )
            return
        system = session.system()
        if mark.system != system:
            raise IdentityMismatchError(
                f"{self.label}: this is another server or another database than was captured before",
                fix=f"correct the connection; or {again}",
            )
        if slot.confirmed > mark.end:
            raise IdentityMismatchError(
                f"{self.label}: the slot `{name}` was moved to {lsn_text(slot.confirmed)} by somebody else, or made "
                f"again; the log above {lsn_text(mark.lsn)} is lost to it",
                fix=again,
            )

    def _require_captured(self, tables: Iterable[CapturedTable]) -> None:
        """Raises ConfigError for tables whose changed rows the log does not identify."""
        for table in tables:
            if table.unidentified is not None:
                raise ConfigError(
                    f"{self.label}: {table.name} has {table.unidentified}, so the log does not say which row was "
                    "changed, and its applications could change no row any more once it is published",
                    fix=f"give it a primary key; or ALTER TABLE {table.quoted} REPLICA IDENTITY FULL; or leave it out "
                    "of `tables`",
                    node=self.target.node,
                )

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        from odi_assets.sources.losses import Loss

        del then, since
        if mark is not None:
            text = "the changes that were captured before: histories that are made of them begin with new snapshots"
            yield Loss(text, for_good=True)

    def begun(self, session: ServerSession, mark: CaptureMark | None) -> tuple[CaptureMark, dict[str, CapturedTable]]:
        """The mark with all tables that are captured now; the publication and the slot are there then."""
        tables = {table.name: table for table in session.tables(self.patterns)}
        published = session.published(self.publication)
        missing = [one for name, one in tables.items() if published is None or name not in published]
        if missing:
            if not self.log.create:
                names = ", ".join(one.name for one in missing)
                quoted = ", ".join(one.quoted for one in missing)
                raise SourceError(
                    f"{self.label}: the publication `{self.publication}` lacks {names}",
                    fix=f"add `create: true` to `log`; or ALTER PUBLICATION {self.publication} ADD TABLE {quoted}",
                )
            session.publish(self.publication, missing, new=published is None)
            # A transaction that changed a table before it was published goes without these changes into the log.
            session.await_ended(session.snapshot().xmax)
        if mark is None:
            slot = session.slot(self.log.slot)
            start = session.create_slot(self.log.slot) if slot is None else slot.confirmed
            # The record that commits a transaction may begin exactly where the slot does.
            mark = CaptureMark(start - 1, start, 1, session.system())
        session.require_all_published(self.publication, list(tables))
        known = {name: one for name, one in mark.tables.items() if name in tables}
        known |= {name: known[name].begun_again for name in self.with_other_columns(session, mark, tables)}
        # What happened to a table before it was published, made again or published again is not in the log.
        known |= {name: replace(known[name].begun_again, rejoined=True) for name in self.made_again(session, known)}
        new = {
            name: TableMark(one.key, is_cut=False, rejoined=name in mark.left_out)
            for name, one in tables.items()
            if name not in known
        }
        left_out = {*mark.left_out, *mark.tables} - tables.keys()
        return replace(mark, tables={**known, **new}, left_out=tuple(sorted(left_out))), tables

    def step(self, mark: CaptureMark | None) -> tuple[CaptureStep, int]:
        """The next step above a mark, and the bound of the run."""
        with self.opened() as session:
            before, tables = self.begun(session, mark)
            if mark is not None:
                session.advance(self.log.slot, lsn_text(before.end))
            until = session.log_end() if self.until is None else self.until
            session.await_flushed(until)
            found = self.capture(session, tables).step(before, until)
            if not found.more and not found.rows.num_rows:
                # All up to the bound was looked at.
                found = replace(found, after=replace(found.after, end=max(found.after.end, until)))
            return replace(found, after=replace(found.after, measures=self.identity)), until

    def capture(self, session: ServerSession, tables: dict[str, CapturedTable]) -> Capture:
        """What reads the log of some tables, and their snapshots."""
        return Capture(
            session,
            self.dialect,
            self.label,
            self.log.slot,
            self.publication,
            tables,
            self.chunks,
            MOST_CHANGES,
            partial(connected, self.dialect, self.label),
        )

    def acknowledge(self, mark: CaptureMark) -> None:
        """Let the server forget the log that is in the change log."""
        try:
            with self.opened() as session:
                session.advance(self.log.slot, lsn_text(mark.end))
        except OdiError as error:
            # The next run does it first.
            _log.warning("%s: its slot was not moved: %s", self.target.node, error)


@dataclass(frozen=True, kw_only=True)
class LogSnapshot(SourceSnapshot):
    """What the server says of the slot."""

    slot: Slot | None

    @property
    def position(self) -> Position:
        return {} if self.slot is None else {"confirmed": lsn_text(self.slot.confirmed)}

    @property
    def summary(self) -> str:
        return "the log"

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        from odi_assets.sources.cdc.log import SCHEMA

        del only
        return spark.createDataFrame(SCHEMA.empty_table())


@dataclass(frozen=True, kw_only=True)
class _OfLog(PlannedRead):
    """What reads of a log have in common.

    Attributes:
        lag: how far the capture was behind when the read was planned; None before the first one.
    """

    lag: LogLag | None = None

    @property
    def metrics(self) -> Mapping[str, Any]:
        return {} if self.lag is None else self.lag.metrics

    def in_partitions(self, wanted: Partitions) -> PlannedRead:
        del wanted
        raise IncrementError(f"{self.label}: a log is read as it comes", fix="write it with append")

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column, node
        return AffectedPartitions(by_rows=True)


@dataclass(frozen=True, kw_only=True)
class LogRead(_OfLog, UnresolvedRead):
    """A step of a capture that is not read yet."""

    source: LogSource
    before: CaptureMark | None = None
    again: bool = False

    def whole(self) -> PlannedRead:
        return self

    def resolve(self, spark: SparkSession) -> Read:
        del spark
        return self._captured()

    def without_spark(self) -> tuple[Read, pa.Table | TableParts]:
        found = self._captured()
        return found, found.rows

    def _captured(self) -> CapturedRows:
        found, until = self.source.step(self.before)
        rows = counted(found.rows.num_rows, "row")
        return CapturedRows(
            snapshot=self.snapshot,
            summary=f"{rows} of the log, up to {lsn_text(found.after.lsn)}",
            before=self.before,
            after=found.after,
            follows=True,
            source=self.source,
            rows=found.rows,
            more=found.more,
            bound=until,
            lag=self.lag,
        )


@dataclass(frozen=True, kw_only=True)
class CapturedRows(_OfLog, Read):
    """A step of a capture, whose rows are here."""

    source: LogSource
    rows: pa.Table | TableParts = field(repr=False, compare=False)
    after: CaptureMark | None = None
    more: bool = False
    bound: int | None = None

    @property
    def goes_on(self) -> bool:
        return self.more

    @property
    def until(self) -> int | None:
        return self.bound

    @property
    def rows_known(self) -> int:
        return int(self.rows.num_rows)

    def whole(self) -> PlannedRead:
        return self

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.rows.whole() if isinstance(self.rows, TableParts) else self.rows)

    def after_commit(self) -> None:
        if self.after is not None:
            self.source.acknowledge(self.after)
