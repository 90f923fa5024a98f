"""The sensor of a pipeline that captures a log: it requests a run for changes of its tables, and for nothing else."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dagster as dg
import psycopg
import pytest

from odi_assets.errors import SourceError
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
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
)
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, PostgresServer

Database = psycopg.Connection[Any]
Tick = Callable[[], list[dg.RunRequest]]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def watched(box: Sandbox, instance: dg.DagsterInstance) -> Tick:
    """What a tick of the sensor requests; the sensor remembers earlier ones, as it does in Dagster's daemon."""
    definitions = build_definitions(box.project)
    sensor, repository = definitions.resolve_sensor_def("p_new_data"), definitions.get_repository_def()
    cursor: list[str | None] = [None]

    def tick() -> list[dg.RunRequest]:
        with dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor[0]) as context:
            found = sensor.evaluate_tick(context)
        cursor[0] = found.cursor
        assert "errors" not in json.loads(found.cursor or "{}"), found.cursor
        return list(found.run_requests or ())

    return tick


def nodes(request: dg.RunRequest) -> set[str]:
    return {key.path[-1] for key in request.asset_selection or ()}


def busy(database: Database) -> None:
    """A transaction of another table."""
    database.execute("INSERT INTO busy SELECT repeat('x', 100) FROM generate_series(1, 100)")


PATIENT = "automation: {look_timeout: 10m}\n"
"""No test depends on how busy the machine is."""
PUBLISHED = f"slot: {SLOT}, publication: of_all, create: true"


@each_version
def test_no_tick_starts_a_run_unless_a_captured_table_changed(
    capture: Capture, orders: Database, instance: dg.DagsterInstance, server: PostgresServer
) -> None:
    orders.execute("CREATE TABLE busy (x text)")
    orders.execute("ALTER TABLE busy REPLICA IDENTITY FULL")
    orders.execute("CREATE PUBLICATION of_all FOR ALL TABLES")
    box = capture("orders", log=PUBLISHED, settings=PATIENT)
    tick = watched(box, instance)
    (first,) = tick()
    assert nodes(first) == {"changes", "orders"}
    assert run_pipeline(box.project, "p", instance=instance).success
    requested = []
    with opened(server, autocommit=False) as other:
        other.execute("UPDATE orders SET state = 'open' WHERE id = 1")
        for _ in range(5):
            busy(orders)
            requested += tick()
        other.rollback()
    requested += tick()
    assert requested == []
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    (found,) = tick()
    assert nodes(found) == {"changes", "orders"}
    assert run_pipeline(box.project, "p", instance=instance).success
    assert held(box, "orders") == rows_of(orders, "orders")
    busy(orders)
    assert tick() == []
    orders.execute("TRUNCATE orders")
    assert len(tick()) == 1


def test_a_capture_that_fails_is_tried_again_after_pauses_although_the_log_moves(
    capture: Capture, orders: Database, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.sources.cdc.source.QUIET_BYTES", 200_000)
    orders.execute("CREATE TABLE busy (x text)")
    box = capture("orders", settings=PATIENT)
    run_all(box)
    tick = watched(box, instance)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    (request,) = tick()
    run = instance.add_run(dg.DagsterRun(job_name="p", run_id=str(uuid.uuid4()), tags=dict(request.tags)))
    instance.report_run_failed(run, "failed by a test")
    for _ in range(3):
        busy(orders)
        orders.execute("UPDATE orders SET state = 'sent' WHERE id = 2")
        assert tick() == []
    # Once there is much more, it is tried at once.
    for _ in range(20):
        busy(orders)
    assert len(tick()) == 1


def test_a_log_that_takes_too_long_to_look_at_is_reason_enough_for_a_run(
    capture: Capture, orders: Database, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders", settings=PATIENT)
    run_all(box)
    orders.execute("INSERT INTO orders SELECT g, 'new', NULL FROM generate_series(100, 30000) g")
    with monkeypatch.context() as patch:
        patch.setattr("odi_assets.sources.cdc.postgres.database.LONGEST_LOOK", 0.01)
        assert len(watched(box, instance)()) == 1
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


class Reader:
    """A session that reads the slot, and acknowledges nothing."""

    def __init__(self, server: PostgresServer) -> None:
        place = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "dbname": DATABASE}
        self.opened = psycopg.connect(**place, autocommit=True, replication="database")  # type: ignore[arg-type]
        start = f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', publication_names '{SLOT}')"
        self.opened.pgconn.send_query(start.encode())
        assert self.opened.pgconn.get_result() is not None

    def close(self) -> None:
        self.opened.pgconn.finish()


def test_a_run_waits_for_a_moment_for_who_looks_at_the_slot_and_names_who_stays(
    capture: Capture, orders: Database, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    reader = Reader(server)
    letting_go = threading.Timer(1.0, reader.close)
    letting_go.start()
    assert box.run("changes").status is RunStatus.SUCCESS
    letting_go.join()
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.waiting._MOMENT", 0.3)
    reader = Reader(server)
    try:
        with pytest.raises(SourceError, match=r"is read by another session now \(pid \d+\)"):
            box.run("changes")
    finally:
        reader.close()
    time.sleep(0.2)
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_runs_and_looks_at_the_same_time_do_not_disturb_each_other(
    capture: Capture, orders: Database, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.waiting._MOMENT", 60.0)
    box = capture("orders", settings=PATIENT)
    run_all(box)
    tick, stop = watched(box, instance), threading.Event()

    def look() -> int:
        ticks = 0
        while not stop.is_set():
            tick()
            ticks += 1
        return ticks

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        try:
            for number in range(8):
                orders.execute("UPDATE orders SET state = %s WHERE id = 1", [str(number)])
                assert box.run("changes").status is RunStatus.SUCCESS
        finally:
            stop.set()
        assert looking.result() > 0
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")
