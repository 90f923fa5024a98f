"""A capture and the nodes that apply it as a service: what the database commits is in the tables a moment later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.errors import OdiError
from odi_assets.nodes.events import NodeEvent
from odi_assets.nodes.service import NodeService
from odi_assets.spark.session import SessionHandle
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, held, rows_of, run_all

Database = psycopg.Connection[Any]


def until(reached: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Services in this process take the suite's session, and leave it open."""
    handle = SessionHandle(spark, started_here=False)
    monkeypatch.setattr("odi_assets.nodes.service.open_session", lambda *_, **__: handle)


@contextmanager
def serving(box: Sandbox) -> Iterator[list[OdiError]]:
    """A service of all nodes; the error that has ended it, once it has ended."""
    service = NodeService(box.project, box.project.graph.order("p"), timedelta(seconds=0.2))
    errors: list[OdiError] = []

    def serve() -> None:
        try:
            service.run()
        except OdiError as error:
            errors.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield errors
    finally:
        service.stop.set()
        thread.join(60)
        assert not thread.is_alive()


def is_applied(box: Sandbox, database: Database) -> bool:
    return box.table("orders").exists and held(box, "orders") == rows_of(database, "orders")


def test_changes_are_applied_as_they_come_and_looks_that_find_nothing_leave_no_trace(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders")
    with serving(box):
        until(lambda: is_applied(box, orders))
        for number in range(3):
            orders.execute("UPDATE orders SET state = %s WHERE id = 1", [str(number)])
            until(lambda: is_applied(box, orders))
        time.sleep(0.5)
        before = len(box.state.list_runs(pipeline="p"))
        time.sleep(1.5)
        runs = box.state.list_runs(pipeline="p")
        assert len(runs) == before
    assert {run.trigger for run in runs} == {"service"}
    assert {run.status for run in runs} == {RunStatus.SUCCESS}


def test_a_service_goes_on_after_a_failure(capture: Capture, orders: Database) -> None:
    box = capture("orders", settings="automation: {max_attempts: 1000, first_pause: 1s, longest_pause: 1s}\n")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("ALTER TABLE orders RENAME TO gone")
    with serving(box) as errors:
        until(lambda: any(run.status is RunStatus.FAILURE for run in box.state.list_runs(pipeline="p")))
        orders.execute("ALTER TABLE gone RENAME TO orders")
        until(lambda: is_applied(box, orders))
        assert errors == []


def test_a_service_ends_with_the_error_after_too_many_failures_in_a_row(capture: Capture, orders: Database) -> None:
    box = capture("orders", settings="automation: {max_attempts: 2, first_pause: 1s, longest_pause: 1s}\n")
    run_all(box)
    orders.execute("SELECT pg_drop_replication_slot(%s)", [SLOT])
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 1")
    with serving(box) as errors:
        until(lambda: bool(errors))
    assert "the slot `odi_test` is gone" in str(errors[0])
    assert errors[0].__notes__ == ["2 runs in a row have failed"]
    failed = box.state.list_runs(pipeline="p", node="changes", limit=2)
    assert [(run.status, run.trigger) for run in failed] == [(RunStatus.FAILURE, "service")] * 2


def test_a_service_that_is_stopped_in_the_middle_of_a_snapshot_ends_after_its_commit(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders", rows=3)
    service = NodeService(box.project, box.project.graph.order("p"), timedelta(seconds=1))

    def stop(event: NodeEvent) -> None:
        if event.kind == "progressed":
            service.stop.set()

    service.listener = stop
    service.run()
    assert box.hwm("changes")["tables"]["public.orders"]["snapshot"]["left"]
    (run,) = box.state.list_runs(pipeline="p")
    assert (run.node_name, run.status) == ("changes", RunStatus.CANCELLED)
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_well_at_a_signal_to_all_its_processes(
    capture: Capture, orders: Database, number: signal.Signals
) -> None:
    box = capture("orders")
    command = [sys.executable, "-m", "odi_assets.cli", "run", "p", "--every", "1s"]
    service = subprocess.Popen(command, cwd=box.root, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until(lambda: is_applied(box, orders))
        orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
        until(lambda: is_applied(box, orders))
        os.killpg(service.pid, number)
        _, said = service.communicate(timeout=60)
    finally:
        service.kill()
    assert service.returncode == 0, said
    assert "p.orders: SUCCESS, 10 rows" in said
    assert said.rstrip().endswith("Stopped; what was committed stays, and the next run goes on from there.")


@pytest.mark.parametrize("more", [["--full-refresh"], ["--json"], ["--resume"]])
def test_a_service_takes_no_options_of_one_run(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], more: list[str]
) -> None:
    monkeypatch.chdir(capture("orders").root)
    assert main(["run", "p", "--every", "10s", *more]) == 2
    assert "--every goes without" in capfd.readouterr().err


def test_a_time_that_is_none_is_named(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    box = capture("orders")
    monkeypatch.chdir(box.root)
    assert main(["run", "p", "--every", "often"]) == 2
    assert "--every often" in capfd.readouterr().err
    assert box.state.get_entry("p.changes") is None
