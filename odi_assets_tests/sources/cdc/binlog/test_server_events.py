"""What happens to a server of MariaDB or MySQL while it is captured: each event is named, and there is a way on."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.session import BinlogSession
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.cdc.binlog.conftest import SERVERS, Capture, Database, ServerKind, capture_of, installed
from odi_assets_tests.sources.cdc.conftest import held, run_all
from odi_assets_tests.sources.sql.servers import PASSWORD, USER, MariadbServer


@pytest.fixture(params=[*SERVERS])
def kind(request: pytest.FixtureRequest) -> ServerKind:
    return installed(request.param)


@pytest.fixture
def folder(kind: ServerKind) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"{kind.name}-") as name:
        yield Path(name)


def make_orders(server: MariadbServer) -> Database:
    database = Database(server.connect())
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, state varchar(20), note text)")
    database.execute("INSERT INTO orders SELECT seq, 'new', 'n' FROM seq_1_to_10")
    return database


def test_a_password_that_was_changed_is_named_and_the_capture_goes_on_once_it_is_right(
    capture: Capture, orders: Database, admin: Database
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    user = f"'{USER}'@'127.0.0.1'"
    admin.execute(f"ALTER USER {user} IDENTIFIED BY 'another one'")
    try:
        with pytest.raises(SourceError, match="refuses the login") as stopped:
            box.run("changes")
        assert "password" in str(stopped.value.fix)
        assert PASSWORD not in str(stopped.value)
    finally:
        admin.execute(f"ALTER USER {user} IDENTIFIED BY %s", PASSWORD)
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")


def test_another_server_in_the_place_of_the_one_that_was_captured_is_named_and_new_snapshots_go_on(
    kind: ServerKind, folder: Path, tmp_path: Path, spark: SparkSession
) -> None:
    with kind.start(folder) as first:
        orders = make_orders(first)
        run_all(capture_of(first, tmp_path, spark)("orders"))
        orders.execute("UPDATE orders SET state = 'lost'")
        orders.opened.close()
    with tempfile.TemporaryDirectory() as name, kind.start(Path(name)) as other:
        database = make_orders(other)
        box = capture_of(other, tmp_path, spark)("orders")
        with pytest.raises(IdentityMismatchError, match="this is another server") as stopped:
            box.run("changes")
        assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)
        box.run("changes", full_refresh=True, accept_loss=True)
        run_all(box)
        assert held(box, "orders") == database.rows_of("orders")


def test_a_server_that_dies_in_the_middle_of_a_run_costs_a_run_and_no_row(
    kind: ServerKind, folder: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as running:
        server = running.enter_context(kind.start(folder))
        make_orders(server).opened.close()
        box = capture_of(server, tmp_path, spark)("orders", rows=4)
        texts = BinlogSession.texts
        read: list[Any] = []

        def dying(session: BinlogSession, *given: Any) -> Any:
            read.append(texts(session, *given))
            if len(read) == 2:
                os.kill(int((folder / "pid").read_text(encoding="utf-8")), signal.SIGKILL)
            return read[-1]

        monkeypatch.setattr(BinlogSession, "texts", dying)
        with pytest.raises(SourceError) as stopped:
            box.run("changes")
        assert f"127.0.0.1:{server.port}" in str(stopped.value)
        assert "1 commit" in "".join(stopped.value.__notes__)
    with kind.again(folder, server.port):
        database = Database(server.connect())
        database.execute("UPDATE orders SET state = 'paid' WHERE id < 3")
        database.execute("DELETE FROM orders WHERE id = 9")
        run_all(box)
        assert held(box, "orders") == database.rows_of("orders")
        assert box.run("changes").status is RunStatus.NO_DATA
