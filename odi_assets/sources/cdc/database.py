"""What a capture needs of a database whose log it reads: each kind of database has a folder beside this module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from odi_assets.sources.cdc.changes import LoggedRelation, LogWindow, Transactions, Values
from odi_assets.sources.cdc.definition import TableDefinition
from odi_assets.sources.cdc.lag import LogLag
from odi_assets.sources.cdc.log import Shape
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.sources.snapshot import Position
from odi_assets.sources.sql.dialects import Dialect


@dataclass(frozen=True)
class CapturedTable:
    """A table of the database that can be captured.

    Attributes:
        name: its schema and its name, with a dot between: what the change log calls it.
        quoted: its name in SQL.
        key: the columns that identify a row, in the order of the table's columns, as the log has them; none if there
            is no key.
        layout: the numbers of its columns: a column that was dropped and made again has another one; empty where the
            log itself says that columns changed.
        generated: the columns that the database generates, and which its log does not have.
    """

    name: str
    quoted: str
    key: tuple[str, ...]
    layout: str
    generated: tuple[str, ...] = field(default=(), kw_only=True)


class SnapshotReader(ABC):
    """A repeatable read of a database, which knows the transactions of the log that it sees."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query."""

    @abstractmethod
    def sees(self, transactions: Transactions) -> Any:
        """Whether it sees transactions of the log, a flag for each."""

    @abstractmethod
    def log_end(self) -> int:
        """A position of the log: transactions that this reader sees are below it."""

    @abstractmethod
    def shape(self, table: CapturedTable) -> Shape:
        """The columns of a table as the log has them, in its order. They stay as they are while the read lasts."""

    @abstractmethod
    def publishing(self, table: CapturedTable) -> str:
        """What names the table, and how the log has it: another text means that it was made or published again."""

    @abstractmethod
    def texts(self, relation: str, shape: Shape, where: str) -> tuple[Any, Values]:
        """Rows of a table, each value as the log would have it: the bytes, and where in them the values are.

        Args:
            relation: the table in SQL.
        """


class DatabaseLog(ABC):
    """The log of a database, through an open session."""

    @abstractmethod
    def require(self, mark: CaptureMark | None) -> None:
        """Raises an error that names a way on unless the log can be read, and goes on where ``mark`` is."""

    @abstractmethod
    def position(self) -> Position:
        """How far the server was allowed to forget the log, as commits note it."""

    @abstractmethod
    def text(self, position: int) -> str:
        """A position of the log as the database writes it."""

    @abstractmethod
    def tables(self, patterns: Sequence[str], known: Collection[str] = ()) -> dict[str, CapturedTable]:
        """By name, the tables that ``patterns`` name.

        Args:
            known: the tables that are captured already.

        Raises:
            ConfigError: a pattern names no table, or one whose changes the log does not have, or has no more.
        """

    @abstractmethod
    def require_captured(self, tables: Sequence[CapturedTable]) -> None:
        """Raises ConfigError for tables whose changed rows the log does not identify, or does not have."""

    @abstractmethod
    def shapes(self, tables: Sequence[CapturedTable]) -> dict[str, Shape]:
        """By table, its columns as the log has them, in its order."""

    @abstractmethod
    def columns_left_out(self) -> Mapping[str, Sequence[str]]:
        """By table, the columns that somebody left out of the log."""

    @abstractmethod
    def publishing(self) -> Mapping[str, str]:
        """By table, what :meth:`SnapshotReader.publishing` says now."""

    @abstractmethod
    def definitions(self, tables: Sequence[CapturedTable]) -> Mapping[str, TableDefinition]:
        """By table, its definition; none where the log itself says that rows were rewritten."""

    @abstractmethod
    def begin(
        self, mark: CaptureMark | None, tables: Mapping[str, CapturedTable], joined: Mapping[str, CapturedTable]
    ) -> CaptureMark:
        """Have the log hold the changes of ``tables`` from now on; the mark where it begins, if there is none yet.

        Args:
            joined: the tables that were not captured before, or that were made or published again since.

        Raises:
            SourceError: it does not hold them, and may not be made to.
        """

    @abstractmethod
    def log_end(self) -> int:
        """Where the log ends now: all transactions that anybody sees are below it."""

    @abstractmethod
    def first_above(self, mark: CaptureMark, until: int) -> int | None:
        """When the first transaction between ``mark`` and ``until`` that changes a captured table was committed, in
        microseconds since 1970; None if there is none.

        Raises:
            LookTooLongError: the log holds more than can be looked at in a moment.
        """

    @abstractmethod
    def lag(self, mark: CaptureMark, until: int, oldest: int | None) -> LogLag | None:
        """How far a capture is behind ``until``; None if the log does not go on where it is.

        Args:
            oldest: what :meth:`first_above` says; 0: there is none, None: it was not looked for.
        """

    @abstractmethod
    def outrun(self, mark: CaptureMark, until: int, most_bytes: int) -> str | None:
        """What a commit without rows is for, in words, if the log has no changes up to ``until``; None: it is for
        nothing yet.

        Args:
            most_bytes: of log that may lie between the two.
        """

    @abstractmethod
    def is_behind(self, mark: CaptureMark, upto: int, most: int) -> bool:
        """Whether the log has as many changes between ``mark`` and a bound as one step takes."""

    @abstractmethod
    def windows(self, mark: CaptureMark, upto: int, most: int | None) -> Iterator[LogWindow]:
        """Transactions that commit above ``mark``, in the order of their commits; a few below may be among them.

        A transaction that is too large for memory begins and ends in each of its windows.

        Args:
            upto: transactions that commit above this position are left out.
            most: the last window ends after the transaction with which there are as many changes; None: all are in one
                window.
        """

    @abstractmethod
    def looked_at(self, mark: CaptureMark, upto: int) -> int:
        """Where reading goes on, once nothing was found between ``mark`` and a bound."""

    @abstractmethod
    def shape_of(self, relation: LoggedRelation, table: CapturedTable) -> Shape:
        """The columns of a relation of a window."""

    @abstractmethod
    def reading(self, mark: CaptureMark) -> AbstractContextManager[SnapshotReader]:
        """A repeatable read that sees all transactions up to ``mark``.

        Raises:
            SourceError: some of them are not seen by anybody for too long.
        """

    @abstractmethod
    def pending(self, mark: CaptureMark, passed: Transactions) -> tuple[int, ...]:
        """The transactions up to the mark that comes next which other sessions may not see yet, by number.

        Args:
            passed: those that come between the two marks.
        """

    @abstractmethod
    def noted(self, mark: CaptureMark) -> CaptureMark:
        """``mark``, with what the log is recognized by at its position."""

    @abstractmethod
    def why_gone(self, mark: CaptureMark) -> str | None:
        """Why the log above an earlier mark cannot be read again, in words; None if it can."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query."""

    @abstractmethod
    def key_text(self, text: str, kind: str) -> str:
        """The text of a key in the change log, as bounds of chunks write it.

        Args:
            kind: the type of its column.

        Raises:
            SourceError: keys of this type are not looked up.
        """

    @abstractmethod
    def acknowledge(self, mark: CaptureMark) -> None:
        """Let the server forget the log below ``mark``."""

    @abstractmethod
    def worries(self, mark: CaptureMark) -> str | None:
        """What will stop the capture soon, in words; None if nothing is seen."""


@dataclass(frozen=True, kw_only=True)
class LoggedDatabase(ABC):
    """A database whose log is captured.

    Attributes:
        label: the node's source in words, for messages.
        node: who reads.
    """

    dialect: Dialect
    label: str
    node: str

    @property
    @abstractmethod
    def name(self) -> str:
        """What a mark is one of, the same wherever the database is moved to."""

    @property
    @abstractmethod
    def cursor_name(self) -> str:
        """What positions of the log are called."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where it is, without secrets."""

    @abstractmethod
    def opened(self) -> AbstractContextManager[DatabaseLog]:
        """A session of it.

        Raises:
            ConfigError: the driver is not installed.
            SourceError: the server cannot be reached, or refuses what is asked of it.
        """

    @property
    @abstractmethod
    def warn_lag(self) -> int:
        """Bytes that a capture may be behind before somebody is warned."""

    @property
    def again(self) -> str:
        """The command that captures everything again."""
        node = self.node.replace(".", " --node ")
        return f"odi run {node} --full-refresh --yes makes new snapshots of its tables in an empty change log"
