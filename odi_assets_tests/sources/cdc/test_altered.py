"""What happens to captured tables between two runs that the log has no change of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.node import Node
from odi_assets.sources.cdc.mark import CaptureMark, TableMark
from odi_assets.sources.cdc.source import LogSource
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, capture_of, held, rows_of, run_all, versions_from
from odi_assets_tests.sources.cdc.test_capture import ops
from odi_assets_tests.sources.sql.servers import PostgresServer

Database = psycopg.Connection[Any]


def settled(box: Any) -> bool:
    return [box.run(name).status for name in ("changes", "orders")] == [RunStatus.NO_DATA] * 2


AWAY = {
    "renamed": ("ALTER TABLE orders RENAME TO away", "away", "ALTER TABLE away RENAME TO orders"),
    "moved": (
        "CREATE SCHEMA IF NOT EXISTS other; ALTER TABLE orders SET SCHEMA other",
        "other.orders",
        "ALTER TABLE other.orders SET SCHEMA public; DROP SCHEMA other",
    ),
}


@pytest.mark.parametrize("way", AWAY)
def test_changes_of_a_table_under_another_name_are_its_changes(capture: Capture, orders: Database, way: str) -> None:
    away, name, back = AWAY[way]
    box = capture("orders")
    run_all(box)
    orders.execute(away)
    orders.execute(f"UPDATE {name} SET state = 'away' WHERE id = 1")
    orders.execute(f"DELETE FROM {name} WHERE id = 2")
    orders.execute(back)
    orders.execute("UPDATE orders SET state = 'back' WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert ops(box)[10:] == ["u", "d", "u"]
    assert settled(box)


def test_a_truncation_of_a_table_under_another_name_empties_it(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("ALTER TABLE orders RENAME TO away; TRUNCATE away; ALTER TABLE away RENAME TO orders")
    orders.execute("INSERT INTO orders VALUES (7, 'after', NULL)")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


@versions_from(15)
def test_changes_of_another_table_that_had_the_name_for_a_while_are_not_those_of_the_table(
    capture: Capture, orders: Database
) -> None:
    with orders.transaction():
        orders.execute(f"CREATE PUBLICATION {SLOT} FOR TABLES IN SCHEMA public")
    box = capture("orders")
    run_all(box)
    orders.execute("ALTER TABLE orders RENAME TO away")
    orders.execute("CREATE TABLE orders (id int PRIMARY KEY, state text, note text)")
    orders.execute("INSERT INTO orders VALUES (1, 'another', NULL), (50, 'another', NULL)")
    orders.execute("DROP TABLE orders")
    orders.execute("ALTER TABLE away RENAME TO orders")
    orders.execute("UPDATE orders SET state = 'back' WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert settled(box)


@pytest.mark.parametrize("place", ["orders", "lines"])
def test_tables_that_change_names_with_each_other_are_those_of_the_names(
    capture: Capture, orders: Database, place: str
) -> None:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY, state text, note text)")
    orders.execute("INSERT INTO lines VALUES (1, 'line', NULL), (90, 'line', NULL)")
    box = capture("orders", "lines")
    run_all(box)
    orders.execute(f"UPDATE {place} SET state = 'before' WHERE id = 1")
    orders.execute("ALTER TABLE orders RENAME TO away; ALTER TABLE lines RENAME TO orders")
    orders.execute("ALTER TABLE away RENAME TO lines")
    orders.execute(f"UPDATE {place} SET state = 'after' WHERE id = 1")
    run_all(box)
    for name in ("orders", "lines"):
        assert held(box, name) == rows_of(orders, name)


def test_a_publication_that_left_operations_out_for_a_while_brings_new_snapshots(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute(f"ALTER PUBLICATION {SLOT} SET (publish = 'insert')")
    orders.execute("UPDATE orders SET state = 'unseen' WHERE id = 1")
    orders.execute("DELETE FROM orders WHERE id = 2")
    orders.execute(f"ALTER PUBLICATION {SLOT} SET (publish = 'insert, update, delete, truncate')")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert settled(box)


@versions_from(15)
def test_a_publication_of_a_schema_that_left_it_out_for_a_while_brings_new_snapshots(
    capture: Capture, orders: Database
) -> None:
    orders.execute(f"CREATE PUBLICATION {SLOT} FOR TABLES IN SCHEMA public")
    box = capture("orders")
    run_all(box)
    orders.execute(f"ALTER PUBLICATION {SLOT} DROP TABLES IN SCHEMA public")
    orders.execute("UPDATE orders SET state = 'unseen' WHERE id = 1")
    orders.execute(f"ALTER PUBLICATION {SLOT} ADD TABLES IN SCHEMA public")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


VALUE = TableMark.value.fget


def of_before(mark: TableMark) -> dict[str, Any]:
    """What earlier versions kept in a mark of a table."""
    assert VALUE is not None
    value = dict(VALUE(mark))
    del value["definition"]
    return {**value, "published": "/".join(value["published"].split("/")[:3])}


def test_tables_that_join_and_marks_of_before_need_no_snapshot_of_the_others(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    with monkeypatch.context() as patch:
        patch.setattr(TableMark, "value", property(of_before))
        run_all(box)
    assert box.hwm("changes")["tables"]["public.orders"]["published"].count("/") == 2
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    box = capture("orders", "lines")
    run_all(box)
    noted = box.hwm("changes")["tables"]["public.orders"]
    assert noted["definition"]["columns"]
    assert noted["published"].count("/") == 4
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("VACUUM FREEZE orders")
    orders.execute("VACUUM FREEZE pg_publication")
    orders.execute("VACUUM FULL pg_attribute")
    run_all(box)
    assert ops(box) == [*["r"] * 10, "u"]


@pytest.fixture
def kinds(database: Database) -> Database:
    database.execute("CREATE TYPE mood AS ENUM ('a', 'b')")
    database.execute("CREATE TYPE pair AS (x int, y mood)")
    database.execute("CREATE DOMAIN moods AS mood[]")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, n int, m mood, p pair, l moods)")
    database.execute("INSERT INTO orders SELECT g, g, 'a', '(1,a)', '{a,b}' FROM generate_series(1, 5) g")
    return database


def texts(database: Database) -> dict[int, tuple[Any, ...]]:
    query = "SELECT id, n, m::text, p::text, l::text FROM orders"
    return {row[0]: row[1:] for row in database.execute(query).fetchall()}


REWRITES = [
    ["ALTER TABLE orders ALTER n TYPE int USING n * 10"],
    ["ALTER TYPE mood RENAME VALUE 'a' TO 'zz'"],
    ["ALTER TYPE pair ADD ATTRIBUTE z int"],
    ["ALTER TYPE pair DROP ATTRIBUTE x"],
    # The keys of rows are others too.
    ["ALTER TABLE orders ALTER id TYPE int USING id + 100"],
    ["ALTER TYPE mood ADD VALUE 'c'", "ALTER TYPE mood RENAME VALUE 'b' TO 'bb'"],
]


@pytest.mark.parametrize("statements", REWRITES, ids=[statements[-1] for statements in REWRITES])
def test_rows_that_were_rewritten_without_a_trace_are_read_again(
    capture: Capture, kinds: Database, statements: list[str]
) -> None:
    box = capture("orders")
    run_all(box)
    for statement in statements:
        kinds.execute(statement)
    run_all(box)
    assert {key: tuple(row.values())[1:] for key, row in held(box, "orders").items()} == texts(kinds)
    assert settled(box)


HARMLESS = [
    "VACUUM FULL orders",
    "CLUSTER orders USING orders_pkey",
    "ALTER TABLE orders ALTER n SET DEFAULT 7",
    "ALTER TABLE orders ALTER n SET NOT NULL",
    "ALTER TYPE mood ADD VALUE 'c' BEFORE 'a'",
    "ALTER TYPE pair RENAME ATTRIBUTE x TO z",
    "TRUNCATE orders",
]


@pytest.mark.parametrize("statement", HARMLESS)
def test_what_rewrites_no_value_needs_no_new_snapshot(capture: Capture, kinds: Database, statement: str) -> None:
    box = capture("orders")
    run_all(box)
    kinds.execute(statement)
    kinds.execute("INSERT INTO orders (id, n) VALUES (9, 9)")
    run_all(box)
    assert ops(box)[5:] == [*(["t"] if statement.startswith("TRUNCATE") else []), "c"]
    assert {key: tuple(row.values())[1:] for key, row in held(box, "orders").items()} == texts(kinds)


ORDERS = {
    "a collation": ('id text COLLATE "C"', 'ALTER TABLE orders ALTER id TYPE text COLLATE "und-x-icu"'),
    "a shorter type": ("id varchar(20)", "ALTER TABLE orders ALTER id TYPE varchar(3)"),
    "none": ('id text COLLATE "C"', "ALTER TABLE orders ALTER state SET DEFAULT ''"),
}


@pytest.mark.parametrize("what", ORDERS)
def test_a_snapshot_whose_key_gets_another_order_in_its_middle_begins_again(
    server: PostgresServer, database: Database, tmp_path: Path, what: str
) -> None:
    key, altered = ORDERS[what]
    database.execute(f"CREATE TABLE orders ({key} PRIMARY KEY, state text)")
    keys = sorted("aBbA"[number % 4] + str(number) for number in range(12))
    for one in keys:
        database.execute("INSERT INTO orders VALUES (%s, 'new')", [one])
    nothing: Any = None
    (source,) = Node.of(
        capture_of(server, tmp_path, nothing)("orders", rows=4).project, NodeKey("p", "changes")
    ).sources
    assert isinstance(source, LogSource)
    step, read = source.step(None)[0], []
    first = set(_keys_read(step.rows))
    assert 0 < len(first) < len(keys)
    database.execute(altered)
    while step.more:
        step, _ = source.step(CaptureMark.of(step.after.value, ""))
        read += _keys_read(step.rows)
    assert sorted(read) == (keys if what != "none" else sorted(set(keys) - first))


def _keys_read(rows: Any) -> list[str]:
    return [row["key"][0] for row in rows.to_pylist() if row["op"] == "r"]
