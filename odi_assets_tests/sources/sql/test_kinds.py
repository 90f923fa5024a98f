"""Columns of every type that a server has: each value comes over as the server writes it, or is refused by name. Then
the way on that the message names leads to it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from odi_assets.config.graph import NodeKey
from odi_assets.errors import SourceError
from odi_assets.nodes.node import Node
from odi_assets.sources.cursor.digits import digits_of
from odi_assets.sources.errors import read_errors_named
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.source import SqlSource
from odi_assets_tests.sources.sql import kinds
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

REFUSED: Mapping[str, frozenset[str]] = {
    "postgres": frozenset(
        {"date", "timestamp", "timestamptz", "numeric", "numeric(50,10)", "numeric(60,50)", "numeric(1000,500)"}
        | {"numeric(40,-5)", "odi_wide", "integer[]", "numeric[]", "numeric(50,10)[]"}
    ),
    "mysql": frozenset(
        {"date", "datetime", "timestamp", "decimal(65,0)", "decimal(65,30)", "decimal(65,38)", "decimal(50,10)"}
    ),
}
"""The types of which Spark's have no place for some values."""


@dataclass(frozen=True)
class Table:
    """A table with a column of each type: its first row has the first value of each, and its last row NULLs."""

    server: Server
    kinds: Mapping[str, str]

    @classmethod
    def made(cls, server: Server) -> Table:
        is_postgres = server.type == "postgres"
        found = kinds.of(server.name)
        if is_postgres:
            server.execute(*kinds.POSTGRES_SETUP)
        columns = ", ".join(f"c{number} {kind}{'' if is_postgres else ' NULL'}" for number, kind in enumerate(found))
        server.execute("DROP TABLE IF EXISTS kinds", f"CREATE TABLE kinds (n int, {columns})")
        for row in range(max(map(len, found.values())) + 1):
            values = [each[row] if row < len(each) else "NULL" for each in found.values()]
            casts = [f"CAST({value} AS {kind})" for kind, value in zip(found, values, strict=True)]
            server.execute(f"INSERT INTO kinds VALUES ({row}, {', '.join(casts if is_postgres else values)})")
        return cls(server, {f"c{number}": kind for number, kind in enumerate(found)})

    def shown(self, column: str, *, whole: bool = False) -> str:
        """A column as the server writes it: of PostgreSQL any type as text, an array in its elements unless it is asked
        for whole."""
        kind = self.kinds[column]
        if self.server.type == "postgres":
            if kind.endswith("[]") and not whole:
                items = f"ARRAY(SELECT CAST(x AS text) FROM unnest({column}) x)"
                return f"CASE WHEN {column} IS NOT NULL THEN json_build_array(array_dims({column}), {items}) END"
            return f"CAST({column} AS text)"
        if "blob" in kind or "binary(" in kind or kind in SHAPES:
            return f"HEX({column})"
        number = {"bit": f"{column} + 0", "flo": f"CAST({column} AS DOUBLE)"}.get(kind[:3], column)
        return f"CAST({number} AS CHAR)"

    def texts(self, *, whole: bool = False) -> dict[str, list[Any]]:
        """The values of each column as the server writes them, row by row."""
        shown = ", ".join(self.shown(column, whole=whole) for column in self.kinds)
        rows = self.ask(f"SELECT {shown} FROM kinds ORDER BY n")
        return dict(zip(self.kinds, map(list, zip(*rows, strict=True)), strict=True))

    def corrected(self, column: str, text: str) -> None:
        """It without a value."""
        is_instant = self.kinds[column] == "timestamptz"
        shown = f"CAST({column} AT TIME ZONE 'UTC' AS text)" if is_instant else self.shown(column, whole=True)
        where = f"{shown} = '{text}'"
        (count,) = self.ask(f"SELECT COUNT(*) FROM kinds WHERE {where}")[0]
        assert count, (self.kinds[column], text)
        self.ask(f"UPDATE kinds SET {column} = NULL WHERE {where}")

    def ask(self, query: str) -> list[Any]:
        opened = self.server.connect()
        try:
            cursor = opened.cursor()
            if self.server.type == "postgres":
                cursor.execute("SET datestyle = 'ISO'")
                cursor.execute("SET timezone = 'UTC'")
            cursor.execute(query)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            opened.close()


SHAPES = frozenset(kind for kind in kinds.MARIADB if kind.endswith(("point", "string", "polygon", "geometry", "tion")))
_TIMES = ("date", "timestamp", "timestamp_ntz")


def read(make: Make, spark: SparkSession, what: str = "table: kinds") -> tuple[dict[str, DataType], list[Row]]:
    """The types of the columns, and the rows in their order; times as text, for Python has not all of them."""
    (source,) = Node.of(make(what).project, NodeKey("p", "events")).sources
    assert isinstance(source, SqlSource)
    rows = source.whole().load(spark)
    types = {field.name: field.dataType for field in rows.schema}
    shown = [F.col(name).cast("string") if kind.typeName() in _TIMES else F.col(name) for name, kind in types.items()]
    with read_errors_named("p.events", [source.relation.read_error]):
        return types, sorted(rows.select(shown).collect(), key=lambda row: row.n)


def corrected(make: Make, spark: SparkSession, table: Table) -> dict[str, str]:
    """The way on for each column with values that are refused; these are gone then."""
    names = ", ".join(column for column, kind in table.kinds.items() if kind in REFUSED[table.server.type])
    ways: dict[str, str] = {}
    while (found := refusal(make, spark, f"query: 'SELECT n, {names} FROM kinds'")) is not None:
        value = re.search(r"column `(c\d+)` holds (.*), which is no ", str(found), re.DOTALL)
        way = re.search(r"`columns: \{(c\d+: '.*')\}` reads", str(found))
        assert value, str(found)
        assert way, str(found)
        table.corrected(value[1], value[2])
        ways[value[1]] = way[1]
    return ways


def refusal(make: Make, spark: SparkSession, what: str) -> SourceError | None:
    try:
        read(make, spark, what)
    except SourceError as error:
        return error
    return None


@both
def test_each_value_of_each_type_comes_over_or_is_refused_by_name(
    make: Make, server: Server, spark: SparkSession
) -> None:
    table = Table.made(server)
    all_texts = table.texts(whole=True)
    ways = corrected(make, spark, table)
    assert {table.kinds[column] for column in ways} == REFUSED[server.type] & {*kinds.of(server.name)}
    require_same(table, *read(make, spark))
    # The ways on, followed: all values are there.
    Table.made(server)
    types, rows = read(make, spark, f"table: kinds, columns: {{{', '.join(ways.values())}}}")
    for column in ways:
        assert types[column].typeName() == "string"
        assert [row[column] for row in rows] == all_texts[column]


def require_same(table: Table, types: Mapping[str, DataType], rows: list[Row]) -> None:
    items, whole, others = table.texts(), table.texts(whole=True), []
    for column, kind in table.kinds.items():
        # An array may come over as one text.
        texts = whole[column] if types[column].typeName() == "string" else items[column]
        for row, text in zip(rows, texts, strict=True):
            if not is_same(types[column], row[column], text):
                others.append((kind, types[column].simpleString(), row[column], text))
    # The driver may write a value otherwise; it is the same if the server says so.
    assert [other for other in others if not is_same_to_the_server(table, *other)] == []


def is_same_to_the_server(table: Table, kind: str, spark_type: str, value: Any, text: Any) -> bool:
    if table.server.type != "postgres" or value is None:
        return False
    pairs = [(value, text)] if spark_type == "string" else list(zip(value, text[1], strict=True))
    kind = kind.removesuffix("[]")
    return spark_type in ("string", "array<string>") and all(
        one == other or table.ask(f"SELECT CAST(CAST('{one}' AS {kind}) AS text)")[0][0] == other
        for one, other in pairs
    )


def is_same(kind: DataType, value: Any, text: Any) -> bool:
    """Whether a value of Spark is what the server writes."""
    if value is None or text is None:
        return value is text
    if isinstance(kind, ArrayType):
        if isinstance(text, str):
            return False
        dimensions, items = text
        flat, element = list(flattened(value)), kind
        while isinstance(element, ArrayType):
            element = element.elementType  # type: ignore[assignment]
        lengths = [int(high) for high in re.findall(r":(\d+)\]", dimensions or "")]
        return lengths == shape(value) and all(
            is_same(element, one, other) for one, other in zip(flat, items, strict=True)
        )
    if isinstance(text, list):
        return False
    name = kind.typeName()
    if name == "string":
        return bool(value == text)
    if name == "boolean":
        return bool(value is (text in ("true", "1", "t")))
    if name in ("float", "double"):
        digits = "f" if name == "float" else "d"
        return struct.pack(digits, value) == struct.pack(digits, float(text))
    if name == "binary":
        shown = text.removeprefix("\\x")
        return bytes(value).hex() == shown.lower() or bytes(value) == text.encode()
    if name in _TIMES:
        return moment(value) == moment(text)
    return Decimal(value) == Decimal(text)


def moment(text: str) -> str:
    return re.sub(r"(\.\d*?)0*$", r"\1", text.removesuffix("+00").removeprefix("+")).removesuffix(".")


def flattened(value: Any) -> Iterator[Any]:
    for one in value:
        yield from flattened(one) if isinstance(one, list) else [one]


def shape(value: Any) -> list[int]:
    return [len(value), *shape(value[0])] if isinstance(value, list) and value else []


@both
def test_plain_drivers_and_spark_agree_on_how_much_of_its_values_a_column_keeps(
    make: Make, spark: SparkSession, server: Server
) -> None:
    table = Table.made(server)
    box = make("table: kinds")
    (source,) = Node.of(box.project, NodeKey("p", "events")).sources
    assert isinstance(source, SqlSource)
    dialect, relation = source.dialect, source.relation
    driver = plain.driver_of(dialect)
    assert driver is not None
    types = plain.ask(dialect, driver, source.label, lambda session: session.columns(relation.sql))
    others = {}
    for column in source.snapshot().reader(spark).columns:
        asked, seen = digits_of(types.get(column.name)), digits_of(column.sized_type)
        if column.name in table.kinds and None not in (asked[0], seen[0]) and asked != seen:
            others[table.kinds[column.name]] = (asked, seen)
    assert not others
