"""Rows of a database through Spark's JDBC reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from odi_assets.errors import ConfigError, SourceError
from odi_assets.sources.cursor.types import TypeName
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.errors import read_errors_named
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.columns import SqlColumn, sql_column, unknown_column
from odi_assets.sources.sql.dialects import Mysql, Postgres, Unordered
from odi_assets.sources.sql.errors import UnknownTypeError, same_names
from odi_assets.sources.sql.keys import KeyColumn, invisible_columns, keys_of
from odi_assets.sources.sql.marks import TableChunk
from odi_assets.sources.sql.statements import KEY, Relation, predicates
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted
from odi_assets.util.extras import install_command

_READER_OPTIONS: Mapping[str, str] = {
    "preferTimestampNTZ": "true",
    # By default, drivers fetch all rows at once.
    "fetchsize": "10000",
    # The database would compare text by its collation where Spark compares it by code points.
    "pushDownPredicate": "false",
}


@dataclass(frozen=True)
class RelationReader:
    """What Spark reads of a relation.

    Attributes:
        partition_column, pieces: what the pieces are cut by that are read side by side, and how many there are.
        options: further options of Spark's JDBC reader.
    """

    spark: SparkSession
    relation: Relation
    partition_column: str | None
    pieces: int
    options: Mapping[str, str]

    @cached_property
    def columns(self) -> list[SqlColumn]:
        """The columns and how each is asked for.

        Raises:
            ConfigError: something is asked for in the place of a column that is not there.
            SourceError: the database does not answer; or a column has a type that Spark does not know, and it is not
                known which column.
        """
        whole = self._fields(self._all)
        declared = self._declared() if whole is None else {field.name: None for field in whole}
        self._require_named(declared)
        if whole is not None and not self.relation.columns:
            return [sql_column(field, self.relation.dialect, self._sql(field.name)) for field in whole]
        replacements, unknown = self.relation.columns, self.relation.dialect.unknown_types
        asked = [name for name, kind in declared.items() if name in replacements or kind not in unknown]
        known = {column.name: column for column in self._known(asked)}
        return [known.get(name) or unknown_column(name, self.relation.dialect, self._sql(name)) for name in declared]

    @property
    def _all(self) -> str:
        """All columns, in SQL: of a table of MySQL, the invisible ones too."""
        dialect, table = self.relation.dialect, self.relation.table
        if table is None or not isinstance(dialect, Mysql):
            return "*"
        return ", ".join(["*", *(dialect.quoted(str(row[0])) for row in self.texts(invisible_columns(table)))])

    def _require_named(self, names: Mapping[str, str | None]) -> None:
        """Raises ConfigError if something is asked for in the place of a column that is not there."""
        for name in self.relation.columns:
            if name not in names:
                raise ConfigError(
                    f"{self.relation.label} has no column `{name}`; it has {', '.join(names)}",
                    fix="correct `columns` in `read`",
                    column=name,
                )

    def _sql(self, name: str) -> str:
        return self.relation.columns.get(name) or self.relation.dialect.quoted(name)

    def _known(self, names: Sequence[str]) -> list[SqlColumn]:
        """The columns of these names whose types Spark knows; one that it does not know is looked for by halves."""
        dialect = self.relation.dialect
        asked = ", ".join(f"{self._sql(name)} AS {dialect.quoted(name)}" for name in names)
        fields = self._fields(asked) if names else []
        if fields is not None:
            return [sql_column(field, dialect, self._sql(name)) for name, field in zip(names, fields, strict=True)]
        half = len(names) // 2
        return [] if half == 0 else [*self._known(names[:half]), *self._known(names[half:])]

    def _fields(self, asked: str) -> list[StructField] | None:
        """What Spark sees of a SELECT; None if it does not know one of the types."""
        try:
            return self._load(f"SELECT {asked} FROM {self.relation.sql} odi WHERE 1 = 0").schema.fields
        except UnknownTypeError:
            return None

    def _declared(self) -> dict[str, str | None]:
        """The names of the columns and, of a table, their declared types, from elsewhere than Spark."""
        dialect, table = self.relation.dialect, self.relation.table
        driver = plain.driver_of(dialect)
        if table is not None and isinstance(dialect, Postgres | Mysql):
            return {str(row[0]): str(row[1]) for row in self.texts(keys_of(dialect).columns(table))}
        if driver is not None:
            sql = self.relation.sql
            names = plain.ask(dialect, driver, self.relation.label, lambda session: session.columns(sql))
            return dict.fromkeys(names)
        raise SourceError(
            f"{self.relation.label} has a column of a type that Spark does not know",
            fix="read with a `query` that casts it to text"
            + (f"; or {install_command(dialect.extra)}, to learn which column" if dialect.extra else ""),
            label=self.relation.label,
        )

    @property
    def types(self) -> dict[str, TypeName]:
        """The types of the columns, as Spark writes them in JSON."""
        return {column.name: column.sized_type for column in self.columns}

    @cached_property
    def cursor_types(self) -> dict[str, TypeName]:
        """The types of the columns as cursors; of those that the database orders otherwise than state, their names."""
        members = dict.fromkeys(self._members(), Unordered("enum or set"))
        return {column.name: column.cursor_type for column in self.columns} | members

    def _members(self) -> list[str]:
        """The cursors that are an ENUM or a SET of MySQL: its driver calls them CHAR, but not a union of them."""
        chars = [
            column.name
            for column in self.columns
            if column.declared == "char" and column.name in self.relation.ordered_by
        ]
        if not chars or not isinstance(self.relation.dialect, Mysql):
            return []
        names = ", ".join(map(self.relation.dialect.quoted, chars))
        query = f"SELECT {names} FROM {self.relation.sql} odi WHERE 1 = 0"
        return [
            field.name
            for field in self._load(f"{query} UNION ALL {query}").schema.fields
            if field.metadata.get("jdbcClientType") != "CHAR"
        ]

    def rows(self, where: str | None) -> DataFrame:
        """The rows, lazily.

        Args:
            where: the condition that the database evaluates; None for all rows.
        """
        condition = where or "1 = 1"
        if self.pieces <= 1 or self.partition_column is None:
            return self._rows(condition, (), [])
        window = Window(self.partition_column)
        key, kind = self.relation.cursor(window, {column.name: column.cut_type for column in self.columns})
        pieces = predicates(self.relation, key, kind, condition, self.pieces, self.texts)
        return self._rows(condition, (f"{key} AS {self.relation.dialect.quoted(KEY)}",), pieces)

    def chunks(self, where: str, by: Sequence[KeyColumn], chunks: Sequence[TableChunk]) -> DataFrame:
        """The rows of ``chunks`` of a snapshot, lazily, each over a connection of its own.

        Args:
            where: the condition that rows of any chunk fulfil.
            by: the key columns that the chunks are ranges of.
        """
        dialect, keys = self.relation.dialect, keys_of(self.relation.dialect)
        # A condition on each chunk comes from outside of the query, which calls its keys by names of its own.
        outside = [KeyColumn(dialect.quoted(f"{KEY}_{number}"), key.kind) for number, key in enumerate(by)]
        named = [f"{key.sql} AS {name.sql}" for key, name in zip(by, outside, strict=True)]
        try:
            return self._rows(where, named, [f"({keys.within(chunk, outside)})" for chunk in chunks])
        except UnknownTypeError:
            # Spark does not know the type of a key: it is not to see it.
            parts = [self._rows(f"({where}) AND ({keys.within(chunk, by)})", (), []) for chunk in chunks]
            return reduce(DataFrame.unionAll, parts)

    def _rows(self, where: str, keys: Sequence[str], pieces: list[str]) -> DataFrame:
        asked = [part for column in self.columns for part in column.asked(self.relation.dialect)]
        types = ", ".join(filter(None, (column.as_asked for column in self.columns)))
        query = f"SELECT {', '.join([*asked, *keys])} FROM {self.relation.sql} odi WHERE {where}"
        rows = self._load(query, pieces, **({"customSchema": types} if types else {}))
        return rows.select([column.restored() for column in self.columns])

    def texts(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query, each value as text."""
        rows = self._load(query)
        with read_errors_named(self.relation.label, [self.relation.read_error]):
            texts = rows.select([F.col(quoted(name)).cast("string") for name in rows.columns])
            return [tuple(row) for row in texts.collect()]

    def _load(self, query: str, pieces: list[str] | None = None, **more: str) -> DataFrame:
        options, dialect, label = {**self._options(), **more}, self.relation.dialect, self.relation.label
        with read_errors_named(label, [lambda text: same_names(text, dialect, label), self.relation.read_error]):
            if not pieces:
                return self.spark.read.format("jdbc").options(**options, dbtable=f"({query}) odi_rows").load()
            url = options.pop("url")
            return self.spark.read.jdbc(url, f"({query}) odi_rows", predicates=pieces, properties=options)

    def _options(self) -> dict[str, str]:
        dialect = self.relation.dialect
        connection = dialect.connection
        options = {"url": dialect.url, "driver": dialect.driver_class, "sessionInitStatement": dialect.session}
        options["user"] = connection.user
        # Never part of the address, which plans and errors show.
        options["password"] = connection.password.get_secret_value() if connection.password is not None else None
        known = {name: value for name, value in options.items() if value is not None}
        return {**_READER_OPTIONS, **dialect.properties, **connection.options, **self.options, **known}
