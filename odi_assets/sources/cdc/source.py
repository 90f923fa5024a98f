"""The log of a database as a source: all changes of some of its tables, into one change log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odi_assets.config.models import ChunksConfig
from odi_assets.config.models.databases import LogSettings, ServerConnection
from odi_assets.errors import ConfigError, OdiError
from odi_assets.sources.cdc.binlog.database import BinlogDatabase
from odi_assets.sources.cdc.capture import Capture, CaptureStep
from odi_assets.sources.cdc.database import CapturedTable, DatabaseLog, LoggedDatabase
from odi_assets.sources.cdc.definition import TableDefinition
from odi_assets.sources.cdc.lag import LogLag
from odi_assets.sources.cdc.log_reads import ChangesRead, ChangesSnapshot, LoggedRows
from odi_assets.sources.cdc.look import LookTooLongError
from odi_assets.sources.cdc.mark import CaptureMark, TableMark
from odi_assets.sources.cdc.postgres.database import PostgresDatabase
from odi_assets.sources.cdc.settings import CaptureRead
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import Identity, Mark
from odi_assets.sources.reads import NothingNew, PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Position
from odi_assets.sources.source import Source, SourceContext
from odi_assets.sources.sql.dialects import Dialect, dialect_of
from odi_assets.tables.parts import TableParts
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

MOST_CHANGES = 500_000
"""Changes of a step, about: a transaction is never cut."""
_NAMED_TABLES = 3
"""Tables that messages name; of more, they name the first."""
QUIET_BYTES = 64 << 20
"""Log that the server keeps although no change of the tables is in it, before a commit without rows lets it go."""


def capture_source(read: CaptureRead, context: SourceContext) -> LogSource:
    """The source that a ``read`` with ``format: cdc`` names."""
    label, target, connection = context.label, context.target, context.connection
    if not isinstance(connection, ServerConnection):
        raise AssertionError("checks of the project file refuse it")
    dialect = dialect_of(connection)
    if len(read.captured) > _NAMED_TABLES:
        label = f"{read.connection}:{read.captured[0]} and {counted(len(read.captured) - 1, 'other')}"
    common: dict[str, Any] = {"dialect": dialect, "label": label, "node": target.node}
    database: LoggedDatabase
    if connection.type == "mysql":
        database = BinlogDatabase(**common, log=connection.log or LogSettings())
    else:
        if connection.log is None:
            raise ConfigError(
                f"{label}: the connection `{read.connection}` does not say which slot its log is read through",
                fix=f"add to the connection `log: {{slot: {_slot_of(target.node)}, create: true}}`",
                node=target.node,
            )
        database = PostgresDatabase(**common, log=connection.log)
    return LogSource(
        name=context.name,
        label=label,
        target=target,
        connection=read.connection,
        dialect=dialect,
        patterns=read.tables,
        database=database,
        chunks=read.snapshot,
    )


def _short(tables: Sequence[str]) -> str:
    """Names of tables for a message, of many the first."""
    if len(tables) > _NAMED_TABLES:
        return f"{tables[0]} and {counted(len(tables) - 1, 'other')} are"
    return f"{', '.join(tables)} {'is' if len(tables) == 1 else 'are'}"


def _slot_of(node: str) -> str:
    return "odi_" + "".join(character if character.isalnum() else "_" for character in node.lower())


@dataclass(frozen=True)
class AlteredTables:
    """What happened to captured tables beside the changes of their rows, as one look at the database shows it.

    Attributes:
        rewritten: the tables whose columns, types or keys differ from their last rows in the log, or whose rows were
            rewritten without a trace in it.
        again: the tables that were made again, or published again or otherwise, since their snapshot was read.
        places, definitions: by table, how it is published, and what it is made of now.
    """

    rewritten: tuple[str, ...]
    again: tuple[str, ...]
    places: Mapping[str, str]
    definitions: Mapping[str, TableDefinition]

    def noted(self, mark: TableMark, table: CapturedTable) -> TableMark:
        """The mark of a table with what it is now. Where its rows have other keys now, its next snapshot replaces all.

        The mark of a table that was published again says so until its snapshot begins.
        """
        now, then = self.definitions.get(table.name), mark.definition
        rekeyed = mark.key != table.key or (now is not None and then is not None and now.rewrites_keys(then))
        if table.name not in self.again:
            mark = replace(mark, published=self.places.get(table.name, ""))
        rejoined = mark.rejoined or (rekeyed and not mark.is_cut)
        return replace(mark, definition=None if now is None else now.noted, rejoined=rejoined)


@dataclass(frozen=True, kw_only=True)
class LogSource(Source):
    """The log of a database.

    Attributes:
        patterns: the tables, as the project file names them.
        database: whose log it is.
        chunks: how snapshots are cut.
        until: where the log ended when the run began, if it began with an earlier step.
    """

    dialect: Dialect
    patterns: tuple[str, ...]
    database: LoggedDatabase
    chunks: ChunksConfig
    until: int | None = None

    @property
    def identity(self) -> Identity:
        return Identity("cdc", self.database.name, self.database.cursor_name, "log", self.connection, self.uri)

    @property
    def uri(self) -> str:
        return self.database.uri

    @property
    def watchable(self) -> bool:
        return True

    @property
    def follows(self) -> bool:
        return True

    def bounded(self, until: Any) -> LogSource:
        return self if until is None else replace(self, until=int(until))

    def snapshot(self) -> LogSnapshot:
        with self.opened() as log:
            return self._snapshot(log)

    def _snapshot(self, log: DatabaseLog) -> LogSnapshot:
        return LogSnapshot(
            name=self.name, label=self.label, format="cdc", identity=self.identity, acknowledged=log.position()
        )

    def position(self) -> Position:
        with self.opened() as log:
            return {"lsn": log.text(log.log_end()), **log.position()}

    @property
    def knows_changes(self) -> bool:
        return False

    def change_since(self, then: Position | None) -> str | None:
        del then
        return "what the log holds is not known without reading it"

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        del remembered, typed
        return CaptureMark.of(value, self.label)

    def opened(self) -> AbstractContextManager[DatabaseLog]:
        """A session of the database."""
        return self.database.opened()

    def whole(self) -> Read:
        raise ConfigError(
            f"{self.label}: a log has no beginning that can be read again",
            fix=f"{self.database.again}, and goes on with the log from there",
            node=self.target.node,
        )

    def why_unreachable(self, mark: Mark) -> str | None:
        before = mark if isinstance(mark, CaptureMark) else None
        with self.opened() as log:
            try:
                log.require(before)
                if before is not None:
                    # That the log is there does not say that the server can read it.
                    log.first_above(before, log.log_end())
            except LookTooLongError:
                return None
            except OdiError as error:
                return error.message.removeprefix(f"{self.label}: ")
        return None

    def why_soon_unreachable(self, mark: Mark) -> str | None:
        if not isinstance(mark, CaptureMark):
            return None
        with self.opened() as log:
            return log.worries(mark)

    def plan(self, mark: Mark | None) -> PlannedRead:
        before = mark if isinstance(mark, CaptureMark) else None
        with self.opened() as log:
            log.require(before)
            tables = log.tables(self.patterns, () if before is None else before.tables)
            new = [name for name in tables if before is None or name not in before.tables]
            for name, columns in log.columns_left_out().items() if self.until is None else ():
                if name in tables:
                    _log.warning("%s: the publication of %s lacks %s", self.target.node, name, ", ".join(columns))
            altered = self.altered(log, before, tables)
            log.require_captured([tables[name] for name in new])
            read = LogRead(snapshot=self._snapshot(log), summary="", before=before, follows=True, source=self)
            if before is None:
                words = f"snapshots of {counted(len(tables), 'table')}, then the log from there"
                return replace(read, summary=words)
            until, position, worry = self._until(log), log.text(before.lsn), log.worries(before)
            behind = "" if worry is None else f"; {worry}"
            left = [*dict.fromkeys([*before.snapshots_left, *new, *altered.rewritten, *altered.again])]
            if left:
                words = f"snapshots of {counted(len(left), 'table')} left, and the log above {position}{behind}"
                # Of a time without a publication, the server reads nothing: it may have been dropped, and made again.
                lag = self._lag(log, before, until)[0] if altered.again else log.lag(before, until, None)
                return replace(read, summary=words, lag=lag)
            lag, is_ahead = self._lag(log, before, until)
            read = replace(read, lag=lag)
            if is_ahead:
                return replace(read, summary=f"the log from {position} to {log.text(until)}: {lag}{behind}")
            words = f"no change above {position}"
            gone = [name for name in before.tables if name not in tables]
            if gone:
                return replace(read, summary=f"{words}; {_short(gone)} captured no more")
            outrun = log.outrun(before, until, QUIET_BYTES) if self.until is None else None
            if outrun is not None:
                return replace(read, summary=f"{words}; {outrun}")
            return NothingNew.of(replace(read, summary=words), words, before)

    def _until(self, log: DatabaseLog) -> int:
        return log.log_end() if self.until is None else self.until

    def altered(self, log: DatabaseLog, mark: CaptureMark | None, tables: Mapping[str, CapturedTable]) -> AlteredTables:
        """What happened to captured tables beside the changes of their rows."""
        places, definitions = log.publishing(), log.definitions(list(tables.values()))
        table_marks = (
            {} if mark is None else {name: table_mark for name, table_mark in mark.tables.items() if name in tables}
        )
        described = {name: table_mark.shape for name, table_mark in table_marks.items() if table_mark.shape}
        shapes = log.shapes([tables[name] for name in described]) if described else {}
        rewritten = [
            name
            for name, table_mark in table_marks.items()
            if (name in shapes and shapes[name].id != table_mark.shape)
            or (table_mark.shape and table_mark.layout and table_mark.layout != tables[name].layout)
            or (
                name in definitions
                and table_mark.definition is not None
                and definitions[name].rewrites(table_mark.definition)
            )
        ]
        again = [name for name, table_mark in table_marks.items() if not table_mark.is_published_as(places.get(name))]
        return AlteredTables(tuple(rewritten), tuple(again), places, definitions)

    @property
    def slot(self) -> str:
        return self.database.slot if isinstance(self.database, PostgresDatabase) else ""

    @property
    def warn_lag(self) -> int:
        return self.database.warn_lag

    def lag(self, mark: CaptureMark) -> LogLag | None:
        """How far a capture is behind now; None if the log does not go on where it is.

        Raises:
            SourceError: the server cannot be reached, or the slot is read by somebody else.
        """
        with self.opened() as log:
            until = log.log_end()
            lag = log.lag(mark, until, None)
            return None if lag is None else self._lag(log, mark, until)[0]

    @staticmethod
    def _lag(log: DatabaseLog, mark: CaptureMark, until: int) -> tuple[LogLag | None, bool]:
        """How far a capture is behind ``until``, and whether it has anything to read up to there."""
        try:
            oldest = log.first_above(mark, until)
        except LookTooLongError:
            # A transaction that is too large to look at, for one; a run reads it.
            return log.lag(mark, until, None), True
        return log.lag(mark, until, oldest or 0), oldest is not None

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        del then, since
        if mark is not None:
            text = "the changes that were captured before: histories that are made of them begin with new snapshots"
            yield Loss(text, for_good=True)

    def begun(self, log: DatabaseLog, mark: CaptureMark | None) -> tuple[CaptureMark, dict[str, CapturedTable]]:
        """The mark with all tables that are captured now; the log holds their changes then."""
        tables = log.tables(self.patterns, () if mark is None else mark.tables)
        joined = {name: table for name, table in tables.items() if mark is None or name not in mark.tables}
        # One look: what happens after it is noticed by the next run.
        altered = self.altered(log, mark, tables)
        mark = log.begin(mark, tables, {**joined, **{name: tables[name] for name in altered.again}})
        table_marks = {name: table_mark for name, table_mark in mark.tables.items() if name in tables}
        table_marks |= {name: table_marks[name].begun_again for name in altered.rewritten}
        # What happened to a table before it was published, made again or published again is not in the log.
        table_marks |= {name: replace(table_marks[name].begun_again, rejoined=True) for name in altered.again}
        new = {
            name: TableMark(table.key, is_cut=False, rejoined=name in mark.left_out) for name, table in joined.items()
        }
        noted_marks = {
            name: altered.noted(table_mark, tables[name]) for name, table_mark in {**table_marks, **new}.items()
        }
        left_out = {*mark.left_out, *mark.tables} - tables.keys()
        return replace(mark, tables=noted_marks, left_out=tuple(sorted(left_out))), tables

    def step(self, mark: CaptureMark | None) -> tuple[CaptureStep, int]:
        """The next step above a mark, and the bound of the run."""
        with self.opened() as log:
            before, tables = self.begun(log, mark)
            if mark is not None:
                log.acknowledge(before)
            until = self._until(log)
            step = self.capture(log, tables).step(before, until)
            if not step.more and not step.rows.num_rows:
                # All up to the bound was looked at.
                step = replace(step, after=replace(step.after, end=log.looked_at(step.after, until)))
            return replace(step, after=replace(step.after, measures=self.identity)), until

    def capture(self, log: DatabaseLog, tables: dict[str, CapturedTable]) -> Capture:
        """What reads the log of some tables, and their snapshots."""
        return Capture(log, self.dialect, self.label, tables, self.chunks, MOST_CHANGES)

    def acknowledge(self, mark: CaptureMark) -> None:
        """Let the server forget the log that is in the change log."""
        try:
            with self.opened() as log:
                log.acknowledge(mark)
        except OdiError as error:
            # The next run does it first.
            _log.warning("%s: the log was not acknowledged: %s", self.target.node, error)


@dataclass(frozen=True, kw_only=True)
class LogSnapshot(ChangesSnapshot):
    """What the server says of its log."""

    acknowledged: Position

    @property
    def position(self) -> Position:
        return self.acknowledged

    @property
    def summary(self) -> str:
        return "the log"


@dataclass(frozen=True, kw_only=True)
class _OfLog(ChangesRead):
    """What reads of a log have in common.

    Attributes:
        lag: how far the capture was behind when the read was planned; None before the first one.
    """

    lag: LogLag | None = None

    @property
    def metrics(self) -> Mapping[str, Any]:
        return {} if self.lag is None else self.lag.metrics


@dataclass(frozen=True, kw_only=True)
class LogRead(_OfLog, UnresolvedRead):
    """A step of a capture that is not read yet."""

    source: LogSource
    before: CaptureMark | None = None
    again: bool = False

    @property
    def stands_at(self) -> Position:
        # The log moves with all that its server does. A capture that fails is tried again without a pause once there is
        # much more.
        behind = 0 if self.lag is None else self.lag.bytes // QUIET_BYTES
        return {"mark": None if self.before is None else self.before.value, "behind": behind.bit_length()}

    def resolve(self, spark: SparkSession) -> Read:
        del spark
        return self._captured()

    def without_spark(self) -> tuple[Read, pa.Table | TableParts]:
        captured = self._captured()
        return captured, captured.rows

    def _captured(self) -> CapturedRows:
        step, until = self.source.step(self.before)
        rows = counted(step.rows.num_rows, "row")
        return CapturedRows(
            snapshot=self.snapshot,
            summary=f"{rows} of the log, up to {step.after.text(step.after.lsn)}",
            before=self.before,
            after=step.after,
            follows=True,
            source=self.source,
            rows=step.rows,
            more=step.more,
            bound=until,
            lag=self.lag,
        )


@dataclass(frozen=True, kw_only=True)
class CapturedRows(_OfLog, LoggedRows):
    """A step of a capture, whose rows are here."""

    source: LogSource
    after: CaptureMark | None = None

    def after_commit(self) -> None:
        if self.after is not None:
            self.source.acknowledge(self.after)
