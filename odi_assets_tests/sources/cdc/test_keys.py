"""Keys of captured tables: other columns become the key, and keys are equal as the target's types have them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from odi_assets.errors import TableError
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import Capture, held, rows_of, run_all
from odi_assets_tests.sources.cdc.test_capture import ops

Database = psycopg.Connection[Any]


@pytest.fixture
def coded(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, code int, note text)")
    database.execute("INSERT INTO orders SELECT g, g + 100, 'n' FROM generate_series(1, 6) g")
    return database


def change_the_key(database: Database) -> None:
    database.execute("UPDATE orders SET note = 'before' WHERE id = 1")
    database.execute("DELETE FROM orders WHERE id = 2")
    database.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (code)")


def agrees(box: Sandbox, database: Database) -> None:
    assert held(box, "orders") == rows_of(database, "orders")


@pytest.mark.parametrize("is_captured_between", [False, True], ids=["one increment", "two increments"])
def test_a_table_whose_primary_key_changed_is_right_by_increments_and_by_a_full_refresh(
    capture: Capture, coded: Database, is_captured_between: bool
) -> None:
    box = capture("orders")
    run_all(box)
    change_the_key(coded)
    if is_captured_between:
        run_all(box)
        agrees(box, coded)
    coded.execute("UPDATE orders SET id = 5000 WHERE code = 103")
    coded.execute("UPDATE orders SET code = 777 WHERE code = 104")
    coded.execute("DELETE FROM orders WHERE code = 105")
    # What was the key is none any more.
    coded.execute("INSERT INTO orders VALUES (5000, 900, 'same')")
    run_all(box)
    wanted = {row[1]: row for row in coded.execute("SELECT * FROM orders").fetchall()}
    for again in (False, True):
        if again:
            box.run("orders", full_refresh=True)
        rows = box.table("orders").table.to_pyarrow_table().to_pylist()
        assert {row["code"]: tuple(row.values()) for row in rows} == wanted
        assert len(rows) == len(wanted)
    assert [box.run(name).status for name in ("changes", "orders")] == [RunStatus.NO_DATA] * 2


def test_a_log_without_a_sign_that_the_key_changed_makes_the_table_too(
    capture: Capture, coded: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    box.run("changes")
    with monkeypatch.context() as patch:
        # As earlier versions wrote logs: nothing empties the table before its new snapshot.
        patch.setattr("odi_assets.sources.cdc.source.AlteredTables.noted", lambda _, mark, __: mark)
        change_the_key(coded)
        coded.execute("UPDATE orders SET code = 777 WHERE code = 104")
        box.run("changes")
    assert "t" not in ops(box)
    box.run("orders")
    agrees(box, coded)


def test_rows_without_the_new_key_stop_an_increment_and_a_full_refresh_goes_on(
    capture: Capture, coded: Database
) -> None:
    coded.execute("UPDATE orders SET code = NULL WHERE id = 3")
    box = capture("orders")
    run_all(box)
    coded.execute("UPDATE orders SET code = id")
    change_the_key(coded)
    box.run("changes")
    with pytest.raises(TableError, match="key of its table in the database is now code") as stopped:
        box.run("orders")
    assert "odi run p --node orders --full-refresh" in str(stopped.value)
    box.run("orders", full_refresh=True)
    agrees(box, coded)


def test_a_key_column_with_another_name_needs_a_full_refresh(capture: Capture, coded: Database) -> None:
    box = capture("orders")
    run_all(box)
    coded.execute("ALTER TABLE orders RENAME id TO number")
    box.run("changes")
    with pytest.raises(TableError, match="is now number"):
        box.run("orders")
    box.run("orders", full_refresh=True)
    found = {row["number"]: row["code"] for row in box.table("orders").table.to_pyarrow_table().to_pylist()}
    assert found == dict(coded.execute("SELECT number, code FROM orders").fetchall())


EQUAL = [("numeric", "1.0", "1.00"), ("numeric(12,4)", "100", "1e2"), ("float8", "0.0", "-0.0"), ("real", "-0", "0")]


@pytest.mark.parametrize(("kind", "first", "second"), EQUAL, ids=[kind for kind, *_ in EQUAL])
@pytest.mark.parametrize("is_captured_between", [False, True], ids=["one increment", "two increments"])
def test_keys_that_are_equal_by_value_are_one_key(
    capture: Capture, database: Database, kind: str, first: str, second: str, is_captured_between: bool
) -> None:
    database.execute(f"CREATE TABLE orders (id {kind} PRIMARY KEY, n int, note text)")
    database.execute("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    database.execute(f"INSERT INTO orders VALUES ('{first}', 1, repeat('n', 3000)), (7, 7, repeat('m', 3000))")
    box = capture("orders")
    if is_captured_between:
        run_all(box)
    else:
        box.run("changes")
    database.execute(f"UPDATE orders SET id = '{second}', n = 2 WHERE n = 1")
    database.execute("UPDATE orders SET n = n + 10")
    run_all(box)
    agrees(box, database)
    database.execute("DELETE FROM orders WHERE n = 12")
    run_all(box)
    agrees(box, database)
    box.run("orders", full_refresh=True)
    agrees(box, database)
