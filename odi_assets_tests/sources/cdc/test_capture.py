"""A capture and the tables applied from it: they hold what the database holds, whatever happens in between."""

from __future__ import annotations

import json
import random
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import (
    ConfigError,
    IdentityMismatchError,
    LossError,
    SourceError,
    TableError,
    TargetBehindStateError,
)
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning import planner
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import Kind
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.mark import lsn_of
from odi_assets.sources.cdc.postgres.database import PostgresLog
from odi_assets.sources.cdc.source import LogSource
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import (
    SLOT,
    Capture,
    each_version,
    held,
    opened,
    rows_of,
    run_all,
    versions_from,
)
from odi_assets_tests.sources.sql.servers import PostgresServer

Database = psycopg.Connection[Any]


def confirmed(database: Database) -> int:
    (row,) = database.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots").fetchall()
    return lsn_of(row[0])


def ops(box: Sandbox, name: str = "public.orders") -> list[str]:
    """The operations in the log, in its order, without the rows that list columns."""
    log = box.table("changes").table.to_pyarrow_table().sort_by("n").to_pylist()
    assert [row["n"] for row in log] == list(range(1, len(log) + 1))
    return [row["op"] for row in log if row["op"] != Op.SHAPE and row["table"] == name]


@each_version
def test_a_snapshot_comes_first_and_each_change_follows_once(capture: Capture, orders: Database) -> None:
    box = capture("orders", rows=4)
    run_all(box)
    assert ops(box) == ["r"] * 10
    assert held(box, "orders") == rows_of(orders, "orders")
    orders.execute("INSERT INTO orders VALUES (11, 'new', NULL)")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id IN (1, 2)")
    orders.execute("DELETE FROM orders WHERE id = 2")
    run_all(box)
    assert ops(box)[10:] == ["c", "u", "u", "d"]
    assert held(box, "orders") == rows_of(orders, "orders")
    assert [box.run(name).status for name in ("changes", "orders")] == [RunStatus.NO_DATA] * 2


@each_version
def test_a_large_value_that_did_not_change_is_the_stored_one_through_all_keys_of_its_row(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("UPDATE orders SET id = 21 WHERE id = 3")
    with orders.transaction():
        orders.execute("UPDATE orders SET id = 22, state = 'moved' WHERE id = 4")
        orders.execute("UPDATE orders SET id = 23 WHERE id = 22")
        orders.execute("INSERT INTO orders VALUES (4, 'again', 'short')")
    orders.execute("UPDATE orders SET note = NULL WHERE id = 5")
    orders.execute("UPDATE orders SET id = 25 WHERE id = 5")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert held(box, "orders")[23]["note"].startswith("nnn")


def test_a_key_is_one_whatever_its_order_and_whatever_its_index_includes(capture: Capture, database: Database) -> None:
    database.execute("CREATE TABLE lines (id int, note text, place int, PRIMARY KEY (place, id) INCLUDE (note))")
    database.execute("INSERT INTO lines VALUES (1, 'a', 7), (2, NULL, 8), (3, 'c', 9)")
    box = capture("lines")
    run_all(box)
    database.execute("DELETE FROM lines WHERE id = 1")
    database.execute("UPDATE lines SET place = 80 WHERE id = 2")
    run_all(box)
    assert held(box, "lines") == rows_of(database, "lines")
    assert ops(box, "public.lines") == ["r", "r", "r", "d", "d", "c"]


ODD_NAMES = ("My.Table", "Order Items", 'the "best"', "list[1]*", "Straße", "it's a/b", "select")


def test_tables_of_any_name_are_captured(capture: Capture, database: Database) -> None:
    for name in ODD_NAMES:
        database.execute(f"CREATE TABLE {quoted(name)} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {quoted(name)} VALUES (1)")
    # A name names its table, and not what it would mean as a pattern.
    database.execute("CREATE TABLE list1x (id int PRIMARY KEY)")
    box = capture(patterns=", ".join(json.dumps(f"public.{name}", ensure_ascii=False) for name in ODD_NAMES))
    box.run("changes")
    for name in ODD_NAMES:
        database.execute(f"UPDATE {quoted(name)} SET id = 2")
    box.run("changes")
    assert {name: ops(box, f"public.{name}") for name in (*ODD_NAMES, "list1x")} == {
        **{name: ["r", "d", "c"] for name in ODD_NAMES},
        "list1x": [],
    }


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@each_version
def test_rows_that_go_and_come_back_in_one_window_are_the_last_ones(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("DELETE FROM orders WHERE id = 1")
    orders.execute("INSERT INTO orders VALUES (1, 'back', NULL)")
    orders.execute("UPDATE orders SET id = 30 WHERE id = 2")
    orders.execute("UPDATE orders SET id = 2 WHERE id = 30")
    orders.execute("BEGIN; INSERT INTO orders VALUES (99, 'never', NULL); ROLLBACK")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


@each_version
def test_a_truncation_empties_the_tables_in_its_place(capture: Capture, orders: Database) -> None:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    orders.execute("INSERT INTO lines VALUES (1), (2)")
    box = capture("orders", "lines")
    run_all(box)
    with orders.transaction():
        orders.execute("UPDATE orders SET state = 'lost' WHERE id = 1")
        orders.execute("TRUNCATE orders, lines")
        orders.execute("INSERT INTO orders VALUES (7, 'after', NULL)")
    run_all(box)
    for name in ("orders", "lines"):
        assert held(box, name) == rows_of(orders, name)


@each_version
@pytest.mark.parametrize("identity", ["FULL", "USING INDEX orders_code"])
def test_other_replica_identities_identify_rows(capture: Capture, orders: Database, identity: str) -> None:
    orders.execute("ALTER TABLE orders ADD code int NOT NULL GENERATED BY DEFAULT AS IDENTITY")
    orders.execute("CREATE UNIQUE INDEX orders_code ON orders (code)")
    orders.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid', id = id + 100 WHERE id < 4")
    orders.execute("DELETE FROM orders WHERE id = 5")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert ops(box).count("r") == 10


@each_version
def test_columns_that_come_go_or_change_bring_a_new_snapshot_of_their_table(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'before' WHERE id = 1")
    orders.execute("ALTER TABLE orders ADD amount numeric(10,2) DEFAULT 1.5")
    orders.execute("UPDATE orders SET amount = 2 WHERE id = 2")
    orders.execute("ALTER TABLE orders RENAME state TO status")
    orders.execute("UPDATE orders SET status = 'renamed' WHERE id = 3")
    orders.execute("ALTER TABLE orders ADD code text DEFAULT md5(random()::text)")
    run_all(box)
    names = ("amount", "status", "code", "note")

    def taken(rows: dict[Any, dict[str, Any]]) -> dict[Any, list[Any]]:
        return {key: [row[name] for name in names] for key, row in rows.items()}

    assert taken(held(box, "orders")) == taken(rows_of(orders, "orders"))
    # A statement that changes columns and no row is noticed too.
    orders.execute("ALTER TABLE orders DROP code, ADD code text DEFAULT 'all'")
    run_all(box)
    assert taken(held(box, "orders")) == taken(rows_of(orders, "orders"))
    assert [box.run(name).status for name in ("changes", "orders")] == [RunStatus.NO_DATA] * 2


def test_another_type_of_a_column_names_no_transform_to_a_node_that_has_none(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("ALTER TABLE orders ALTER state TYPE bigint USING 7")
    orders.execute("UPDATE orders SET state = 8 WHERE id = 1")
    with pytest.raises(TableError, match="column `state` of the table") as caught:
        run_all(box)
    assert "transform" not in str(caught.value.fix)
    assert "odi run p --node orders --full-refresh" in str(caught.value.fix)


VALUES = {
    "smallint": ["-32768", "32767"],
    "bigint": ["9223372036854775807"],
    "real": ["1.1", "'-Infinity'"],
    "double precision": ["0.1", "1e300", "'NaN'"],
    "numeric(12,2)": ["1234567890.12"],
    "numeric": ["12345678901234567890.123456789012345678"],
    "boolean": ["true", "false"],
    "text": ["E'a\\tb\\\\ \\n€'", "''"],
    "char(5)": ["'ab'"],
    "bytea": ["'\\x00ff'::bytea"],
    "date": ["'0001-01-01'", "'9999-12-31'"],
    "timestamp": ["'2024-03-31 02:30:00.123456'"],
    "timestamp(0) with time zone": ["'2024-03-31 02:30:00+05'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "jsonb": ["""'{"a": [1, null]}'"""],
    "int[]": ["'{1,NULL,3}'"],
    "interval": ["'1 year 2 days'"],
}
AS_TEXT = ("uuid", "jsonb", "int[]", "interval")


def shown(value: Any) -> str:
    """A value as text, whatever Python calls its time zone; NaN is equal to itself."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


@each_version
def test_each_type_is_the_same_from_a_snapshot_and_from_the_log(capture: Capture, database: Database) -> None:
    columns = [f"c{place} {kind}" for place, kind in enumerate(VALUES)]
    database.execute(f"CREATE TABLE kinds (id int PRIMARY KEY, {', '.join(columns)})")
    statements = [
        f"INSERT INTO kinds (id, c{place}) VALUES (%s, {value})"
        for place, values in enumerate(VALUES.values())
        for value in values
    ]
    for number, statement in enumerate(statements):
        database.execute(statement, [number])
    box = capture("kinds")
    run_all(box)
    for number, statement in enumerate(statements):
        database.execute(statement, [number + 1000])
    run_all(box)
    found, wanted = held(box, "kinds"), rows_of(database, "kinds")
    texts = [f"c{place}" for place, kind in enumerate(VALUES) if kind in AS_TEXT]
    for key, row in wanted.items():
        asked = ", ".join(f"{name}::text" for name in texts)
        written = database.execute(f"SELECT {asked} FROM kinds WHERE id = %s", [key]).fetchall()[0]
        row |= dict(zip(texts, written, strict=True))
        if row["c2"] is not None:
            # Python has no numbers of 32 bits.
            row["c2"] = struct.unpack("f", struct.pack("f", row["c2"]))[0]
        ours = dict(found[key])
        if texts and ours[texts[-1]] is not None:
            # The log writes intervals by ISO 8601.
            assert ours.pop(texts[-1]) == "P1Y2D"
            row.pop(texts[-1])
        assert {name: shown(value) for name, value in ours.items()} == {
            name: shown(value) for name, value in row.items()
        }


def test_a_value_that_no_type_of_the_table_holds_is_named_with_its_row(capture: Capture, orders: Database) -> None:
    orders.execute("ALTER TABLE orders ADD amount numeric, ADD at timestamp")
    orders.execute("UPDATE orders SET amount = 'NaN' WHERE id = 7")
    box = capture("orders")
    box.run("changes")
    with pytest.raises(SourceError) as stopped:
        box.run("orders")
    assert stopped.value.message == "p.orders: key 7: column amount is NaN, which no value of DECIMAL(38,18) is"
    assert "correct the row in the database" in str(stopped.value.fix)
    orders.execute("ALTER TABLE orders ADD born date")
    orders.execute("UPDATE orders SET amount = NULL, born = '0044-03-15 BC' WHERE id = 7")
    box.run("changes")
    with pytest.raises(SourceError, match="key 7: column born is 0044-03-15 BC"):
        box.run("orders")
    orders.execute("UPDATE orders SET born = NULL, at = 'infinity' WHERE id = 7")
    box.run("changes")
    with pytest.raises(SourceError, match="key 7: column at is infinity"):
        box.run("orders")


@each_version
def test_snapshots_and_the_log_are_put_together_under_writers(
    capture: Capture, server: PostgresServer, orders: Database
) -> None:
    orders.execute("INSERT INTO orders SELECT g, 'new', repeat('n', 3000) FROM generate_series(11, 400) g")
    stop = threading.Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with opened(server, autocommit=False) as writer:
            while not stop.is_set():
                for _ in range(chance.randint(1, 5)):
                    key, other = chance.randint(1, 450), chance.randint(1, 600)
                    statement = chance.choice(
                        [
                            f"UPDATE orders SET state = state || 'x' WHERE id = {key}",
                            f"UPDATE orders SET id = {other} WHERE id = {key} AND NOT EXISTS "
                            f"(SELECT FROM orders WHERE id = {other})",
                            f"DELETE FROM orders WHERE id = {key}",
                            f"INSERT INTO orders VALUES ({key}, 'came', repeat('m', 3000)) ON CONFLICT DO NOTHING",
                            "SAVEPOINT here",
                        ]
                    )
                    try:
                        writer.execute(statement)
                    except psycopg.Error:
                        writer.rollback()
                (writer.rollback if chance.random() < 0.2 else writer.commit)()
                time.sleep(0.002)

    writers = [threading.Thread(target=write, args=(seed,), daemon=True) for seed in range(3)]
    for one in writers:
        one.start()
    try:
        box = capture("orders", rows=40)
        box.run("changes")
        box.run("orders")
    finally:
        stop.set()
        for one in writers:
            one.join()
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_a_row_that_moves_to_a_chunk_that_was_read_is_read_again_by_its_key_whatever_the_order_of_its_columns(
    capture: Capture, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE parts (a int, b int, note text, PRIMARY KEY (b, a))")
    database.execute("ALTER TABLE parts ALTER note SET STORAGE EXTERNAL")
    database.execute("INSERT INTO parts SELECT g, g + 100, repeat('n', 3000) || g FROM generate_series(1, 20) g")
    step, steps = LogSource.step, []

    def moving(source: LogSource, mark: Any) -> Any:
        found = step(source, mark)
        if not steps:
            database.execute("UPDATE parts SET b = 1 WHERE a = 20")
        steps.append(found)
        return found

    monkeypatch.setattr(LogSource, "step", moving)
    box = capture("parts", rows=5)
    run_all(box)
    assert len(steps) > 3
    assert held(box, "parts") == rows_of(database, "parts")


@each_version
def test_the_slot_moves_after_the_commit_and_never_past_it(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    assert confirmed(orders) == lsn_of(box.hwm("changes")["end"])
    before = confirmed(orders)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    with monkeypatch.context() as patch:
        # The run dies between its commit and the acknowledgement.
        patch.setattr(LogSource, "acknowledge", lambda *_: None)
        box.run("changes")
    assert confirmed(orders) == before < lsn_of(box.hwm("changes")["end"])
    assert box.run("changes").status is RunStatus.NO_DATA
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 1")
    run_all(box)
    assert ops(box)[10:] == ["u", "u"]
    assert held(box, "orders") == rows_of(orders, "orders")


def test_a_slot_that_a_run_moves_during_a_look_is_no_sign_of_another_history(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    with monkeypatch.context() as patch:
        patch.setattr(LogSource, "acknowledge", lambda *_: None)
        box.run("changes")
    peek, moves = PostgresLog._peek, ["SELECT pg_replication_slot_advance(%s, %s)"]

    def of_a_moved_slot(log: PostgresLog, *given: Any) -> Iterator[list[bytes]]:
        if moves:
            orders.execute(moves.pop(), [SLOT, box.hwm("changes")["end"]])
        return peek(log, *given)

    monkeypatch.setattr(PostgresLog, "_peek", of_a_moved_slot)
    assert box.plan("changes").nothing_new
    assert moves == []


def test_a_whole_run_between_two_looks_of_a_plan_is_no_move_by_somebody_else(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    look, runs = planner.table_and_start, ["changes"]

    def before_a_run(*given: Any) -> Any:
        found = look(*given)
        if runs:
            box.run(runs.pop())
        return found

    monkeypatch.setattr(planner, "table_and_start", before_a_run)
    assert box.plan("changes").nothing_new
    assert runs == []
    # What somebody else moved stays moved at the second look.
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 1")
    orders.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [SLOT])
    with pytest.raises(IdentityMismatchError, match="by somebody else"):
        box.plan("changes")


@each_version
def test_a_backlog_is_taken_in_windows_of_whole_transactions(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    monkeypatch.setattr("odi_assets.sources.cdc.source.MOST_CHANGES", 5)
    for state in range(6):
        orders.execute("UPDATE orders SET state = %s WHERE id < 4", [str(state)])
    version = box.table("changes").version or 0
    result = box.run("changes")
    assert result.rows_written is not None
    assert (box.table("changes").version or 0) >= version + 3
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")


@each_version
def test_a_transaction_that_is_too_large_for_memory_is_taken_in_parts_and_committed_once(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY, n int)")
    box = capture("orders", "lines")
    run_all(box)
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.peek._PART_BYTES", 300)
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.peek._FIRST_BLOCK", 3)
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.peek._BLOCK_BYTES", 200)
    draw = random.Random(25)
    for _ in range(3):
        with orders.transaction():
            for _ in range(60):
                one, name = draw.randrange(30), draw.choice(("orders", "lines"))
                column, value = ("state", draw.choice("abc")) if name == "orders" else ("n", draw.randrange(9))
                orders.execute(
                    f"INSERT INTO {name} (id, {column}) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET {column} = %s",
                    [one, value, value],
                )
                if draw.random() < 0.3:
                    orders.execute(f"DELETE FROM {name} WHERE id = %s", [draw.randrange(30)])
            if draw.random() < 0.5:
                orders.execute("TRUNCATE lines")
        version = box.table("changes").version
        run_all(box)
        assert box.table("changes").version == int(version or 0) + 1
        assert (held(box, "orders"), held(box, "lines")) == (rows_of(orders, "orders"), rows_of(orders, "lines"))
    ops(box)


@each_version
def test_a_table_joins_with_a_snapshot_of_its_own_and_leaves(capture: Capture, orders: Database) -> None:
    run_all(capture("orders"))
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY, n int)")
    orders.execute("INSERT INTO lines SELECT g, g FROM generate_series(1, 20) g")
    box = capture("orders", "lines")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    orders.execute("UPDATE lines SET n = 0 WHERE id = 2")
    run_all(box)
    for name in ("orders", "lines"):
        assert held(box, name) == rows_of(orders, name)
    assert ops(box) == [*["r"] * 10, "u"]
    box = capture("lines")
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 1")
    orders.execute("DELETE FROM lines WHERE id = 3")
    run_all(box)
    assert list(box.hwm("changes")["tables"]) == ["public.lines"]
    orders.execute("UPDATE orders SET state = 'unseen' WHERE id = 1")
    assert [box.run(name).status for name in ("changes", "lines")] == [RunStatus.NO_DATA] * 2
    assert held(box, "lines") == rows_of(orders, "lines")
    orders.execute("DELETE FROM orders WHERE id = 5")
    box = capture("orders", "lines")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_the_nodes_of_one_run_apply_one_version_of_the_log(
    capture: Capture, orders: Database, spark: SparkSession
) -> None:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY, n int)")
    box = capture("orders", "lines")
    run_all(box)
    first = RunHistory(box.project, box.state, "first")

    def run(name: str) -> None:
        run_node(NodeRun(first, NodeKey("p", name), lambda: spark))

    orders.execute("INSERT INTO orders VALUES (11, 'new', NULL)")
    orders.execute("INSERT INTO lines VALUES (1, 1)")
    run("changes")
    run("orders")
    with orders.transaction():
        orders.execute("INSERT INTO orders VALUES (12, 'new', NULL)")
        orders.execute("INSERT INTO lines VALUES (2, 1)")
    box.run("changes")
    run("lines")
    assert (set(held(box, "orders")), set(held(box, "lines"))) == ({*range(1, 12)}, {1})
    box.run("lines")
    # A node that another run has brought further stays there.
    run("lines")
    run_all(box)
    assert (held(box, "orders"), held(box, "lines")) == (rows_of(orders, "orders"), rows_of(orders, "lines"))


def test_a_capture_needs_no_spark_whatever_its_tables_are_named(capture: Capture, orders: Database) -> None:
    for name in ("Order Items", "a.b=c/d", "ä%20"):
        orders.execute(f'CREATE TABLE "{name}" (id int PRIMARY KEY)')
        orders.execute(f'INSERT INTO "{name}" SELECT generate_series(1, 3)')
    box = capture("orders", patterns="'public.*'", rows=2)

    def open_spark() -> SparkSession:
        raise AssertionError("a capture starts Spark")

    for number in range(3):
        history = RunHistory(box.project, box.state, f"run {number}")
        run_node(NodeRun(history, NodeKey("p", "changes"), open_spark))
        orders.execute('DELETE FROM "a.b=c/d" WHERE id = %s', [number])
    assert ops(box, "public.Order Items") == ["r"] * 3
    assert ops(box, "public.a.b=c/d") == ["r"] * 3 + ["d"]
    assert ops(box, "public.ä%20") == ["r"] * 3
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")


def test_history_keeps_every_version_of_a_row(capture: Capture, orders: Database) -> None:
    box = capture("orders", history=True)
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("DELETE FROM orders WHERE id = 1")
    run_all(box)
    rows = [
        row for row in box.table("orders").table.to_pyarrow_table().sort_by("_n").to_pylist() if row["_key"] == ["1"]
    ]
    assert [(row["_op"], row["state"]) for row in rows] == [("r", "new"), ("u", "paid"), ("d", None)]
    assert rows[1]["_committed_at"] <= rows[2]["_committed_at"]
    # What the log does not have is not taken for NULL.
    assert [(row["note"] is None, row["_unchanged"]) for row in rows] == [(False, None), (True, ["note"]), (True, None)]


def test_a_quiet_publication_lets_the_servers_log_go(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    monkeypatch.setattr("odi_assets.sources.cdc.source.QUIET_BYTES", 100_000)
    orders.execute("CREATE TABLE busy (x text)")
    orders.execute("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 500)")
    before = confirmed(orders)
    result = box.run("changes")
    assert (result.status, result.rows_written) == (RunStatus.SUCCESS, 0)
    assert confirmed(orders) > before + 100_000
    assert box.run("changes").status is RunStatus.NO_DATA
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def make_again(database: Database) -> None:
    database.execute("DROP TABLE orders")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, state text, note text)")
    database.execute("INSERT INTO orders VALUES (2, 'made again', NULL)")


def publish_again(database: Database) -> None:
    database.execute(f"ALTER PUBLICATION {SLOT} DROP TABLE orders")
    database.execute("DELETE FROM orders WHERE id = 1")
    database.execute("UPDATE orders SET state = 'unseen' WHERE id = 2")
    database.execute(f"ALTER PUBLICATION {SLOT} ADD TABLE orders")


@each_version
@pytest.mark.parametrize("happens", [make_again, publish_again])
def test_a_table_that_was_made_or_published_again_gets_a_new_snapshot_in_an_empty_table(
    capture: Capture, orders: Database, happens: Any
) -> None:
    box = capture("orders")
    run_all(box)
    happens(orders)
    orders.execute("INSERT INTO orders VALUES (50, 'after', NULL)")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert [box.run(name).status for name in ("changes", "orders")] == [RunStatus.NO_DATA] * 2


REFUSED = [
    ("ALTER TABLE orders REPLICA IDENTITY NOTHING", "public.orders", "REPLICA IDENTITY NOTHING"),
    ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "public.orders", "no primary key"),
    ("ALTER TABLE orders SET UNLOGGED", "public.orders", "public.orders is unlogged"),
    ("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)", "public.parts", "a table with partitions"),
    ("CREATE TABLE child () INHERITS (orders)", "public.orders", "a table that others inherit from"),
    ("CREATE VIEW seen AS SELECT * FROM orders", "public.seen", "public.seen is a view"),
    ("SELECT 1", "public.order", "no table of the database is named `public.order`"),
]


@each_version
@pytest.mark.parametrize(("statement", "table", "why"), REFUSED, ids=[why for *_, why in REFUSED])
def test_tables_whose_changes_the_log_does_not_identify_are_refused_before_they_are_published(
    capture: Capture, orders: Database, statement: str, table: str, why: str
) -> None:
    orders.execute(statement)
    with pytest.raises(ConfigError, match=why) as stopped:
        capture(patterns=table).run("changes")
    assert "`tables`" in str(stopped.value.fix)
    assert ("NO INHERIT" in str(stopped.value.fix)) == ("inherit" in why)
    assert orders.execute("SELECT count(*) FROM pg_publication").fetchall() == [(0,)]


def test_messages_about_many_tables_name_the_first_one(capture: Capture, orders: Database) -> None:
    for name in "abcd":
        orders.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    with pytest.raises(SourceError) as stopped:
        capture(patterns="public.orders, public.a, public.b, public.c, public.d", log=f"slot: {SLOT}").run("changes")
    assert stopped.value.message.startswith("db:public.orders and 4 others: ")


def test_a_change_log_that_is_gone_is_not_gone_on_without(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    box.run("changes")
    shutil.rmtree(box.root / "lake" / "changes")
    with pytest.raises(TargetBehindStateError) as stopped:
        box.run("changes")
    (found,) = [
        one for one in examine(box.project, box.state, [NodeKey("p", "changes")]) if one.kind is Kind.TABLE_BEHIND
    ]
    for fix in (str(stopped.value.fix), str(found.remedy)):
        assert "accept" not in fix
        assert "--full-refresh --yes" in fix


def drop_slot(database: Database) -> None:
    database.execute("SELECT pg_drop_replication_slot(%s)", [SLOT])


def make_slot_again(database: Database) -> None:
    drop_slot(database)
    database.execute("UPDATE orders SET state = 'unseen' WHERE id = 2")
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])


def move_slot(database: Database) -> None:
    database.execute("UPDATE orders SET state = 'unseen' WHERE id = 2")
    database.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [SLOT])


@each_version
@pytest.mark.parametrize("happens", [drop_slot, make_slot_again, move_slot])
def test_a_slot_that_is_not_where_it_was_left_stops_the_run_and_a_new_snapshot_goes_on(
    capture: Capture, orders: Database, happens: Any
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("DELETE FROM orders WHERE id = 1")
    happens(orders)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 3")
    with pytest.raises(IdentityMismatchError) as stopped:
        box.run("changes")
    assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)
    (found,) = examine(box.project, box.state, [NodeKey("p", "changes")])
    assert (found.kind, f"slot `{SLOT}`" in found.message) == (Kind.UPSTREAM_CHANGED, True)
    with pytest.raises(LossError, match="the changes that were captured before"):
        box.run("changes", full_refresh=True)
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_doctor_has_nothing_to_say_of_a_capture_and_its_tables(capture: Capture, orders: Database) -> None:
    del orders
    box = capture("orders")
    run_all(box)
    assert examine(box.project, box.state, list(box.project.graph.order("p"))) == []


def test_a_missing_slot_is_not_made_unasked(capture: Capture, orders: Database) -> None:
    del orders
    with pytest.raises(SourceError, match=f"has no slot `{SLOT}`") as stopped:
        capture("orders", log=f"slot: {SLOT}").run("changes")
    assert "create: true" in str(stopped.value)


NARROW = [
    (f"CREATE PUBLICATION {SLOT} FOR TABLE orders WITH (publish = 'insert')", "leaves out update, delete, truncate"),
    (f"CREATE PUBLICATION {SLOT} FOR TABLE orders WHERE (id > 3)", "leaves out rows of public.orders"),
    (f"CREATE PUBLICATION {SLOT} FOR TABLE orders (note)", "leaves out id of public.orders, a column of its key"),
]


@versions_from(15)
@pytest.mark.parametrize(("statement", "why"), NARROW, ids=[why for _, why in NARROW])
def test_a_publication_that_leaves_something_out_is_refused(
    capture: Capture, orders: Database, statement: str, why: str
) -> None:
    orders.execute(statement)
    with pytest.raises(SourceError, match=why):
        capture("orders").run("changes")


def test_a_plan_writes_nothing_at_the_source(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    assert "snapshots of 1 table" in box.plan("changes").summary
    assert orders.execute("SELECT count(*) FROM pg_replication_slots").fetchall() == [(0,)]
    assert [one.watchable for one in Node.of(box.project, NodeKey("p", "changes")).sources] == [True]
