"""Chunks of keys of every type, whatever lies between their values: each row in one, and not more of them than rows ask
for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from odi_assets.config.models import ChunksConfig, ServerConnection
from odi_assets.errors import IncrementError
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.chunks import Cutter, key_columns
from odi_assets.sources.sql.dialects import dialect_of
from odi_assets.sources.sql.keys import KeyColumn, keys_of
from odi_assets.sources.sql.marks import Chunks
from odi_assets.sources.sql.statements import Relation
from odi_assets_tests.sources.sql import kinds
from odi_assets_tests.sources.sql.conftest import both
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, Server

ROWS = 3


@contextmanager
def session(server: Server) -> Iterator[tuple[Any, Callable[[str], Sequence[tuple[Any, ...]]], list[str]]]:
    """The dialect, what asks the server as a run does, and what was asked."""
    connection = ServerConnection.model_validate(
        {"type": server.type, "host": "127.0.0.1", "port": server.port, "database": DATABASE}
        | {"user": USER, "password": PASSWORD}
    )
    dialect, asked = dialect_of(connection), []
    driver = plain.driver_of(dialect)
    assert driver is not None
    module = __import__(driver.module)
    opened = driver.connect(module, connection, 20.0)

    def ask(query: str) -> Sequence[tuple[Any, ...]]:
        asked.append(query)
        return plain.Session(opened, driver).rows(query)

    try:
        yield dialect, ask, asked
    finally:
        opened.close()


def cut(relation: Relation, by: Sequence[str], ask: Any, rows: int = ROWS, **types: str) -> Chunks:
    known: Mapping[str, str | None] = dict.fromkeys(["id", *(name for name in by if name != "ctid")]) | types
    found = Cutter(relation, ChunksConfig(rows=rows, by=tuple(by)), known, ask).chunks()
    assert found is not None
    return found


def rows_of(chunks: Chunks, relation: Relation, ask: Any, **types: str) -> list[list[int]]:
    """The ids in each chunk, by the conditions that Spark's reader sends: from outside of a query."""
    keys, dialect = keys_of(relation.dialect), relation.dialect
    inside = key_columns(relation, chunks.by, dict.fromkeys(chunks.by) | types, ask)
    outside = [KeyColumn(dialect.quoted(f"odi_{number}"), key.kind) for number, key in enumerate(inside)]
    named = ", ".join(f"{key.sql} AS {name.sql}" for key, name in zip(inside, outside, strict=True))
    query = f"SELECT id, {named} FROM {relation.sql} odi WHERE 1 = 1"
    return [
        [int(row[0]) for row in ask(f"SELECT id FROM ({query}) odi_rows WHERE {keys.within(chunk, outside)}")]
        for chunk in chunks.left
    ]


def require_each_once(found: list[list[int]], count: int, rows: int) -> None:
    assert sorted(itertools.chain(*found)) == list(range(count))
    assert len(found) <= 2 * count / rows + 2


UNORDERED = {
    "postgres": frozenset(
        {"aclitem", "box", "cid", "circle", "gtsvector", "json", "jsonpath", "line", "lseg", "path", "pg_node_tree"}
        | {"pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list", "pg_ndistinct"}
        | {"pg_snapshot", "point", "polygon", "refcursor", "txid_snapshot", "xid", "xml"}
        | {"json[]", "point[]", "xml[]", "hstore"}
    ),
    "mysql": frozenset(
        {"point", "geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
        | {"geometrycollection"}
    ),
}


@both
def test_each_row_is_in_one_chunk_of_a_key_of_any_type(server: Server) -> None:
    is_postgres = server.type == "postgres"
    found = kinds.of(server.name)
    if is_postgres:
        server.execute(*kinds.POSTGRES_SETUP)
    for kind, values in found.items():
        if not values:
            continue
        # The first value is there more often than a chunk has rows.
        keys = [values[0]] * (ROWS + 1) + [*values, "NULL", *values, *values]
        server.execute("DROP TABLE IF EXISTS keyed", f"CREATE TABLE keyed (id int, k {kind} NULL)")
        shown = "CAST({} AS " + kind + ")" if is_postgres else "{}"
        server.execute("INSERT INTO keyed VALUES " + ", ".join(f"({n}, {shown.format(k)})" for n, k in enumerate(keys)))
        for table in ("keyed", None):
            with session(server) as (dialect, ask, _):
                relation = Relation(
                    dialect, "(SELECT id, k FROM keyed)" if table is None else "keyed", "db:keyed", table
                )
                types = {} if table else {"k": _as_spark_sees(kind)}
                if kind in UNORDERED[server.type]:
                    if table or is_postgres:
                        with pytest.raises(_refusals(server), match=r"order|operator does not exist|`k` is "):
                            cut(relation, ["k"], ask, **types)
                    continue
                chunks = cut(relation, ["k"], ask, **types)
                require_each_once(rows_of(chunks, relation, ask, **types), len(keys), ROWS)
                assert len(values) < 3 or len(chunks.left) > 1, kind


def _refusals(server: Server) -> tuple[type[Exception], ...]:
    return (IncrementError,) if server.type == "mysql" else (__import__("psycopg").Error,)


def _as_spark_sees(kind: str) -> str:
    """The type of a column of a query, as Spark's reader has it."""
    if kind[:3] == "bit":
        return "boolean" if kind == "bit(1)" else "decimal(20,0)"
    if "int" in kind or kind[:4] in ("bool", "year"):
        return "long"
    if "blob" in kind or "binary(" in kind:
        return "binary"
    family = {"deci": "decimal(38,10)", "floa": "double", "doub": "double", "date": "timestamp_ntz"}
    return {"date": "date", "timestamp": "timestamp"}.get(kind) or family.get(kind[:4], "string")


GAPS: dict[str, Callable[[int], int]] = {
    "none": lambda n: n,
    "milliseconds": lambda n: 1_700_000_000_000 + n * 7_919 + n % 13,
    "doubling": lambda n: 2 ** (n * 50 // 2_000) * 2_000 + n,
    "clusters": lambda n: n // 100 * 10**12 + n % 100,
    "two ends": lambda n: (-1) ** n * (2**62 - n),
}


@both
@pytest.mark.parametrize("gaps", GAPS)
def test_chunks_of_numbers_are_as_many_as_their_rows_ask_for_whatever_lies_between(
    server: Server, gaps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.sources.sql.chunks.STRIDE", 200)
    count = 2_000
    ids = [GAPS[gaps](n) for n in range(count)]
    server.execute(
        "DROP TABLE IF EXISTS keyed",
        "CREATE TABLE keyed (k bigint PRIMARY KEY, id int)",
        "INSERT INTO keyed VALUES " + ", ".join(f"({k}, {n})" for n, k in enumerate(ids)),
    )
    # What the server knows of the table is nothing at first, then right, then old.
    for change in ("SELECT 1", "ANALYZE keyed" if server.type == "postgres" else "ANALYZE TABLE keyed", "few"):
        left = count
        if change == "few":
            left = 90
            server.execute(f"DELETE FROM keyed WHERE id >= {left}")
        else:
            server.execute(change)
        for rows in (90, 450, 10**6):
            with session(server) as (dialect, ask, asked):
                relation = Relation(dialect, "keyed", "db:keyed", "keyed")
                chunks = cut(relation, ["k"], ask, rows, k="long")
                # Five looks at the table and its key, a query for each stride, and one beyond the last of them.
                assert len(asked) <= 5 + len(chunks.left) * -(-min(rows, left) // 200) + 1
                assert gaps != "none" or len(asked) <= 5
                found = rows_of(chunks, relation, ask, k="long")
            require_each_once(found, left, rows)
            assert max(map(len, found)) <= rows


@pytest.mark.parametrize("change", ["SELECT 1", "ANALYZE keyed", "few", "few and analyzed", "only the last"])
def test_chunks_of_pages_are_as_many_as_their_rows_ask_for(server: Server, change: str) -> None:
    count = 2_000
    server.execute(
        "DROP TABLE IF EXISTS keyed",
        "CREATE TABLE keyed (id int, note text)",
        f"INSERT INTO keyed SELECT n, repeat('x', 200 + n % 7) FROM generate_series(0, {count - 1}) n",
    )
    if "few" in change:
        count = 60
        server.execute("ANALYZE keyed", f"DELETE FROM keyed WHERE id >= {count}")
    if change == "only the last":
        server.execute("DELETE FROM keyed WHERE id < 1900", "UPDATE keyed SET id = id - 1900")
        count = 100
    server.execute("ANALYZE keyed" if "analyzed" in change else change if change.isupper() else "SELECT 1")
    for rows in (20, 100, 1_000, 10**6):
        with session(server) as (dialect, ask, asked):
            relation = Relation(dialect, "keyed", "db:keyed", "keyed")
            chunks = cut(relation, ["ctid"], ask, rows)
            assert len(asked) <= 5
            require_each_once(rows_of(chunks, relation, ask), count, rows)
