"""A project that reads a database, made by a look at it: ``odi init --from``."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odi_assets.config.json_schema import SCHEMA_FILE, schema_text
from odi_assets.errors import ConfigError, SourceError
from odi_assets.nodes.project import DEFAULT_PROJECT_FILE
from odi_assets.scaffold.address import DatabaseAddress, read_address
from odi_assets.scaffold.binlog import needs_of_log, require_log, why_not_in_log
from odi_assets.scaffold.capture import Need, columns_left_out, free_slot, needs, why_not_captured
from odi_assets.scaffold.catalog import CatalogTable, read_catalog
from odi_assets.scaffold.file import LAKE, SYSTEM, Node, ProjectFile
from odi_assets.scaffold.names import node_names, slug
from odi_assets.scaffold.new_files import require_new, write_new
from odi_assets.scaffold.reading import reading_of
from odi_assets.scaffold.values import OddValue, odd_values
from odi_assets.sources.cdc.binlog.database import connected as of_binlog
from odi_assets.sources.cdc.database import CapturedTable
from odi_assets.sources.cdc.postgres.server import connected
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.dialects import Dialect, dialect_of
from odi_assets.util.extras import install_command
from odi_assets.util.words import counted

_CHANGES = "changes"
_DELETED = "_deleted"
"""The column that marks rows which are gone, of nodes that apply a change log."""


@dataclass(frozen=True)
class ProjectRequest:
    """What of a database is asked for.

    Attributes:
        schemas: of PostgreSQL, or databases of a MySQL server; the usual one unless given.
        tables: patterns of tables, with their schema or without; all unless given.
        appended: patterns of tables whose rows never change.
        cdc: whether changes are captured.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    appended: tuple[str, ...] = ()
    cdc: bool = False


@dataclass(frozen=True)
class MadeProject:
    """A project file that is not written yet.

    Attributes:
        tables: how many tables it reads.
        left_out: by table, why it is left out.
        needs: what the database lacks before the first run.
        variable: the environment variable of the password; None if no password is asked for.
    """

    text: str
    tables: int
    left_out: Mapping[str, str]
    needs: Sequence[Need]
    variable: str | None
    user: str


@dataclass
class _Chosen:
    """Tables that are read, and those that are left out with the reason of each.

    Attributes:
        unseen: by table, why nobody looked for values that Spark's types do not hold.
    """

    tables: list[CatalogTable] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)


def project_of(url: str, wanted: ProjectRequest, environment: Mapping[str, str] = os.environ) -> MadeProject:
    """The project that reads the database at ``url``.

    Raises:
        ConfigError: the address is none; the driver is not installed; no table is left.
        SourceError: the database does not answer.
    """
    look = ProjectMaker.at(read_address(url, environment), wanted)
    return look.capture() if wanted.cdc else look.reads()


@dataclass(frozen=True)
class ProjectMaker:
    """A look at a database, to make a project of it.

    Attributes:
        asks_password: the server asked for a password when the look connected.
    """

    address: DatabaseAddress
    wanted: ProjectRequest
    dialect: Dialect
    driver: plain.Driver
    asks_password: bool

    @classmethod
    def at(cls, address: DatabaseAddress, wanted: ProjectRequest) -> ProjectMaker:
        """Connect once, to see how.

        Raises:
            ConfigError: the driver is not installed, or the database has no log that can be captured.
            SourceError: the database does not answer.
        """
        dialect = dialect_of(address.connection)
        driver = plain.driver_of(dialect)
        if driver is None:
            raise ConfigError(
                f"{address.shown}: a look at it needs a driver of Python",
                fix=f"run: {install_command(str(dialect.extra))}",
            )
        try:
            asked = plain.ask(dialect, driver, address.shown, _used_password)
        except SourceError as error:
            if address.connection.password is None and "refuses the login" in error.message:
                raise SourceError(error.message, fix=f"set its password: export {address.variable}=…") from error
            raise
        return cls(address, wanted, dialect, driver, asked or address.connection.password is not None)

    def ask(self, question: Callable[[plain.Session], Any]) -> Any:
        return plain.ask(self.dialect, self.driver, self.address.shown, question)

    @property
    def schemas(self) -> tuple[str, ...]:
        usual = "public" if self.address.connection.type == "postgres" else self.address.connection.database
        return self.wanted.schemas or (usual,)

    def _tables(self) -> list[CatalogTable]:
        """The tables that are asked for.

        Raises:
            ConfigError: there is no such schema, or a pattern names none.
        """
        tables = self.ask(lambda session: read_catalog(session, self.dialect, self.schemas)).tables
        for pattern in (*self.wanted.tables, *self.wanted.appended):
            if not any(_is_named(table, (pattern,)) for table in tables):
                raise ConfigError(
                    f"{self.address.shown}: no table of {', '.join(self.schemas)} is named `{pattern}`",
                    fix="correct the pattern, or name the schema: `--schema`",
                )
        return [table for table in tables if not self.wanted.tables or _is_named(table, self.wanted.tables)]

    # Snapshots and increments

    def reads(self) -> MadeProject:
        """The project in which each table is read by itself."""
        chosen, nodes, notes = _Chosen(), [], {}
        for table in self._tables():
            why = table.kind or table.same_columns or (None if table.columns else "it has no columns")
            if why is None:
                chosen.tables.append(table)
            else:
                chosen.left_out[table.shown] = why
        names = node_names([chosen_table.identity for chosen_table in chosen.tables], (SYSTEM,))
        for table in list(chosen.tables):
            try:
                node, lines = self._node(table, names[table.identity], chosen.unseen)
            except SourceError as error:
                chosen.tables.remove(table)
                chosen.left_out[table.shown] = error.message.removeprefix(f"{self.address.shown}: ")
                continue
            nodes.append(node)
            notes[names[table.identity]] = lines
        self._require_some(chosen)
        head = [
            "Tables are read with Spark, through JDBC. What is read by a column that moves with each change has to be",
            "committed within its `watermark_lag`, and rows that are deleted there stay here. docs/sql.md says more.",
        ]
        file = ProjectFile(self.address, self._connection, self.asks_password, nodes, notes, self.dialect.package)
        return self._made(file, head, chosen, ())

    def _node(self, table: CatalogTable, name: str, unseen: dict[str, str]) -> tuple[Node, Sequence[str]]:
        types = self.ask(lambda session: session.columns(table.in_sql(self.dialect)))
        odd = self._odd_values(table, unseen, arrays=True)
        appended = _is_named(table, self.wanted.appended)
        reading = reading_of(table, types, appended=appended, unusable=frozenset(odd_value.column for odd_value in odd))
        casts = {odd_value.column: self.dialect.written(self.dialect.quoted(odd_value.column)) for odd_value in odd}
        read = {
            "connection": self._connection,
            "format": "sql",
            "table": self._named(table),
            **reading.read,
            **({"columns": casts} if casts else {}),
        }
        why = [
            f"{odd_value.column} comes as text: {odd_value.example} is no value of its type in Spark."
            for odd_value in odd
        ]
        node = {"name": name, "read": read, "write": {"connection": LAKE, "path": name, **reading.write}}
        return node, [*reading.why, *why]

    def _named(self, table: CatalogTable) -> str:
        """The table as ``read.table`` names it."""
        parts = [table.schema, table.name]
        if self.address.connection.type == "mysql" and table.schema == self.address.connection.database:
            parts = [table.name]
        if any(sign in part for part in parts for sign in '."`['):
            return ".".join(self.dialect.quoted(part) for part in parts)
        return ".".join(parts)

    def _odd_values(self, table: CatalogTable, unseen: dict[str, str], *, arrays: bool) -> list[OddValue]:
        """The columns with values that Spark does not hold; ``unseen`` gets the reason if nobody could look."""
        try:
            odd: list[OddValue] = self.ask(lambda session: odd_values(session, self.dialect, table, arrays=arrays))
        except SourceError as error:
            unseen[table.shown] = error.message.removeprefix(f"{self.address.shown}: ")
            return []
        return odd

    # Captures

    def capture(self) -> MadeProject:
        """The project that captures the log, and applies it to a table each."""
        return self._capture_binlog() if self.address.connection.type == "mysql" else self._capture_slot()

    def _capture_slot(self) -> MadeProject:
        tables = {catalog_table.identity: catalog_table for catalog_table in self._tables()}
        with connected(self.dialect, self.address.shown) as session:
            listed = session.listed()
            chosen, captured = _Chosen(), {}
            for listed_table in listed:
                name = listed_table.table.name.removeprefix(f"{listed_table.schema}.")
                table = tables.get((listed_table.schema, name))
                if table is None:
                    continue
                why = why_not_captured(listed_table, listed, session) or self._why_not_applied(table, chosen.unseen)
                if why is None:
                    chosen.tables.append(table)
                    captured[table.identity] = listed_table.table
                    chosen.left_out |= dict(columns_left_out(table.shown, listed_table.table))
                else:
                    chosen.left_out[table.shown] = why
            self._require_some(chosen)
            slot = free_slot(session, f"odi_{slug(self.address.connection.database, 'db').lower()}"[:60])
            lacking = tuple(needs(session, slot, list(captured.values())))
        head = [
            "`changes` has the changes of all tables, from one slot. Each other node makes a table of it, with the",
            "rows that the database has. docs/cdc.md says what holds.",
        ]
        return self._captured(chosen, captured, lacking, head, slot)

    def _capture_binlog(self) -> MadeProject:
        tables = {catalog_table.shown: catalog_table for catalog_table in self._tables()}
        chosen, captured = _Chosen(), {}
        chosen.left_out |= {
            name: catalog_table.kind for name, catalog_table in tables.items() if catalog_table.kind is not None
        }
        with of_binlog(self.dialect, self.address.shown) as session:
            require_log(session)
            lacking = tuple(needs_of_log(session))
            for name, table in tables.items():
                # Of a table that it may not read, a user does not see the key.
                if table.kind is None and (hidden := session.why_unreadable(table.in_sql(self.dialect))) is not None:
                    chosen.left_out[name] = hidden
            known = [name for name in tables if name not in chosen.left_out]
            for captured_table in session.tables(known) if known else ():
                table = tables[captured_table.name]
                missing = session.leaving_out(table.schema) if not lacking else None
                why = why_not_in_log(captured_table, missing) or self._why_not_applied(table, chosen.unseen)
                if why is None:
                    chosen.tables.append(table)
                    captured[table.identity] = captured_table
                else:
                    chosen.left_out[table.shown] = why
            self._require_some(chosen)
        head = [
            "`changes` has the changes of all tables, from the server's binary log. Each other node makes a table of",
            "it, with the rows that the database has. docs/cdc-mariadb.md says what holds.",
        ]
        return self._captured(chosen, captured, lacking, head)

    def _captured(
        self,
        chosen: _Chosen,
        captured: Mapping[tuple[str, str], CapturedTable],
        lacking: Sequence[Need],
        head: Sequence[str],
        slot: str | None = None,
    ) -> MadeProject:
        """The project of tables whose log is captured, by schema and name."""
        names = node_names([table.identity for table in chosen.tables], (SYSTEM, _CHANGES))
        nodes: list[Node] = [_capture_node(self._connection, [table.name for table in captured.values()])]
        nodes += _apply_nodes({names[identity]: table for identity, table in captured.items()})
        notes = {names[table.identity]: _HISTORY for table in chosen.tables if not captured[table.identity].key}
        file = ProjectFile(self.address, self._connection, self.asks_password, nodes, notes, slot=slot)
        return self._made(file, head, chosen, lacking)

    def _why_not_applied(self, table: CatalogTable, unseen: dict[str, str]) -> str | None:
        if any(column.name.lower() == _DELETED for column in table.columns):
            return f"its column {_DELETED} has the name of the mark of rows that are gone"
        if table.same_columns:
            return table.same_columns
        odd = self._odd_values(table, unseen, arrays=False)
        return f"{odd[0].column} holds {odd[0].example}, which is no value of its type in Spark" if odd else None

    # The file

    @property
    def _connection(self) -> str:
        name = slug(self.address.connection.database, "db").lower()
        return f"{name}_db" if name == LAKE else name

    def _require_some(self, chosen: _Chosen) -> None:
        if not chosen.tables:
            why = "; ".join(f"{name}: {reason}" for name, reason in chosen.left_out.items())
            raise ConfigError(
                f"{self.address.shown}: no table of {', '.join(self.schemas)} can be read"
                f"{f': {why}' if why else ', for there is none'}",
                fix="name another schema: `--schema`",
            )

    def _made(self, file: ProjectFile, head: Sequence[str], chosen: _Chosen, lacking: Sequence[Need]) -> MadeProject:
        count = counted(len(chosen.tables), "table")
        lines = [f"{count} of {self.address.shown}, made by `odi init --from URL`.", *head]
        lines += _section("Left out:", chosen.left_out)
        lines += _section("Nobody looked whether all values are such that Spark holds them:", chosen.unseen)
        if lacking:
            lines += [
                "Before the first run, for the server or its user lacks it:",
                *(f"  {need.statement}" for need in lacking),
            ]
        variable = self.address.variable if self.asks_password else None
        user = str(self.address.connection.user)
        return MadeProject(file.text(lines), len(chosen.tables), chosen.left_out, lacking, variable, user)


def _section(title: str, listed: Mapping[str, str]) -> list[str]:
    return [title, *(f"  {name}: {why}" for name, why in listed.items())] if listed else []


_HISTORY = ("Each change, for without a key nothing says which rows the table has now.",)


def _capture_node(connection: str, tables: Sequence[str]) -> Node:
    read = {"connection": connection, "format": "cdc", "tables": list(tables)}
    return {"name": _CHANGES, "read": read, "write": {"connection": LAKE, "path": _CHANGES}}


def _apply_nodes(tables: Mapping[str, CapturedTable]) -> Iterator[Node]:
    """By the names of their nodes, what applies tables: one node for all whose nodes have their names, if there are
    several, and one for each of the others."""
    alike = {
        name: captured_table
        for name, captured_table in tables.items()
        if captured_table.key and _fills_in(name, captured_table)
    }
    if len(alike) > 1:
        apply = {"changes": _CHANGES, "tables": [captured_table.name for captured_table in alike.values()]}
        yield {"name": "{table}", "apply": apply, "write": {"connection": LAKE, "path": "{table}"}}
    for name, table in tables.items():
        if len(alike) < 2 or name not in alike:
            yield _apply_node(name, table)


def _fills_in(name: str, table: CapturedTable) -> bool:
    """Whether ``{table}`` of a node of several tables is the name of this table's node."""
    return table.name.rpartition(".")[2] == name and not any(sign in table.name for sign in "*?")


def _apply_node(name: str, table: CapturedTable) -> Node:
    history = {} if table.key else {"history": True}
    apply = {"changes": _CHANGES, "table": table.name, **history}
    return {"name": name, "apply": apply, "write": {"connection": LAKE, "path": name}}


def _is_named(table: CatalogTable, patterns: Sequence[str]) -> bool:
    names = (table.name, table.shown)
    return any(pattern in names or any(fnmatch.fnmatchcase(name, pattern) for name in names) for pattern in patterns)


def _used_password(session: plain.Session) -> bool:
    """Whether the server asked for a password: psycopg takes one from the environment or a file of its own, too."""
    connection = getattr(session.opened, "pgconn", None)
    return connection is not None and bool(connection.used_password)


def create_for(
    folder: Path, url: str, wanted: ProjectRequest, environment: Mapping[str, str] = os.environ
) -> tuple[tuple[Path, ...], MadeProject]:
    """Write the project that reads the database at ``url`` into ``folder``, and return what was written.

    Raises:
        ConfigError: as :func:`project_of`, or a file that would be written is there already. Nothing is written then.
        SourceError: the database does not answer.
    """
    paths = (folder / DEFAULT_PROJECT_FILE, folder / SCHEMA_FILE)
    require_new(folder, paths)
    made = project_of(url, wanted, environment)
    write_new(dict(zip(paths, (made.text, schema_text()), strict=True)))
    return paths, made
