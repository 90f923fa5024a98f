"""Rows of a database through Spark's JDBC reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from odi_assets.sources.cursor.types import TypeName
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.errors import read_errors_named
from odi_assets.sources.sql.chunks import key_columns
from odi_assets.sources.sql.columns import SqlColumn, sql_column
from odi_assets.sources.sql.keys import KeyColumn, keys_of
from odi_assets.sources.sql.marks import Chunk
from odi_assets.sources.sql.pieces import KEY, predicates
from odi_assets.sources.sql.statements import Relation
from odi_assets.tables.columns import quoted

_READER_OPTIONS: Mapping[str, str] = {
    "preferTimestampNTZ": "true",
    # Drivers fetch all rows at once unless told otherwise.
    "fetchsize": "10000",
    # The database would compare text by its collation where Spark compares it by code points.
    "pushDownPredicate": "false",
}


@dataclass(frozen=True)
class Reader:
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
        """The columns and how each is asked for."""
        rows = self._load(f"SELECT * FROM {self.relation.sql} odi WHERE 1 = 0")
        return [sql_column(found, self.relation.dialect) for found in rows.schema.fields]

    @property
    def types(self) -> dict[str, TypeName]:
        """The types of the columns, as Spark writes them in JSON."""
        return {column.name: column.type for column in self.columns}

    def rows(self, where: str | None) -> DataFrame:
        """The rows, lazily.

        Args:
            where: the condition that the database evaluates; None for all rows.
        """
        condition = where or "1 = 1"
        if self.pieces <= 1 or self.partition_column is None:
            return self._rows(condition, (), [])
        window = Window(self.partition_column)
        key, kind = self.relation.cursor(window, self.types)
        pieces = predicates(self.relation, key, kind, condition, self.pieces, self.texts)
        return self._rows(condition, (f"{key} AS {self.relation.dialect.quoted(KEY)}",), pieces)

    def chunks(self, where: str, by: Sequence[str], chunks: Sequence[Chunk]) -> DataFrame:
        """The rows of ``chunks`` of a snapshot, lazily, each over a connection of its own.

        Args:
            where: the condition that rows of any chunk fulfil.
            by: the key columns that the chunks are ranges of.

        Raises:
            IncrementError: there is no such column.
        """
        dialect, keys = self.relation.dialect, keys_of(self.relation.dialect)
        inside = key_columns(self.relation, by, self.types)
        # A condition on each chunk comes from outside of the query, which calls its keys by names of its own.
        outside = [KeyColumn(dialect.quoted(f"{KEY}_{number}"), key.kind) for number, key in enumerate(inside)]
        named = [f"{key.sql} AS {name.sql}" for key, name in zip(inside, outside, strict=True)]
        return self._rows(where, named, [f"({keys.within(chunk, outside)})" for chunk in chunks])

    def _rows(self, where: str, keys: Sequence[str], pieces: list[str]) -> DataFrame:
        asked = [f"{column.sql} AS {self.relation.dialect.quoted(column.name)}" for column in self.columns]
        rows = self._load(f"SELECT {', '.join([*asked, *keys])} FROM {self.relation.sql} odi WHERE {where}", pieces)
        return rows.select([column.restored() for column in self.columns])

    def texts(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query, each value as text."""
        from pyspark.sql import functions as F

        rows = self._load(query)
        with read_errors_named(self.relation.label, [self.relation.read_error]):
            texts = rows.select([F.col(quoted(name)).cast("string") for name in rows.columns])
            return [tuple(row) for row in texts.collect()]

    def _load(self, query: str, pieces: list[str] | None = None) -> DataFrame:
        options = self._options()
        with read_errors_named(self.relation.label, [self.relation.read_error]):
            if not pieces:
                return self.spark.read.format("jdbc").options(**options, dbtable=f"({query}) odi_rows").load()
            url = options.pop("url")
            return self.spark.read.jdbc(url, f"({query}) odi_rows", predicates=pieces, properties=options)

    def _options(self) -> dict[str, str]:
        dialect = self.relation.dialect
        connection = dialect.connection
        given = {"url": dialect.url, "driver": dialect.driver_class, "sessionInitStatement": dialect.session}
        given["user"] = connection.user
        # Never part of the address, which plans and errors show.
        given["password"] = connection.password.get_secret_value() if connection.password is not None else None
        known = {name: value for name, value in given.items() if value is not None}
        return {**_READER_OPTIONS, **dialect.properties, **connection.options, **self.options, **known}
