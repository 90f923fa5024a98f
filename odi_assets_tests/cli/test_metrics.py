"""``odi metrics``: what Prometheus is given."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odi_assets.nodes.project import Project
from odi_assets.state.delta.batches import BatchRecord
from odi_assets.state.records import RunStatus
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import deliver, environment
from odi_assets_tests.state.test_runs_contract import run

Labels = frozenset[tuple[str, str]]
NOW = datetime.now(UTC)
STREAM = """\
      - name: seen
        read: {connection: landing, format: csv, path: "*.csv", options: {header: "true"}, schema: "id INT"}
        stream: {}
        write: {connection: lake, path: seen, mode: append}
"""


def figures(text: str) -> Mapping[tuple[str, Labels], float]:
    families = text_string_to_metric_families(text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def of(node: str, **more: str) -> Labels:
    return frozenset({"pipeline": "shop", "node": node, **more}.items())


def test_a_project_that_was_never_run_is_ahead_and_has_no_runs(shop: Path, odi: Odi) -> None:
    deliver(shop, "orders-2.csv", ["3,ann,1"])
    answer = odi("metrics")
    assert (answer.code, answer.err) == (0, "")
    found = figures(answer.out)
    assert found["odi_up", frozenset()] == 1
    assert found["odi_node_ahead", of("orders")] == found["odi_node_ahead", of("spending")] == 1
    assert found["odi_node_files_waiting", of("orders")] == 2
    assert found["odi_node_rows_written_last_day", of("orders")] == 0
    assert "last_success" not in answer.out


def test_runs_of_the_last_day_are_counted_by_how_they_ended_and_a_lost_one_is_the_last(shop: Path, odi: Odi) -> None:
    state = Project.load(shop / "odibi.yaml").open_state()
    lost = replace(
        run(1, pipeline="shop", node="orders"), project="shop", timestamp=NOW, status=RunStatus.LOST, table_version=None
    )
    lost = replace(lost, rows_processed=None)
    good = replace(lost, run_id="good", timestamp=NOW - timedelta(hours=2), status=RunStatus.SUCCESS)
    good = replace(good, rows_processed=7, table_version=3)
    idle = replace(good, run_id="idle", timestamp=NOW - timedelta(hours=1), status=RunStatus.NO_DATA)
    idle = replace(idle, rows_processed=0)
    old = replace(good, run_id="old", timestamp=NOW - timedelta(days=3))
    undone = replace(good, run_id="undone", timestamp=NOW, trigger="rewind")
    foreign = replace(good, run_id="foreign", timestamp=NOW, project="another")
    state.record_runs([old, good, idle, lost, undone, foreign])
    found = figures(odi("metrics").out)
    counts = {status: found["odi_node_runs_last_day", of("orders", status=status)] for status in ("SUCCESS", "LOST")}
    assert counts == {"SUCCESS": 1, "LOST": 1}
    assert found["odi_node_rows_written_last_day", of("orders")] == 7
    assert found["odi_node_last_run_status", of("orders", status="LOST")] == 1
    assert found["odi_node_last_success_timestamp_seconds", of("orders")] == pytest.approx(idle.timestamp.timestamp())
    assert found["odi_node_last_data_timestamp_seconds", of("orders")] == pytest.approx(good.timestamp.timestamp())


def test_a_high_water_mark_that_is_a_time_is_a_figure(shop: Path, odi: Odi) -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    Project.load(shop / "odibi.yaml").open_state().set_hwm("shop.orders", moment)
    assert figures(odi("metrics").out)["odi_node_hwm_timestamp_seconds", of("orders")] == moment.timestamp()


def test_a_node_that_would_stop_says_so_and_the_others_are_still_looked_at(shop: Path, odi: Odi) -> None:
    Project.load(shop / "odibi.yaml").open_state().set_hwm("shop.orders", 3)
    answer = odi("metrics")
    assert answer.code == 0
    assert "shop.orders would stop" in answer.err
    found = figures(answer.out)
    assert found["odi_node_stopped", of("orders")] == 1
    assert ("odi_node_ahead", of("orders")) not in found
    assert found["odi_node_stopped", of("spending")] == 0


def test_the_last_batch_of_a_stream_is_a_figure(shop: Path, odi: Odi) -> None:
    file = shop / "odibi.yaml"
    file.write_text(file.read_text(encoding="utf-8") + STREAM, encoding="utf-8")
    batches = [
        BatchRecord(
            node="shop.seen",
            query="q",
            batch=number,
            committed_at=NOW,
            watermark=NOW,
            state_rows=5 + number,
            offsets={},
        )
        for number in (0, 1)
    ]
    Project.load(file).open_batches().record(batches)
    found = figures(odi("metrics").out)
    assert (found["odi_stream_batch", of("seen")], found["odi_stream_state_rows", of("seen")]) == (1, 6)
    assert found["odi_stream_watermark_timestamp_seconds", of("seen")] == pytest.approx(NOW.timestamp(), abs=0.001)


def test_a_state_that_cannot_be_read_is_down_and_not_empty(shop: Path, odi: Odi) -> None:
    log = shop / "lake" / "system" / "meta_state" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{torn", encoding="utf-8")
    answer = odi("metrics")
    assert answer.code == 1
    assert figures(answer.out)["odi_up", frozenset()] == 0
    assert "cannot be looked at" in answer.err


@pytest.mark.parametrize("where", ["printed", "in a file"])
def test_a_project_file_with_mistakes_is_down_and_not_as_it_was(shop: Path, odi: Odi, where: str) -> None:
    target = shop / "odi.prom"
    arguments = ("metrics",) if where == "printed" else ("metrics", "--file", str(target))
    assert odi(*arguments).code == 0
    file = shop / "odibi.yaml"
    file.write_text(f"{file.read_text(encoding='utf-8')}\n  bad: [", encoding="utf-8")
    answer = odi(*arguments)
    assert (answer.code, "odibi.yaml:" in answer.err) == (1, True)
    shown = answer.out if where == "printed" else target.read_text(encoding="utf-8")
    assert figures(shown)["odi_up", frozenset()] == 0


def test_a_file_is_written_whole_and_bad_places_are_named(shop: Path, odi: Odi) -> None:
    target = shop / "odi.prom"
    assert (odi("metrics", "--file", str(target)).code, [*figures(target.read_text())] != []) == (0, True)
    for arguments, text in (
        (("--file", str(shop / "no" / "x")), "cannot be written"),
        (("--serve", "x"), "names no port"),
        (("--serve", "1", "--file", "x"), "name one of the two"),
    ):
        answer = odi("metrics", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert text in answer.err


@contextmanager
def served(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "odi_assets.cli", "metrics", "--serve", str(port)]
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server
        finally:
            server.kill()


@pytest.mark.slow
def test_each_scrape_looks_at_the_project_as_it_is(shop: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = int(taken.getsockname()[1])
        with served(shop, port) as refused:
            assert refused.wait(60) == 2
            assert f"127.0.0.1:{port} cannot be served" in refused.communicate()[1]
    with served(shop, port) as server:
        assert server.stderr is not None
        address = re.search(r"http://\S+", server.stderr.readline())
        assert address is not None
        for waiting in (1, 2):
            with urllib.request.urlopen(address[0], timeout=60) as answer:
                found = figures(answer.read().decode())
            assert found["odi_node_files_waiting", of("orders")] == waiting
            deliver(shop, f"more-{waiting}.csv", ["9,ann,1"])
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.slow
def test_a_table_without_new_rows_for_too_long_is_stale(shop: Path, odi: Odi) -> None:
    file, node = shop / "odibi.yaml", "      - name: orders\n"
    text = file.read_text(encoding="utf-8").replace(node, f"{node}        freshness: {{within: 1h}}\n")
    file.write_text(text, encoding="utf-8")
    name = ("odi_node_stale", of("orders"))
    assert figures(odi("metrics").out)[name] == 0, "it never had rows"
    assert odi("run").code == 0
    assert figures(odi("metrics").out)[name] == 0
    log = shop / "lake" / "orders" / "_delta_log" / f"{0:020}.json"
    earlier = int((datetime.now(UTC) - timedelta(hours=2)).timestamp() * 1000)
    log.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{earlier}', log.read_text("utf-8")), encoding="utf-8")
    assert figures(odi("metrics").out)[name] == 1
    assert ("odi_node_stale", of("spending")) not in figures(odi("metrics").out)
