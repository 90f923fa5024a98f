"""Tables that join a capture while transactions that changed them are open: none of their changes is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from odi_assets.errors import SourceError
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, held, opened, rows_of, run_all
from odi_assets_tests.sources.sql.servers import PostgresServer

Database = psycopg.Connection[Any]


def nothing(database: Database) -> None:
    del database


def publish_by_hand(database: Database) -> None:
    database.execute(f"ALTER PUBLICATION {SLOT} ADD TABLE lines")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.waiting._PATIENCE", 0.3)


@pytest.fixture
def lines(orders: Database) -> Database:
    orders.execute("CREATE TABLE lines (id int PRIMARY KEY, n int)")
    orders.execute("INSERT INTO lines SELECT g, g FROM generate_series(1, 20) g")
    return orders


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("before", [nothing, publish_by_hand])
@pytest.mark.parametrize("is_prepared", [False, True], ids=["open", "prepared"])
def test_each_run_waits_until_transactions_end_that_are_older_than_a_table_that_joins(
    capture: Capture,
    server: PostgresServer,
    lines: Database,
    before: Callable[[Database], None],
    is_prepared: bool,
) -> None:
    run_all(capture("orders"))
    with opened(server, autocommit=False) as other:
        other.execute("UPDATE lines SET n = -1 WHERE id = 1")
        if is_prepared:
            other.execute("PREPARE TRANSACTION 'odi''s'")
        before(lines)
        box = capture("orders", "lines")
        # The first run publishes the table; the second one finds it published.
        for _ in range(2):
            with pytest.raises(SourceError, match="goes on, for 0 seconds now") as stopped:
                box.run("changes")
            assert ("COMMIT PREPARED 'odi''s'" if is_prepared else "pg_stat_activity") in str(stopped.value)
        if not is_prepared:
            other.commit()
    if is_prepared:
        lines.execute("COMMIT PREPARED 'odi''s'")
    run_all(box)
    assert held(box, "lines") == rows_of(lines, "lines")


@pytest.mark.usefixtures("impatient")
def test_a_table_that_is_published_again_waits_for_transactions_that_are_older(
    capture: Capture, server: PostgresServer, lines: Database
) -> None:
    box = capture("orders", "lines")
    run_all(box)
    lines.execute(f"ALTER PUBLICATION {SLOT} DROP TABLE lines")
    with opened(server, autocommit=False) as other:
        other.execute("UPDATE lines SET n = -1 WHERE id = 1")
        publish_by_hand(lines)
        with pytest.raises(SourceError, match="a transaction that began before goes on"):
            box.run("changes")
        other.commit()
    run_all(box)
    assert held(box, "lines") == rows_of(lines, "lines")


@pytest.mark.usefixtures("impatient")
def test_tables_that_are_captured_already_wait_for_nobody(
    capture: Capture, server: PostgresServer, lines: Database
) -> None:
    box = capture("orders", "lines")
    run_all(box)
    with opened(server, autocommit=False) as other:
        other.execute("UPDATE lines SET n = -1 WHERE id = 1")
        lines.execute("UPDATE lines SET n = -2 WHERE id = 2")
        lines.execute("ALTER TABLE orders ADD more int")
        run_all(box)
        assert held(box, "lines")[1]["n"] == 1
        other.commit()
    run_all(box)
    assert held(box, "lines") == rows_of(lines, "lines")
