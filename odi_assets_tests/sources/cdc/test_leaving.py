"""Tables, publications and names that go away between two captures: nothing of it goes unsaid."""

from __future__ import annotations

import logging
import re
from typing import Any

import psycopg
import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, IdentityMismatchError
from odi_assets.nodes.planning.forecast import forecast
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, held, opened, rows_of, run_all, versions_from
from odi_assets_tests.sources.sql.servers import PostgresServer

Database = psycopg.Connection[Any]
LEAVING = {
    "unlogged": ("ALTER TABLE orders SET UNLOGGED", 'ALTER TABLE "public"."orders" SET LOGGED'),
    "a table that others inherit from": (
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (orders)",
        'ALTER TABLE heir NO INHERIT "public"."orders"',
    ),
    "a partition of a table": (
        "CREATE TABLE whole (LIKE orders) PARTITION BY RANGE (id); ALTER TABLE whole ATTACH PARTITION orders DEFAULT",
        'ALTER TABLE whole DETACH PARTITION "public"."orders"',
    ),
}


@pytest.mark.parametrize("patterns", ["'public.*'", "'public.ord*', public.lines", "public.orders, public.lines"])
@pytest.mark.parametrize("why", LEAVING)
def test_a_captured_table_does_not_leave_in_silence(
    capture: Capture, orders: Database, why: str, patterns: str
) -> None:
    leaves, back = LEAVING[why]
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    box = capture("orders", patterns=patterns)
    run_all(box)
    orders.execute(f"ALTER PUBLICATION {SLOT} DROP TABLE orders")
    orders.execute(leaves)
    orders.execute("UPDATE orders SET state = 'unseen' WHERE id = 1")
    with pytest.raises(ConfigError, match=f"public.orders is {why}") as stopped:
        box.run("changes")
    typed = back.replace(" heir ", " CHILD ").replace(" whole ", " PARENT ")
    assert typed in str(stopped.value)
    orders.execute(back)
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


@pytest.mark.parametrize("history", [False, True])
def test_the_node_of_a_table_that_was_dropped_says_so(capture: Capture, orders: Database, history: bool) -> None:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    box = capture("orders", patterns="'public.*'", history=history)
    run_all(box)
    orders.execute("DROP TABLE orders")
    result = box.run("changes")
    assert (result.status, result.rows_written) == (RunStatus.SUCCESS, 0)
    with pytest.raises(ConfigError, match=r"does not capture public\.orders; it captures public\.lines"):
        box.run("orders")
    assert box.run("changes").status is RunStatus.NO_DATA


def test_a_time_without_a_publication_stops_the_run_and_a_new_slot_goes_on(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute(f"DROP PUBLICATION {SLOT}")
    orders.execute("UPDATE orders SET state = 'unseen' WHERE id = 1")
    (planned, _) = forecast(box.project, box.state, list(box.project.graph.order("p")))
    assert f"no publication `{SLOT}` for a while" in str(planned.error)
    (finding, *_) = examine(box.project, box.state, list(box.project.graph.order("p")))
    assert f"no publication `{SLOT}` for a while" in finding.message
    with pytest.raises(IdentityMismatchError, match=f"no publication `{SLOT}` for a while") as stopped:
        box.run("changes")
    assert f"SELECT pg_drop_replication_slot('{SLOT}'); then odi run p --node changes --full-refresh" in str(
        stopped.value
    )
    orders.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")


@versions_from(15)
def test_columns_that_a_publication_lacks_are_named(
    capture: Capture, orders: Database, caplog: pytest.LogCaptureFixture
) -> None:
    orders.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE orders (id, state)")
    with caplog.at_level(logging.WARNING):
        capture("orders").run("changes")
    assert "p.changes: the publication of public.orders lacks note" in caplog.text


def test_nodes_go_on_that_apply_a_capture_with_another_name(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    file = box.root / "odibi.yaml"
    file.write_text(
        file.read_text(encoding="utf-8")
        .replace("name: changes", "name: log")
        .replace("changes: changes", "changes: log")
    )
    box.project = type(box.project).load(file)
    adoption = plan_adoption(box.project, box.state, NodeKey("p", "log"), lambda: box.spark)
    assert adoption is not None
    apply_adoption(box.state, adoption)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_a_node_does_not_go_on_with_another_table(capture: Capture, orders: Database) -> None:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY, state text, note text)")
    box = capture("orders", patterns="'public.*'")
    run_all(box)
    file = box.root / "odibi.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("table: public.orders", "table: public.lines"))
    box.project = Project.load(file)
    with pytest.raises(IdentityMismatchError, match=r"public\.orders"):
        box.run("orders")


def test_a_transaction_that_stays_open_keeps_no_run_waiting(
    capture: Capture, server: PostgresServer, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.waiting._PATIENCE", 2.0)
    with opened(server, autocommit=False) as other:
        orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
        other.execute("UPDATE orders SET state = 'open' WHERE id = 2")
        next_number = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
        before = orders.execute(next_number).fetchone()
        box.run("changes")
        # No transaction of ours has written anything.
        assert orders.execute(next_number).fetchone() == before
        assert held(box, "orders")[1]["state"] == "new"
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_tables_that_are_left_out_are_not_captured_also_those_that_come_later(
    capture: Capture, orders: Database, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("audit_1", "audited"):
        orders.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    orders.execute("CREATE UNLOGGED TABLE audit_raw (id int)")
    patterns = '"public.*", "!public.audit_*"'
    box = capture("orders", patterns=patterns)
    run_all(box)
    orders.execute("CREATE TABLE audit_2 (id int PRIMARY KEY)")
    orders.execute("INSERT INTO audit_2 VALUES (1)")
    orders.execute("INSERT INTO audited VALUES (1)")
    run_all(box)
    captured = ["public.audited", "public.orders"]
    assert sorted(box.hwm("changes")["tables"]) == captured
    published = orders.execute("SELECT schemaname || '.' || tablename FROM pg_publication_tables ORDER BY 1").fetchall()
    assert [name for (name,) in published] == captured
    box = capture("orders", patterns=f'{patterns}, "!public.audited"')
    run_all(box)
    assert list(box.hwm("changes")["tables"]) == ["public.orders"]
    orders.execute("DROP TABLE audited")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    assert "`!public.audited` leaves out no table" in caplog.text


@pytest.mark.parametrize(
    ("patterns", "what"),
    [
        ('"public.*", "!public.audti_*"', "`!public.audti_*` leaves out no table"),
        ('"public.order*", "!public.orders*"', "`public.order*` of `tables` names nothing that is not left out"),
    ],
)
def test_entries_that_leave_out_nothing_or_all_are_refused(
    capture: Capture, orders: Database, patterns: str, what: str
) -> None:
    del orders
    with pytest.raises(ConfigError, match=re.escape(what)):
        capture("orders", patterns=patterns).run("changes")
