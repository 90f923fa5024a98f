"""Tables and queries of SQL databases as a source, read through Spark's JDBC reader."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from odi_assets.config.models import CursorsIncrement, Increment, SqlConnection, StatefulIncrement
from odi_assets.errors import ConfigError
from odi_assets.sources.copies import fields_of
from odi_assets.sources.cursor.ahead import is_guarded, limit_of
from odi_assets.sources.cursor.types import cursor_type
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.cursor_reads import reads_again
from odi_assets.sources.marks import Identity, Mark
from odi_assets.sources.reading import Reading, Settings, options_of
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Position
from odi_assets.sources.source import Source, SourceContext
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.dialects import Dialect, dialect_of
from odi_assets.sources.sql.marks import SnapshotMark
from odi_assets.sources.sql.olake import mark_of_stream, stream_state
from odi_assets.sources.sql.settings import SqlRead
from odi_assets.sources.sql.snapshot import DatabaseLook, SqlSnapshot
from odi_assets.sources.sql.snapshots import CursorTable, Loaded, plan_snapshot
from odi_assets.sources.sql.statements import Relation
from odi_assets.util.extras import install_command

_UNKNOWN = "what it holds is not known without reading it"


def sql_source(read: SqlRead, context: SourceContext) -> SqlSource:
    """The source that a ``read`` of a database names."""
    if not isinstance(context.connection, SqlConnection):
        raise AssertionError("checks of the project file refuse it")
    dialect = dialect_of(context.connection)
    what = dialect.table(read.table) if read.table is not None else _in_brackets(read.query or "")
    kind = CursorTableSource if isinstance(read.incremental, CursorsIncrement) else SqlSource
    return kind(
        **context.common(read),
        relation=Relation(dialect, what, context.label, read.table, read.columns, frozenset(read.ordering)),
        partition_column=read.partition_column,
        pieces=read.pieces,
        options=read.options,
    )


def _in_brackets(query: str) -> str:
    # On lines of its own: a comment at its end must not reach what follows.
    return f"(\n{query.strip().removesuffix(';')}\n)"


@dataclass(frozen=True, kw_only=True)
class SqlSource(Source):
    """A table or a query of a database.

    Attributes:
        partition_column, pieces: what the pieces are cut by that are read side by side, and how many there are.
        options: options of Spark's JDBC reader.
    """

    relation: Relation
    partition_column: str | None = None
    pieces: int = 1
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def identity(self) -> Identity:
        # How a query is laid out in the project file does not matter.
        digest = hashlib.sha256(" ".join(self.relation.sql.split()).encode()).hexdigest()[:12]
        what = self.table if self.table is not None else f"query {digest}"
        return self.identified("sql", f"{self.dialect.database}:{what}", "", f"{self.dialect.uri}/{what}")

    @property
    def reading(self) -> Reading | None:
        increment = self.increment
        if not isinstance(increment, CursorsIncrement):
            return super().reading
        rows = {"rows": self.settings(())} if increment.watermark_lag else {}
        return {"cursor": self.settings(increment.columns), **rows, **self.left_out}

    def settings(self, columns: tuple[str, ...] | None) -> Settings:
        asked = self.relation.columns if columns is None else {}
        return options_of(self.options) | {f"read.columns.{name}": sql for name, sql in asked.items()}

    def followed_by(self, increment: Increment) -> SqlSource:
        kind = CursorTableSource if isinstance(increment, CursorsIncrement) else SqlSource
        return kind(**{**fields_of(SqlSource, self), "increment": increment})

    @property
    def dialect(self) -> Dialect:
        return self.relation.dialect

    @property
    def table(self) -> str | None:
        """The table's name in the project file; None for a query."""
        return self.relation.table

    @property
    def uri(self) -> str:
        return self.dialect.uri if self.table is None else f"{self.dialect.uri}/{self.table}"

    @property
    def watchable(self) -> bool:
        return self._driver is not None

    @property
    def only_plans_look(self) -> bool:
        return True

    def snapshot(self) -> SqlSnapshot:
        return SqlSnapshot(
            name=self.name,
            label=self.label,
            format="sql",
            identity=self.identity,
            relation=self.relation,
            look=self._look(),
            partition_column=self.partition_column or self.cursor,
            pieces=self.pieces,
            options=self.options,
            known_columns=self.target.known_by,
        )

    def position(self) -> Position:
        return self.snapshot().position

    @property
    def knows_changes(self) -> bool:
        is_followed = isinstance(self.increment, StatefulIncrement) and not reads_again(self.increment)
        return is_followed and self._driver is not None

    def change_since(self, then: Position | None) -> str | None:
        if not isinstance(self.increment, StatefulIncrement) or reads_again(self.increment):
            return _UNKNOWN
        if self._driver is None:
            extra = self.dialect.extra
            return f"{_UNKNOWN}; {install_command(extra)} lets its cursor be asked" if extra else _UNKNOWN
        now = self.position()
        if then == now:
            return None
        if not then:
            return "what it held was not recorded"
        if then.get("upper") != now["upper"]:
            return f"its greatest cursor was {then.get('upper')} then, and is {now['upper']} now"
        return f"its rows without a cursor were {then['without_cursor']} then, and are {now['without_cursor']} now"

    @property
    def _driver(self) -> plain.Driver | None:
        """The plain driver that can query the cursor, if there is one."""
        increment = self.increment
        # Dates that are written as text are Spark's to read.
        follows = isinstance(increment, StatefulIncrement) and increment.date_format is None
        return plain.driver_of(self.dialect) if follows else None

    def _look(self) -> DatabaseLook | None:
        increment, driver = self.increment, self._driver
        if driver is None or not isinstance(increment, StatefulIncrement):
            return None

        def question(session: plain.Session) -> DatabaseLook:
            types = session.columns(self.relation.sql)
            window = Window(increment.column, increment.fallback_column)
            if any(types.get(name, "") is None for name in window.columns):
                # Spark knows more types.
                return DatabaseLook(types, None)
            shown = {name: kind or "of another type" for name, kind in types.items()}
            kind = cursor_type(increment, shown, self.label)
            now = self.relation.now(session.rows) if is_guarded(increment, kind) else None
            window = replace(window, upper=limit_of(increment, kind, now or datetime.now(UTC)))
            (row,) = session.rows(self.relation.bound(window, types))
            return DatabaseLook(types, self.relation.found(row, window, types), now)

        look: DatabaseLook = plain.ask(self.dialect, driver, self.label, question)
        return look


@dataclass(frozen=True, kw_only=True)
class CursorTableSource(SqlSource):
    """A table that is read in chunks first, and by its cursor columns then."""

    @property
    def identity(self) -> Identity:
        return replace(super().identity, cursor=", ".join(self._increment.columns), increment=self._increment.mode)

    @property
    def watchable(self) -> bool:
        return plain.driver_of(self.dialect) is not None

    def snapshot(self) -> CursorTable:
        return self._table().looked_at()

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        mark = SnapshotMark.of(value, self.label, typed=typed)
        return replace(mark, digits=remembered.get("digits") or {}, known_by=remembered.get("known_by") or {})

    def _cursors_of(self, mark: Mark) -> Mapping[str, Any]:
        return mark.cursors if isinstance(mark, SnapshotMark) else {}

    def plan(self, mark: Mark | None) -> PlannedRead:
        above = mark if isinstance(mark, SnapshotMark) else None
        return plan_snapshot(self._table(), above)

    @property
    def knows_changes(self) -> bool:
        return self.watchable and not self._increment.watermark_lag

    def change_since(self, then: Position | None) -> str | None:
        if not self.knows_changes:
            return _UNKNOWN
        now = self.position()
        return (
            None
            if then and then == now
            else f"its cursors were at {then or 'an unknown place'} then, and are at {now} now"
        )

    def loaded(self, mark: Mark) -> PlannedRead:
        if not isinstance(mark, SnapshotMark):
            return self.whole()
        if mark.chunks is not None:
            raise ConfigError(
                f"{len(mark.chunks.left):,} chunks of the snapshot of {self.label} are left, so it is unknown what is "
                "loaded of a range",
                fix="let a run complete the snapshot first",
                node=self.target.node,
            )
        return Loaded(snapshot=self._table(), summary="what is loaded", mark=mark)

    def stream_state(self, mark: SnapshotMark) -> dict[str, Any]:
        """The state of a stream of OLake that says what ``mark`` says, JSON-ready.

        Raises:
            CursorDocumentError: OLake would read rows twice or never.
        """
        return stream_state(mark, self.dialect, self.label)

    def taken_over(self, state: Mapping[str, Any]) -> SnapshotMark:
        """The mark that goes on where OLake stopped.

        Args:
            state: the state of the stream in OLake's document.

        Raises:
            CursorDocumentError: it does not fit how the table is followed here.
            ConfigError: the plain driver that reads the types of the cursors is not installed.
            SourceError: the database does not answer.
        """
        driver = plain.driver_of(self.dialect)
        if driver is None:
            raise ConfigError(
                f"{self.label}: the types of its cursors tell how OLake's values are meant, and nothing asks for them",
                fix=f"install the plain driver ({install_command(str(self.dialect.extra))}), and let it look "
                "(`look_timeout` of the connection)",
                node=self.target.node,
            )

        def question(session: plain.Session) -> SnapshotMark:
            types = session.columns(self.relation.sql)
            return mark_of_stream(state, self.relation, self._increment, types, session.rows)

        mark: SnapshotMark = plain.ask(self.dialect, driver, self.label, question)
        return replace(mark, measures=self.identity)

    def _table(self) -> CursorTable:
        return CursorTable(
            name=self.name,
            label=self.label,
            format="sql",
            identity=self.identity,
            relation=self.relation,
            increment=self._increment,
            keys=self.target.keys,
            known_columns=self.target.known_by,
            partition_column=self.partition_column or self._increment.columns[0],
            pieces=self.pieces,
            options=self.options,
        )

    @property
    def _increment(self) -> CursorsIncrement:
        if not isinstance(self.increment, CursorsIncrement):
            raise AssertionError("a source of another increment")
        return self.increment
