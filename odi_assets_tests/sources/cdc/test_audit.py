"""An audit of an applied table names each key that differs from the database, and nothing else, under writers too."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import psycopg
import pytest

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, SourceError
from odi_assets.explain.batch import trace
from odi_assets.explain.stream import key_text
from odi_assets.explain.verdicts import KeyVerdict
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.audit.found import Audit
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, held, opened, run_all, versions_from
from odi_assets_tests.sources.sql.servers import PostgresServer

Database = psycopg.Connection[Any]


def audited(box: Sandbox, node: str = "orders") -> Audit:
    return audit(box.project, box.spark, box.state, NodeKey("p", node))


def test_a_table_that_is_as_the_database_has_it_agrees(capture: Capture, orders: Database) -> None:
    box = capture("orders", rows=3)
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid', note = NULL WHERE id = 1")
    run_all(box)
    found = audited(box)
    assert (found.differing, found.keys, found.compared) == ((), (), ("id", "state", "note"))
    (all_keys,) = found.ranges
    assert (all_keys.difference.source_rows, all_keys.difference.table_rows) == (10, 10)


def test_columns_that_the_database_generates_are_said_not_to_be_compared(capture: Capture, orders: Database) -> None:
    orders.execute("ALTER TABLE orders ADD twice int GENERATED ALWAYS AS (id * 2) STORED")
    box = capture("orders")
    run_all(box)
    found = audited(box)
    assert (found.differing, found.compared) == ((), ("id", "state", "note"))
    assert "not compared: the database generates `twice`, and its log and the table do not have it" in found.notes


@versions_from(18)
def test_generated_columns_that_a_publication_has_are_captured_and_compared(capture: Capture, orders: Database) -> None:
    orders.execute("ALTER TABLE orders ADD twice int GENERATED ALWAYS AS (id * 2) STORED")
    orders.execute("ALTER TABLE orders ADD half int GENERATED ALWAYS AS (id / 2) VIRTUAL")
    orders.execute("CREATE PUBLICATION generated FOR TABLE orders WITH (publish_generated_columns = stored)")
    box = capture("orders", log=f"slot: {SLOT}, publication: generated, create: true", rows=4)
    run_all(box)
    orders.execute("UPDATE orders SET id = 21 WHERE id = 1")
    run_all(box)
    assert box.run("changes").status is RunStatus.NO_DATA
    assert held(box, "orders")[21]["twice"] == 42
    found = audited(box)
    assert (found.differing, found.compared) == ((), ("id", "state", "note", "twice"))
    assert [note for note in found.notes if "generates" in note] == [
        "not compared: the database generates `half`, and its log and the table do not have it"
    ]


def test_each_key_that_differs_is_named_with_its_columns_and_the_repair_makes_it_agree(
    capture: Capture, orders: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del orders
    box = capture("orders")
    run_all(box)
    table = box.table("orders").table
    table.delete("id = 4")
    table.update(updates={"state": "'damaged'"}, predicate="id = 5")
    table.update(updates={"id": "77"}, predicate="id = 6")
    monkeypatch.chdir(box.root)
    capfd.readouterr()
    assert main(["audit", "orders", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert [(one["key"]["id"], one["what"]) for one in found["keys"]] == [
        ("4", "missing"),
        ("5", "changed"),
        ("6", "missing"),
        ("77", "extra"),
    ]
    assert found["keys"][1]["columns"] == {"state": {"source": "new", "table": "damaged"}}
    (all_keys,) = found["ranges"]
    assert all_keys["command"] == "odi run p --node orders --full-refresh"
    assert main(["audit", "orders"]) == 1
    assert "state: new → damaged" in capfd.readouterr().out
    box.run("orders", full_refresh=True)
    assert audited(box).differing == ()


PARTS = """\
  - name: parts
    apply: {changes: changes, table: public.Some.Parts}
    write: {connection: lake, path: parts}
"""


def test_a_table_whose_name_has_dots_and_capitals_is_compared(capture: Capture, database: Database) -> None:
    database.execute('CREATE TABLE "Some.Parts" (a int, "B" text, PRIMARY KEY ("B", a))')
    database.execute("INSERT INTO \"Some.Parts\" VALUES (1, 'x'), (2, 'y')")
    box = capture(patterns="public.Some.Parts", more=PARTS)
    run_all(box)
    assert audited(box, "parts").differing == ()
    box.table("parts").table.delete("a = 2")
    assert [one.key for one in audited(box, "parts").keys] == [{"a": "2", "B": "y"}]
    (found,) = trace(box.project, box.spark, box.state, NodeKey("p", "parts"), ["a", "B"], [key_text(("2", "y"))])
    assert (found.verdict, found.places[0].rows) == (KeyVerdict.UNEXPLAINED, 1)


def test_changes_that_are_not_captured_or_not_applied_yet_are_no_differences(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("UPDATE orders SET id = 21 WHERE id = 2")
    box.run("changes")
    orders.execute("DELETE FROM orders WHERE id = 3")
    orders.execute("INSERT INTO orders VALUES (50, 'new', NULL)")
    box.table("orders").table.delete("id = 9")
    found = audited(box)
    assert [(one.key, one.what) for one in found.keys] == [({"id": "9"}, "missing")]
    assert any(text.startswith("not compared: 5 keys with changes") for text in found.notes)


def test_an_audit_under_writers_finds_what_is_damaged_and_nothing_else(
    capture: Capture, server: PostgresServer, orders: Database
) -> None:
    orders.execute("INSERT INTO orders SELECT g, 'new', NULL FROM generate_series(11, 300) g")
    box = capture("orders", rows=50)
    run_all(box)
    box.table("orders").table.delete("id = 1000")
    stop = threading.Event()

    def write() -> None:
        with opened(server) as writer:
            count = 0
            while not stop.is_set():
                count += 1
                writer.execute(f"UPDATE orders SET state = 'x{count}' WHERE id = {count % 290 + 2}")
                writer.execute(f"INSERT INTO orders VALUES ({1000 + count}, 'came', NULL)")
                time.sleep(0.005)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        box.run("changes")
        found = audited(box)
    finally:
        stop.set()
        thread.join()
    assert found.keys == ()


def test_what_cannot_be_compared_says_what_to_run_first(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    with pytest.raises(ConfigError, match="holds changes") as refused:
        audited(box, "changes")
    assert "odi audit p.orders" in str(refused.value)
    orders.execute("TRUNCATE orders")
    with pytest.raises(ConfigError, match="TRUNCATE") as refused:
        audited(box)
    assert "odi run p" in str(refused.value)
    run_all(box)
    assert audited(box).differing == ()
    orders.execute("ALTER TABLE orders ADD amount int DEFAULT 3")
    with pytest.raises(SourceError, match=r"the columns of public\.orders have changed") as stopped:
        audited(box)
    assert "odi run p --node changes" in str(stopped.value)
    run_all(box)
    assert audited(box).differing == ()
    assert "amount" in audited(box).compared


def test_a_history_is_compared_with_the_change_log_version_by_version(
    capture: Capture, orders: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders", history=True, rows=4)
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("UPDATE orders SET id = 21 WHERE id = 2")
    orders.execute("DELETE FROM orders WHERE id = 3")
    run_all(box)
    orders.execute("ALTER TABLE orders ADD amount int DEFAULT 3")
    orders.execute("TRUNCATE orders")
    orders.execute("INSERT INTO orders VALUES (7, 'after', NULL, 4)")
    run_all(box)
    found = audited(box)
    rows = box.table("orders").table.to_pyarrow_table().to_pylist()
    (all_versions,) = found.ranges
    assert (found.differing, all_versions.difference.source_rows) == ((), len(rows))
    assert {"state", "note", "amount", "_op", "_lsn", "_key", "_unchanged"} <= set(found.compared)
    orders.execute("DELETE FROM orders WHERE id = 7")
    box.run("changes")
    (paid,) = (row["_n"] for row in rows if row["state"] == "paid" and row["_op"] == "u")
    table = box.table("orders").table
    table.update(updates={"state": "'damaged'"}, predicate=f"_n = {paid}")
    table.delete(f"_n = {paid + 1}")
    found = audited(box)
    assert [(one.key, one.what) for one in found.keys] == [
        ({"_n": str(paid)}, "changed"),
        ({"_n": str(paid + 1)}, "missing"),
    ]
    assert found.keys[0].columns == {"state": ("paid", "damaged")}
    assert any(note.startswith("not compared: 1 change not applied yet") for note in found.notes)
    monkeypatch.chdir(box.root)
    capfd.readouterr()
    assert main(["audit", "orders"]) == 1
    assert "2 versions of" in capfd.readouterr().err
    box.run("orders", full_refresh=True)
    assert audited(box).differing == ()
