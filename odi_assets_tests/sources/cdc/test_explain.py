"""What became of a row in the log of a database: each change of its key, and what the tables made of it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.explain.batch import trace
from odi_assets.explain.stream import key_text
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, run_all

Database = psycopg.Connection[Any]


def explained(box: Sandbox, key: str, node: str = "orders", column: str = "id") -> KeyExplanation:
    (found,) = trace(box.project, box.spark, box.state, NodeKey("p", node), [column], [key])
    return found


def ops(found: KeyExplanation) -> list[tuple[str, bool]]:
    return [(one.op, bool(one.applied_by)) for one in found.changes]


def test_each_change_of_a_key_is_named_with_what_it_changed_and_whether_it_is_applied(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 1")
    box.run("changes")
    found = explained(box, "1")
    assert found.verdict is KeyVerdict.PRESENT
    assert "1 change of it not applied yet: odi run p --node orders" in found.sentence
    assert ops(found) == [("snapshot", True), ("update", True), ("update", False)]
    first, paid, sent = found.changes
    assert (paid.changed, sent.changed) == ({"state": ("new", "paid")}, {"state": ("paid", "sent")})
    assert (first.lsn, first.xid, first.committed_at) == (None, None, None)
    assert paid.committed_at is not None
    assert sent.committed_at is not None
    assert paid.committed_at < sent.committed_at
    assert [place.name for place in found.places] == ["db:public.orders", "p.changes", "p.orders"]


def test_a_row_is_followed_through_the_keys_that_it_had(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET id = 21 WHERE id = 3")
    orders.execute("UPDATE orders SET id = 22, state = 'paid' WHERE id = 21")
    run_all(box)
    gone, there = explained(box, "3"), explained(box, "22")
    for found in (gone, there):
        assert [(one.op, one.former, one.key) for one in found.changes] == [
            ("snapshot", None, ("3",)),
            ("key change", ("3",), ("21",)),
            ("key change", ("21",), ("22",)),
        ]
    assert found.changes[2].changed == {"id": ("21", "22"), "state": ("new", "paid")}
    assert (gone.verdict, there.verdict) == (KeyVerdict.DELETED, KeyVerdict.PRESENT)
    assert explained(box, "21").verdict is KeyVerdict.DELETED


def test_the_change_that_took_a_key_away_is_named(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET id = 21 WHERE id = 3")
    orders.execute("DELETE FROM orders WHERE id = 21")
    run_all(box)
    first, last = explained(box, "3"), explained(box, "21")
    assert first.changes == last.changes
    assert (first.verdict, last.verdict) == (KeyVerdict.DELETED, KeyVerdict.DELETED)
    assert first.sentence.endswith("gave its row the key 21.")
    assert f"the delete n {last.changes[-1].n} at {last.changes[-1].lsn}" in last.sentence


def test_a_truncation_and_a_new_snapshot_that_removed_a_row_are_named(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("TRUNCATE orders")
    orders.execute("INSERT INTO orders VALUES (2, 'after', NULL)")
    run_all(box)
    assert [one.op for one in explained(box, "1").changes] == ["snapshot", "truncate"]
    assert "the truncate n" in explained(box, "1").sentence
    assert [one.op for one in explained(box, "2").changes] == ["snapshot", "truncate", "insert"]
    orders.execute(f"ALTER PUBLICATION {SLOT} DROP TABLE orders")
    orders.execute("DELETE FROM orders WHERE id = 2")
    orders.execute(f"ALTER PUBLICATION {SLOT} ADD TABLE orders")
    orders.execute("INSERT INTO orders VALUES (5, 'again', NULL)")
    run_all(box)
    found = explained(box, "2")
    assert (found.verdict, found.changes[-1].op) == (KeyVerdict.DELETED, "new snapshot")
    assert f"the new snapshot n {found.changes[-1].n} at " in found.sentence
    assert found.sentence.endswith("began without it.")
    orders.execute("SELECT pg_drop_replication_slot(%s)", [SLOT])
    orders.execute("DELETE FROM orders WHERE id = 5")
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    found = explained(box, "5")
    assert (found.verdict, found.changes) == (KeyVerdict.DELETED, ())
    assert "made of new snapshots" in found.sentence


def test_a_row_that_waits_is_said_to_wait_and_one_that_never_was_is_not_there(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("INSERT INTO orders VALUES (50, 'new', NULL)")
    found = explained(box, "50")
    assert (found.verdict, found.absent_since) == (KeyVerdict.NOT_READ, "p.changes")
    assert found.sentence.endswith("Run: odi run p --node changes.")
    box.run("changes")
    found = explained(box, "50")
    assert (found.verdict, found.absent_since) == (KeyVerdict.NOT_READ, "p.orders")
    assert found.sentence.endswith("Run: odi run p --node orders.")
    assert explained(box, "51").verdict is KeyVerdict.NOT_LANDED
    # No text of a number: the server refuses it, and the log has the answer.
    assert explained(box, "none").verdict is KeyVerdict.NOT_LANDED


BELOW = """\
  - name: paid
    inputs: [orders]
    transform: {sql: "SELECT id AS order_id, state FROM orders WHERE state = 'paid'"}
    write: {connection: lake, path: paid}
"""


def test_a_key_of_a_node_below_is_followed_through_the_applied_table_into_the_log(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders", more=BELOW)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id IN (1, 2)")
    run_all(box)
    orders.execute("DELETE FROM orders WHERE id = 2")
    run_all(box)
    there, gone, other = (explained(box, key, "paid", "order_id") for key in "123")
    assert [place.name for place in there.places] == ["db:public.orders", "p.changes", "p.orders", "p.paid"]
    assert (there.verdict, there.changes[0].op) == (KeyVerdict.PRESENT, "snapshot")
    assert (gone.verdict, gone.absent_since, gone.changes[-1].op) == (KeyVerdict.DELETED, "p.orders", "delete")
    assert (other.verdict, other.absent_since) == (KeyVerdict.FILTERED, "p.paid")


def test_a_history_is_explained_with_all_versions_of_a_row(capture: Capture, orders: Database) -> None:
    box = capture("orders", history=True)
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    assert explained(box, "1").places[-1].rows == 1
    run_all(box)
    found = explained(box, "1")
    assert (found.verdict, found.places[-1].rows) == (KeyVerdict.PRESENT, 2)
    assert ops(found) == [("snapshot", True), ("update", True)]


def test_a_row_that_somebody_took_out_of_the_table_is_unexplained(capture: Capture, orders: Database) -> None:
    del orders
    box = capture("orders")
    run_all(box)
    box.table("orders").table.delete("id = 4")
    found = explained(box, "4")
    assert found.verdict is KeyVerdict.UNEXPLAINED
    assert "odi audit p.orders" in found.sentence


def test_a_key_of_several_columns_and_of_other_types_is_found_as_the_table_shows_it(
    capture: Capture, database: Database
) -> None:
    database.execute("CREATE TABLE parts (a int, at timestamptz, v text, PRIMARY KEY (at, a))")
    database.execute("INSERT INTO parts VALUES (1, '2024-01-01 10:00+02', 'x'), (2, '2024-01-01 10:00+02', 'y')")
    box = capture("parts")
    run_all(box)
    database.execute("UPDATE parts SET v = 'z' WHERE a = 1")
    run_all(box)
    (found,) = trace(
        box.project, box.spark, box.state, NodeKey("p", "parts"), ["at", "a"], [key_text(("2024-01-01 08:00:00", "1"))]
    )
    assert found.verdict is KeyVerdict.PRESENT
    assert [one.key for one in found.changes] == [("1", "2024-01-01 08:00:00+00")] * 2
    assert found.places[0].rows == 1


def test_the_command_shows_the_changes_and_asks_by_other_columns_and_for_captured_tables(
    capture: Capture, orders: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    monkeypatch.chdir(box.root)

    def odi(*arguments: str) -> str:
        capfd.readouterr()
        assert main(arguments) == 0
        return capfd.readouterr().out

    shown = odi("explain", "orders", "--key", "1")
    assert "state: new → paid" in shown
    (found,) = json.loads(odi("explain", "orders", "--key", "state=paid", "--json"))
    assert [one["key"] for one in found["changes"]] == [["1"], ["1"]]
    assert found["changes"][1]["changed"] == {"state": {"before": "new", "after": "paid"}}
    (found,) = json.loads(odi("explain", "changes", "--table", "public.orders", "--key", "1", "--json"))
    assert (found["verdict"], found["changes"][1]["applied_by"]) == ("PRESENT", ["p.orders"])
    assert main(["explain", "orders", "--table", "public.orders", "--key", "1"]) == 2
