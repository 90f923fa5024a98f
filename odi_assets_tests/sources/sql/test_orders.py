"""Cursors of every type that a server has: rows are ordered as the server orders them, or the type is refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IncrementError
from odi_assets.nodes.node import Node
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.dialects import Unordered, parsed
from odi_assets.sources.sql.reader import RelationReader
from odi_assets.sources.sql.source import SqlSource
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.sql import kinds
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

_NUMBERS = [*range(8, 13), *range(98, 103)]
_BYTES = ["''", "'00'", "'61'", "'6100'", "'7f'", "'80'", "'ff'"]
MORE: Mapping[str, Mapping[str, Sequence[str]]] = {
    "postgres": {
        "xid8": [f"'{number}'" for number in _NUMBERS],
        "oid": [f"'{number}'" for number in _NUMBERS],
        "pg_lsn": [f"'{number:X}/{low}'" for number in _NUMBERS for low in ("9", "A", "10")],
        "money": [f"'{number}.5'" for number in [*_NUMBERS, *(-number for number in _NUMBERS)]],
        "numeric": [f"{number}.5" for number in _NUMBERS],
        "interval": ["'1 year'", "'361 days'", "'362 days'", "'9 days'", "'10 days'", "'1 mon -1 day'", "'-1 year'"],
        "time with time zone": ["'10:00+02'", "'09:00+00'", "'09:30+01'", "'23:00-03'", "'9:00+03'"],
        "time": ["'09:00'", "'10:00:00.5'", "'10:00'", "'10:00:00.000001'", "'10:00:00.49'"],
        "inet": ["'9.0.0.1'", "'10.0.0.2'", "'100.0.0.1'"],
        "macaddr": ["'08:00:2b:01:02:04'", "'f8:00:2b:01:02:03'", "'00:00:00:00:00:00'"],
        "macaddr8": ["'08:00:2b:01:02:03:04:06'", "'f8:00:2b:01:02:03:04:05'"],
        "interval year to month": ["'9 mons'", "'10 mons'", "'-1 year'"],
        "interval second(3)": ["'9 seconds'", "'10 seconds'"],
        "bit(70)": [f"B'{'01' * 35}'"],
        "bit varying(5)": ["B'0'", "B'001'"],
        "bit(3)": ["B'001'", "B'010'", "B'100'", "B'110'"],
        "bit varying": ["B'10'", "B'100000000'", "B'01'", "B'010'", "B'1000000000000001'"],
        "int4range": [f"'[{number},{number + 1})'" for number in _NUMBERS],
        "uuid": [f"'{digit}0000000-0000-4000-8000-000000000000'" for digit in "0189abef"],
        "name": ["'b'", "'B'", "'_'", "'é'"],
        "citext": ["'b'", "'B'", "'_'", "'é'"],
        "bytea": [f"decode({value}, 'hex')" for value in _BYTES],
        "character(5)": ["'b'", "'b!'", "'B'", "'é'"],
    },
    "mysql": {
        "time": ["'-10:00:00'", "'-9:00:00'", "'9:00:00'", "'10:00:00'", "'100:00:00'", "'99:00:00'"],
        "time(6)": ["'9:00:00.5'", "'100:00:00.000002'", "'-9:00:00.25'"],
        "inet4": [f"'{number}.0.0.1'" for number in _NUMBERS],
        "inet6": [f"'::{number:x}'" for number in _NUMBERS],
        "uuid": [f"'{digit}0000000-0000-{version}000-8000-00000000000{digit}'" for digit in "09af" for version in "14"],
        "year": ["1999", "2001", "2024"],
        "bit(12)": [f"{number}" for number in _NUMBERS],
        "varchar(9)": ["'b'", "'B'", "'b '", "'b!'", "'é'", "'ﬁ'", "'日'"],
        "char(5)": ["'b'", "'b!'", "'B'", "'é'"],
        "varbinary(5)": [f"X{value}" for value in _BYTES],
        "float": [f"{number}.1" for number in _NUMBERS],
        "datetime(6)": ["'2024-01-01 10:00:00'", "'2024-01-01 09:00:00.000001'"],
    },
}
"""Further values, with which the order of texts is another one than the order of values."""
ALIASES = ("bit", "time without time zone", "timestamp without time zone", "timestamp with time zone")
"""Types that have values under other names."""
TEXTS = ("char", "varchar", "text", "tinytext", "mediumtext", "longtext", "citext", "name", "odi_label")
"""Text is compared by its code points, whatever its collation is."""


@contextmanager
def asking(server: Server) -> Iterator[Any]:
    """What asks the server for the rows of a query, in a session as runs have it."""
    opened = server.connect()
    dialect = plain.Mysql if server.type == "mysql" else plain.Postgres
    cursor = opened.cursor()
    if server.type == "mysql":
        cursor.execute("SET sql_mode = ''")
    cursor.execute(dialect.session)

    def ask(query: str) -> list[Any]:
        cursor.execute(query)
        return list(cursor.fetchall()) if cursor.description else []

    try:
        yield ask
    finally:
        opened.close()


def all_kinds(server: Server, ask: Any) -> dict[str, list[str]]:
    """By type, values as SQL. Of PostgreSQL every type of its catalog, whether somebody thought of it or not."""
    if server.type == "mysql":
        return {kind: [*values, *MORE["mysql"].get(kind, ())] for kind, values in kinds.of(server.name).items()}
    server.execute(*kinds.POSTGRES_SETUP)
    listed = ask(
        "SELECT format_type(oid, NULL) FROM pg_type WHERE typtype IN ('b', 'r', 'm') AND typelem = 0 "
        "AND typnamespace = 'pg_catalog'::regnamespace AND typname <> 'unknown'"
    )
    assert len(listed) > 60
    others = dict.fromkeys(name for (name,) in listed if name not in ALIASES)
    found = {**dict.fromkeys(others, ()), **kinds.POSTGRES, **kinds.POSTGRES_ARRAYS}
    return {kind: [*values, *MORE["postgres"].get(kind, ())] for kind, values in found.items()}


def made(server: Server, ask: Any) -> dict[str, str]:
    """A table with a column of each type; the type of each column."""
    found = all_kinds(server, ask)
    null = "" if server.type == "postgres" else " NULL"
    columns = ", ".join(f"c{number} {kind}{null}" for number, kind in enumerate(found))
    ask("DROP TABLE IF EXISTS orders")
    ask(f"CREATE TABLE orders (n int, {columns})")
    for row in range(max(map(len, found.values()))):
        values = [each[row] if row < len(each) else "NULL" for each in found.values()]
        if server.type == "postgres":
            values = [f"CAST({value} AS {kind})" for kind, value in zip(found, values, strict=True)]
        ask(f"INSERT INTO orders VALUES ({row}, {', '.join(values)})")
    return {f"c{number}": kind for number, kind in enumerate(found)}


def sql_source(make: Make, read: str) -> SqlSource:
    (source,) = Node.of(make(read).project, NodeKey("p", "events")).sources
    assert isinstance(source, SqlSource)
    return source


def reader_of(make: Make, spark: SparkSession, columns: Sequence[str], read: str) -> RelationReader:
    """A reader of rows that may be ordered by any of ``columns``."""
    reader = sql_source(make, read).snapshot().reader(spark)
    return replace(reader, relation=replace(reader.relation, ordered_by=frozenset(columns)))


def require_same_order(reader: RelationReader, column: str, kind: str, ask: Any) -> int:
    """Compares the order of a cursor, in the conditions that are sent and in state, with that of the server; the number
    of its values."""
    relation = reader.relation
    sql, family = relation.cursor(Window(column), reader.cursor_types)
    table, plain_sql = relation.sql, relation.dialect.quoted(column)
    values = []
    for (number,) in ask(f"SELECT n FROM {table} odi WHERE {sql} IS NOT NULL ORDER BY n"):
        text = ask(f"SELECT {relation.dialect.greatest(sql, family)} FROM {table} odi WHERE n = {number}")[0][0]
        try:
            values.append((parsed(None if text is None else str(text), family), number))
        except (ValueError, ArithmeticError):
            # A run stops at it.
            continue
    for value, number in values:
        wanted = {one for other, one in values if other <= value}
        low = relation.condition(Window(column, upper=value, upper_inclusive=True), reader.cursor_types)
        below = {one for (one,) in ask(f"SELECT n FROM {table} odi WHERE {low}")}
        assert {one for _, one in values} & below == wanted, (kind, value)
        if kind.partition("(")[0].split()[0] not in (*TEXTS, "character"):
            theirs = f"SELECT n FROM {table} odi WHERE {plain_sql} <= (SELECT {plain_sql} FROM {table} x WHERE n = "
            assert wanted == {one for (one,) in ask(f"{theirs}{number})")} & {one for _, one in values}, (kind, value)
    return len(values)


@both
def test_a_cursor_of_each_type_is_ordered_as_the_database_orders_it_or_is_refused(
    make: Make, server: Server, spark: SparkSession
) -> None:
    with asking(server) as ask:
        columns = made(server, ask)
        reader = reader_of(make, spark, list(columns), "table: orders")
        held, refused, ways = {}, set(), {}
        for column, kind in columns.items():
            if not isinstance(reader.cursor_types[column], Unordered):
                if reader.cursor_types[column] != "boolean":
                    held[kind] = require_same_order(reader, column, kind, ask)
                continue
            refused.add(kind)
            with pytest.raises(IncrementError, match="does not put rows in an order") as caught:
                reader.relation.bound(Window(column), reader.cursor_types)
            way = re.search(r"selects `(.*) AS .c\d+.` in its place, which keeps the order", str(caught.value.fix))
            if way:
                ways[column] = way[1]
        assert refused >= {
            kind for kind in REFUSED[server.type] if kind not in kinds.NOT_OF_MYSQL or server.name != "mysql"
        }
        assert sum(held.values()) > 100
        assert not [kind for kind, count in held.items() if count == 0]
        require_same_as_plain(server, columns, refused)
        require_ways_keep_the_order(make, spark, ways, columns, ask)


REFUSED = {
    "postgres": {"xid8", "xid", "pg_lsn", "oid", "money", "interval", "time with time zone", "inet", "cidr", "macaddr"}
    | {"bit(3)", "bit varying", "int4range", "tsmultirange", '"char"', "jsonb", "odi_mood", "text[]", "ltree", "tid"},
    "mysql": {"year", "year(2)", "time", "time(6)", "inet4", "inet6", "uuid", "json", "point", "geometry"}
    | {kind for kind in kinds.MARIADB if kind.startswith(("enum", "set"))},
}


def require_same_as_plain(server: Server, columns: Mapping[str, str], refused: set[str]) -> None:
    """What a plain driver takes for a cursor, Spark does not refuse; but for one alias, whose read it stops."""
    with asking(server):
        opened = server.connect()
        driver = plain._DRIVERS[plain.Mysql if server.type == "mysql" else plain.Postgres]
        types = plain.Session(opened, driver).columns("orders")
        opened.close()
    known = {columns[name] for name, kind in types.items() if kind is not None and name in columns}
    assert known & refused <= {"json"}
    assert {"bigint", "date"} <= known


def require_ways_keep_the_order(
    make: Make, spark: SparkSession, ways: Mapping[str, str], columns: Mapping[str, str], ask: Any
) -> None:
    """The ways on, followed: each is a cursor, and orders rows as its column does."""
    assert len(ways) >= 4
    query = f"SELECT n, {', '.join(f'{sql} AS {name}' for name, sql in ways.items())} FROM orders".replace("'", "''")
    reader = reader_of(make, spark, list(ways), f"query: '{query}'")
    for name, sql in ways.items():
        assert not isinstance(reader.cursor_types[name], Unordered), (columns[name], sql)
        assert require_same_order(reader, name, "its way on", ask) > 1, columns[name]
        # Two members of an ENUM are compared as texts, but sorted by their numbers.
        ranks = ", ".join(f"RANK() OVER (ORDER BY {one}) AS r{number}" for number, one in enumerate((name, sql)))
        found = ask(f"SELECT {ranks} FROM orders WHERE {name} IS NOT NULL AND {sql} IS NOT NULL")
        turned = [(one, two) for one, two in itertools.combinations(sorted(found), 2) if one[0] < two[0]]
        assert turned
        assert not [pair for pair in turned if pair[0][1] > pair[1][1]], (columns[name], sql)


REFUSALS = [
    ("postgres", "xid8", "'99'", "'100'"),
    ("postgres", "pg_lsn", "'9/0'", "'10/0'"),
    ("postgres", "oid", "9", "10"),
    ("postgres", "bit(8)", "B'00000001'", "B'00000010'"),
    ("postgres", "interval", "'9 days'", "'10 days'"),
    ("mariadb", "enum('z','b','A')", "'z'", "'A'"),
    ("mariadb", "set('z','b')", "'z'", "'b'"),
    ("mariadb", "inet6", "'::a'", "'::10'"),
    ("mariadb", "time", "'99:00:00'", "'100:00:00'"),
]


@pytest.mark.parametrize("has_driver", [True, False])
@pytest.mark.parametrize(("server", "kind", "first", "then"), REFUSALS, indirect=["server"])
def test_a_cursor_that_comes_over_in_another_order_is_refused_and_its_way_on_reads_what_comes(
    make: Make,
    server: Server,
    kind: str,
    first: str,
    then: str,
    has_driver: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id bigint PRIMARY KEY, x int, at {kind})")
    server.execute(f"INSERT INTO events VALUES (1, NULL, {first})")
    if not has_driver:
        monkeypatch.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
    one, two = "mode: stateful, column: at", "mode: cursors, columns: [x, at]"
    fix = ""
    for what in ("table: events", "query: 'SELECT id, x, at FROM events'"):
        for follows in (one, f"{two}, snapshot: {{by: [id]}}"):
            with pytest.raises(
                IncrementError, match=r"`at` of .* is .*, and no cursor: it does not put rows"
            ) as caught:
                make(f"{what}, incremental: {{{follows}}}").run("events")
            fix = str(caught.value.fix)
    way = re.search(r"selects `(.*)` in its place, which keeps the order", fix)
    assert way, fix
    query = f"SELECT id, {way[1]} FROM events".replace("'", "''")
    box = make(f"query: '{query}', incremental: {{{one}}}", "mode: append")
    assert box.run("events").rows_written == 1
    server.execute(f"INSERT INTO events VALUES (2, NULL, {then})")
    assert box.run("events").rows_written == 1
    assert box.run("events").status is RunStatus.NO_DATA


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_pieces_by_bits_are_refused_by_name(make: Make, server: Server) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint, at bit(8))")
    server.execute("INSERT INTO events VALUES (1, B'00000001'), (2, B'00000010')")
    with pytest.raises(IncrementError, match="`at` of db:events is bit, and no cursor"):
        make("table: events, partition_column: at, pieces: 2").run("events")
