"""What happens to a server while it is captured: each event is named, and there is a way on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.postgres.server import ServerSession
from odi_assets.sources.cdc.source import LogSource
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.cdc.conftest import (
    SLOT,
    VERSIONS,
    Capture,
    capture_of,
    held,
    opened,
    rows_of,
    run_all,
)
from odi_assets_tests.sources.sql.servers import (
    PASSWORD,
    USER,
    PostgresServer,
    crash,
    postgres,
    postgres_again,
    postgres_standby,
)

WITH_STANDBYS = [one for one, programs in VERSIONS.items() if (programs / "pg_basebackup").exists()]
"""The versions whose programs copy a server."""


@contextmanager
def own_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        yield Path(name)


def make_orders(server: PostgresServer) -> None:
    with opened(server) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        database.execute("INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 10) g")


def test_a_password_that_was_changed_is_named_and_the_capture_goes_on_once_it_is_right(
    capture: Capture, orders: psycopg.Connection[Any]
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    change = sql.SQL("ALTER ROLE {} PASSWORD {}")
    orders.execute(change.format(sql.Identifier(USER), sql.Literal("another one")))
    try:
        with pytest.raises(SourceError, match="refuses the login") as stopped:
            box.run("changes")
        assert "password" in str(stopped.value.fix)
        assert PASSWORD not in str(stopped.value)
    finally:
        orders.execute(change.format(sql.Identifier(USER), sql.Literal(PASSWORD)))
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


@pytest.mark.parametrize("version", list(VERSIONS))
def test_a_server_that_dies_in_the_middle_of_a_run_costs_a_run_and_no_row(
    version: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_folder() as folder, ExitStack() as first, ExitStack() as second:
        server = first.enter_context(postgres(folder, VERSIONS[version]))
        make_orders(server)
        box = capture_of(server, tmp_path, spark)("orders", rows=4)
        texts, acknowledge = ServerSession.texts, LogSource.acknowledge
        read: list[Any] = []

        def dying(session: ServerSession, *given: Any) -> Any:
            read.append(texts(session, *given))
            if len(read) == 2:
                crash(folder, server)
            return read[-1]

        monkeypatch.setattr(ServerSession, "texts", dying)
        with pytest.raises(SourceError) as stopped:
            box.run("changes")
        assert f"127.0.0.1:{server.port}" in str(stopped.value)
        assert "1 commit" in "".join(stopped.value.__notes__)
        first.close()
        second.enter_context(postgres_again(folder, server.port, server.programs))
        with opened(server) as database:
            database.execute("UPDATE orders SET state = 'paid' WHERE id < 3")
            database.execute("DELETE FROM orders WHERE id = 9")
        run_all(box)

        def dying_before(source: LogSource, mark: Any) -> None:
            crash(folder, server)
            acknowledge(source, mark)

        with opened(server) as database:
            database.execute("UPDATE orders SET state = 'sent' WHERE id = 4")
        with monkeypatch.context() as patch:
            patch.setattr(LogSource, "acknowledge", dying_before)
            assert box.run("changes").status is RunStatus.SUCCESS
        second.close()
        with postgres_again(folder, server.port, server.programs), opened(server) as database:
            assert box.run("changes").status is RunStatus.NO_DATA
            database.execute("INSERT INTO orders VALUES (11, 'came')")
            run_all(box)
            assert held(box, "orders") == rows_of(database, "orders")


GIVEN_UP = [
    *((one, "max_slot_wal_keep_size", "1MB") for one in VERSIONS),
    *((one, "idle_replication_slot_timeout", "1s") for one in VERSIONS if int(one) >= 18),
]
"""By version, settings after which a server gives up a slot."""


@pytest.mark.parametrize(("version", "setting", "value"), GIVEN_UP)
def test_a_slot_that_the_server_has_given_up_is_named_and_new_snapshots_go_on(
    version: str, setting: str, value: str, tmp_path: Path, spark: SparkSession
) -> None:
    with own_folder() as folder, postgres(folder, VERSIONS[version]) as server, opened(server) as database:
        make_orders(server)
        box = capture_of(server, tmp_path, spark)("orders")
        run_all(box)
        database.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
        database.execute("SELECT pg_reload_conf()")
        time.sleep(1.5)
        for state in ("a", "b", "c"):
            database.execute("UPDATE orders SET state = %s", [state])
            database.execute("SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
        with pytest.raises(IdentityMismatchError, match=f"`{setting}`") as stopped:
            box.run("changes")
        database.execute(f"ALTER SYSTEM RESET {setting}")
        database.execute("SELECT pg_reload_conf()")
        drop, _, command = str(stopped.value.fix).partition("; then ")
        database.execute(drop.encode())
        assert "odi run p --node changes --full-refresh --yes" in command
        box.run("changes", full_refresh=True, accept_loss=True)
        run_all(box)
        assert held(box, "orders") == rows_of(database, "orders")


def test_another_server_in_the_place_of_the_one_that_was_captured_is_named_and_new_snapshots_go_on(
    capture: Capture, orders: psycopg.Connection[Any], tmp_path: Path, spark: SparkSession
) -> None:
    run_all(capture("orders"))
    orders.execute("UPDATE orders SET state = 'lost'")
    with own_folder() as folder, postgres(folder) as other, opened(other) as database:
        make_orders(other)
        database.execute("ALTER TABLE orders ADD note text")
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        box = capture_of(other, tmp_path, spark)("orders")
        with pytest.raises(IdentityMismatchError, match="this is another server") as stopped:
            box.run("changes")
        assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)
        box.run("changes", full_refresh=True, accept_loss=True)
        run_all(box)
        assert held(box, "orders") == rows_of(database, "orders")


def wait_until_replayed(first: PostgresServer, second: PostgresServer) -> None:
    with opened(first) as database:
        (end,) = database.execute("SELECT pg_current_wal_lsn()").fetchall()[0]
    deadline = time.monotonic() + 120
    with opened(second) as standby:
        while not standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [end]).fetchall()[0][0]:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("version", [one for one in WITH_STANDBYS if int(one) >= 17])
def test_a_standby_that_has_the_slot_takes_over_without_a_new_snapshot_and_that_is_said(
    version: str, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with own_folder() as one, own_folder() as other, postgres(one, VERSIONS[version]) as first:
        make_orders(first)
        with opened(first) as database:
            database.execute("ALTER SYSTEM SET hot_standby_feedback = on")
            database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, false, true)", [SLOT])
        box = capture_of(first, tmp_path, spark)("orders")
        run_all(box)
        with postgres_standby(other, first, "standby") as second, opened(second) as standby:

            def has_slot() -> bool:
                standby.execute("SELECT pg_sync_replication_slots()")
                found = standby.execute("SELECT temporary FROM pg_replication_slots WHERE slot_name = %s", [SLOT])
                return found.fetchall() == [(False,)]

            with opened(first) as database:
                deadline = time.monotonic() + 120
                while not has_slot():
                    assert time.monotonic() < deadline
                    # The slot on the standby is kept once that of the primary has moved past it.
                    database.execute("UPDATE orders SET state = state || 'x' WHERE id = 1")
                    database.execute("SELECT pg_log_standby_snapshot()")
                    box.run("changes")
                    wait_until_replayed(first, second)
                database.execute("UPDATE orders SET state = 'paid' WHERE id = 2")
                run_all(box)
                database.execute("UPDATE orders SET state = 'paid' WHERE id = 3")
            wait_until_replayed(first, second)
            standby.execute("SELECT pg_promote()")
            standby.execute("UPDATE orders SET state = 'sent' WHERE id = 4")
            rows = box.table("changes").table.to_pyarrow_table().num_rows
            box = capture_of(second, tmp_path, spark)("orders")
            run_all(box)
            assert held(box, "orders") == rows_of(standby, "orders")
            gained = box.table("changes").table.to_pyarrow_table().sort_by("n").to_pylist()[rows:]
            assert [row["op"] for row in gained if row["op"] != Op.SHAPE] == ["u", "u"]
            assert f"the slot {SLOT} goes on; since then a standby was promoted" in caplog.text


@pytest.mark.parametrize("version", WITH_STANDBYS)
def test_a_standby_that_was_promoted_is_named_and_new_snapshots_go_on(
    version: str, tmp_path: Path, spark: SparkSession
) -> None:
    with own_folder() as one, own_folder() as other, postgres(one, VERSIONS[version]) as first:
        make_orders(first)
        box = capture_of(first, tmp_path, spark)("orders")
        run_all(box)
        assert box.hwm("changes")["timeline"] == 1
        with postgres_standby(other, first) as second:
            with opened(first) as database:
                database.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
            run_all(box)
            wait_until_replayed(first, second)
            box = capture_of(second, tmp_path, spark)("orders")
            with pytest.raises(SourceError, match="the server is a standby") as refused:
                box.run("changes")
            assert "pg_promote" in str(refused.value)
            with opened(second) as database:
                database.execute("SELECT pg_promote()")
                database.execute("DELETE FROM orders WHERE id = 2")
                with pytest.raises(IdentityMismatchError, match="the slot `odi_test` is gone") as stopped:
                    box.run("changes")
                assert "a standby was promoted" in str(stopped.value)
                assert "of timeline 2, and was of timeline 1" in str(stopped.value)
                assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)
                box.run("changes", full_refresh=True, accept_loss=True)
                run_all(box)
                assert box.hwm("changes")["timeline"] == 2
                database.execute("UPDATE orders SET state = 'sent' WHERE id = 3")
                run_all(box)
                assert held(box, "orders") == rows_of(database, "orders")
