"""A change log and its tables go back together, and what the server has let go is said before anything changes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.recovery.table_versions import at_version
from odi_assets.sources.cdc.source import LogSource
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import Capture, held, rows_of, run_all

Database = psycopg.Connection[Any]


def rewound(box: Sandbox, node: str, version: int, *, cascade: bool = False) -> list[str]:
    plan = plan_rewind(box.project, box.state, NodeKey("p", node), at_version(version), cascade=cascade)
    return [str(one.key) for one, _ in apply_rewind(box.project, box.state, plan)]


def version(box: Sandbox, node: str) -> int:
    return int(box.table(node).version or 0)


@pytest.mark.parametrize("history", [False, True])
def test_a_table_that_goes_back_is_the_same_once_the_log_is_applied_again(
    capture: Capture, orders: Database, history: bool
) -> None:
    box = capture("orders", history=history)
    run_all(box)
    before = version(box, "orders")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("UPDATE orders SET id = 21 WHERE id = 2")
    run_all(box)
    orders.execute("DELETE FROM orders WHERE id = 3")
    orders.execute("INSERT INTO orders VALUES (50, 'new', NULL)")
    run_all(box)
    then = sorted(map(str, box.rows("orders")))
    assert rewound(box, "orders", before) == ["p.orders"]
    assert sorted(map(str, box.rows("orders"))) != then
    assert box.run("orders").status is RunStatus.SUCCESS
    assert sorted(map(str, box.rows("orders"))) == then
    assert box.run("changes").status is RunStatus.NO_DATA


def test_a_log_whose_changes_the_server_still_has_goes_back_with_its_tables(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    log, table = version(box, "changes"), version(box, "orders")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("UPDATE orders SET id = 21 WHERE id = 2")
    with monkeypatch.context() as patch:
        # The slot stays where it was, as if the run had died behind its commit.
        patch.setattr(LogSource, "acknowledge", lambda *_: None)
        run_all(box)
    changes = box.rows("changes")
    assert rewound(box, "changes", log, cascade=True) == ["p.orders", "p.changes"]
    assert len(box.rows("changes")) < len(changes)
    assert (version(box, "changes"), version(box, "orders")) > (log, table)
    orders.execute("DELETE FROM orders WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    # The changes that were undone have their numbers again, and come before those that followed.
    assert set(map(str, changes)) < set(map(str, box.rows("changes")))
    numbers = sorted(row[0] for row in box.rows("changes"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_capture_does_not_go_back_below_what_the_server_has_let_go(
    capture: Capture, orders: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    log = version(box, "changes")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    versions = version(box, "changes"), version(box, "orders")
    with pytest.raises(StateError, match=f"cannot go back to version {log}") as refused:
        rewound(box, "changes", log, cascade=True)
    assert "odi state rewind p.orders --list" in str(refused.value)
    assert "odi run p --node changes --full-refresh" in str(refused.value)
    monkeypatch.chdir(box.root)
    assert main(["state", "rewind", "changes", "--to-version", str(log), "--cascade", "--yes"]) == 1
    assert "rewind only the nodes that apply it" in capfd.readouterr().err
    assert (version(box, "changes"), version(box, "orders")) == versions
    # What is named works: the table goes back alone, and a full refresh begins again.
    assert main(["state", "rewind", "orders", "--to-version", "0", "--yes"]) == 0
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")
