"""Projects that capture a server of MariaDB or MySQL and apply its change log: the same nodes as for PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import Kind
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.cdc.binlog.conftest import Capture, Database
from odi_assets_tests.sources.cdc.conftest import held, run_all

_COLUMNS = {
    "a": ("tinyint unsigned", "200", 200),
    "b": ("bigint unsigned", "18446744073709551615", Decimal(18446744073709551615)),
    "c": ("decimal(12,2)", "-1.5", Decimal("-1.50")),
    "d": ("double", "0.1", 0.1),
    "e": ("bit(1)", "b'1'", True),
    "f": ("bit(12)", "b'101'", Decimal(5)),
    "g": ("date", "'2024-02-29'", date(2024, 2, 29)),
    "h": ("datetime(6)", "'2024-03-31 02:30:00.000001'", datetime(2024, 3, 31, 2, 30, 0, 1)),
    "i": ("timestamp(3)", "'2024-03-31 02:30:00.5'", datetime(2024, 3, 31, 2, 30, 0, 500_000, UTC)),
    "j": ("varbinary(9)", "X'00ff'", b"\x00\xff"),
    "k": ("enum('x', 'y')", "'y'", "y"),
    "l": ("json", "'{\"a\": 1}'", '{"a": 1}'),
    "m": ("time(2)", "'-12:00:00.5'", "-12:00:00.50"),
    "n": ("year", "2024", 2024),
    "o": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
}


def test_a_table_is_applied_with_its_types_and_follows_its_changes(
    capture: Capture, orders: Database, *, is_mysql: bool
) -> None:
    columns = {name: column for name, column in _COLUMNS.items() if not is_mysql or column[0] != "uuid"}
    orders.execute(
        f"CREATE TABLE kinds (id int PRIMARY KEY, {', '.join(f'{n} {k}' for n, (k, *_) in columns.items())})"
    )
    values = ", ".join(value for _, value, _ in columns.values())
    orders.execute(f"INSERT INTO kinds VALUES (1, {values})")
    box = capture("orders", "kinds", rows=4)
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")
    orders.execute("UPDATE orders SET state = 'paid', id = id + 100 WHERE id < 4")
    orders.execute("DELETE FROM orders WHERE id = 5")
    orders.execute(f"INSERT INTO kinds VALUES (2, {values})")
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")
    found = held(box, "kinds")
    assert found[1] | {"id": 2} == found[2]
    assert {name: found[2][name] for name in columns} == {name: value for name, (*_, value) in columns.items()}
    assert [box.run(name).status for name in ("changes", "orders", "kinds")] == [RunStatus.NO_DATA] * 3
    assert examine(box.project, box.state, list(box.project.graph.order("p"))) == []
    orders.execute("TRUNCATE orders")
    orders.execute("INSERT INTO orders VALUES (7, 'after', NULL)")
    orders.execute("ALTER TABLE orders ADD amount int DEFAULT 3")
    run_all(box)
    assert {key: row["amount"] for key, row in held(box, "orders").items()} == {7: 3}


def test_history_keeps_every_version_of_a_row_with_the_second_of_its_commit(capture: Capture, orders: Database) -> None:
    box = capture("orders", history=True)
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("DELETE FROM orders WHERE id = 1")
    run_all(box)
    rows = [
        row for row in box.table("orders").table.to_pyarrow_table().sort_by("_n").to_pylist() if row["_key"] == ["1"]
    ]
    assert [(row["_op"], row["state"]) for row in rows] == [("r", "new"), ("u", "paid"), ("d", None)]
    assert rows[1]["_lsn"] < rows[2]["_lsn"]
    assert rows[1]["_committed_at"] is not None


def test_a_date_of_zeros_is_named_with_its_row(capture: Capture, orders: Database) -> None:
    orders.execute("ALTER TABLE orders ADD born date")
    orders.execute("UPDATE orders SET born = '0000-00-00' WHERE id = 7")
    box = capture("orders")
    box.run("changes")
    with pytest.raises(Exception, match="key 7: column born is 0000-00-00"):
        box.run("orders")


def test_a_log_that_begins_again_is_found_by_the_doctor_and_a_full_refresh_goes_on(
    capture: Capture, orders: Database, admin: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("DELETE FROM orders WHERE id = 1")
    admin.execute("RESET MASTER")
    (found,) = examine(box.project, box.state, [NodeKey("p", "changes")])
    assert (found.kind, "is not the one that was read" in found.message) == (Kind.UPSTREAM_CHANGED, True)
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert held(box, "orders") == orders.rows_of("orders")
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")


def test_a_plan_writes_nothing_at_the_source(capture: Capture, orders: Database, admin: Database) -> None:
    box = capture("orders")
    before = admin.execute("SHOW MASTER STATUS")
    assert "snapshots of 1 table" in box.plan("changes").summary
    assert admin.execute("SHOW MASTER STATUS") == before
    assert orders.execute("SELECT COUNT(*) FROM orders") == [(10,)]


@pytest.mark.parametrize(
    ("log", "why"), [("slot: odi", "is nothing for `type: mysql`; `log` of it has server_id"), ("server_id: 0", "log")]
)
def test_settings_of_another_database_are_mistakes(capture: Capture, log: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        capture("orders", log=log)


def test_each_change_is_written_once_if_the_process_ends_at_any_line_of_a_step(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is in the commit of the rows: whatever a run did before it counts for nothing."""
    from odi_assets.sources.cdc.source import LogSource

    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    taken: list[Any] = []
    step = LogSource.step

    def dies(self: LogSource, mark: Any) -> Any:
        taken.append(step(self, mark))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LogSource, "step", dies)
        with pytest.raises(KeyboardInterrupt):
            box.run("changes")
    assert len(taken) == 1
    run_all(box)
    log = box.table("changes").table.to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in log) == list(range(1, len(log) + 1))
    assert [row["op"] for row in log].count("u") == 1
    assert held(box, "orders") == orders.rows_of("orders")
