"""How far a capture is behind is seen in plans, runs, the doctor and Dagster, and slots that hold log are named."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import Disagreement, Kind
from odi_assets.orchestration.assets.log_lag import lag_check
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.metadata import materialization_metadata
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, held, rows_of, run_all

Database = psycopg.Connection[Any]
KEY = NodeKey("p", "changes")


def examined(box: Sandbox) -> list[Disagreement]:
    return examine(box.project, box.state, list(box.project.graph.order("p")))


def fill(database: Database, rows: int) -> None:
    database.execute("CREATE TABLE IF NOT EXISTS busy (x text)")
    database.execute("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, %s)", [rows])


def test_plans_and_runs_say_how_far_a_capture_is_behind(
    capture: Capture, orders: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    fill(orders, 300)
    time.sleep(1.1)
    monkeypatch.chdir(box.root)
    capfd.readouterr()
    assert main(["plan", "--node", "changes", "--json"]) == 0
    (planned,) = json.loads(capfd.readouterr().out)
    (read,) = planned["reads"]
    assert read["lag_bytes"] > 300_000
    assert read["lag_seconds"] >= 1
    assert f"{read['lag_bytes']:,} bytes" in planned["summary"]
    assert "its oldest change" in planned["summary"]
    result = box.run("changes")
    assert result.metrics["lag_bytes"] >= read["lag_bytes"]
    assert result.metrics["lag_seconds"] >= 1
    shown = materialization_metadata(result)
    assert {name: shown[name] for name in ("lag_bytes", "lag_seconds")} == {
        name: result.metrics[name] for name in ("lag_bytes", "lag_seconds")
    }
    assert box.run("changes").metrics["lag_seconds"] == 0


def checked(box: Sandbox) -> dg.AssetCheckResult:
    found = lag_check(box.project, KEY)()
    assert isinstance(found, dg.AssetCheckResult)
    return found


def test_a_capture_behind_by_more_than_its_limit_fails_its_check_and_is_a_finding(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders", log=f"slot: {SLOT}, create: true, warn_lag: 20MB")
    assert checked(box).passed
    run_all(box)
    assert checked(box).passed
    assert examined(box) == []
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    fill(orders, 25_000)
    found = checked(box)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "more than `warn_lag`, 20,971,520" in str(found.description)
    (one,) = examined(box)
    assert (one.key, one.kind) == (KEY, Kind.LOG_BEHIND)
    assert "odi run p --node changes" in one.remedy
    orders.execute("SELECT pg_drop_replication_slot(%s)", [SLOT])
    assert checked(box).description == f"the slot `{SLOT}` is gone"


def test_slots_of_others_and_of_captures_that_left_the_project_are_named_with_what_they_hold(
    capture: Capture,
    orders: Database,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = capture("orders")
    run_all(box)
    orders.execute("SELECT pg_create_logical_replication_slot('of_olake', 'pgoutput')")
    orders.execute("SELECT pg_create_physical_replication_slot('of_standby', true)")
    fill(orders, 100)
    (olake, standby) = sorted(examined(box), key=lambda one: one.message)
    assert {one.kind for one in (olake, standby)} == {Kind.SLOT_HELD}
    assert "the slot `of_olake` (pgoutput) of the database odi" in olake.message
    assert "If nobody needs it: SELECT pg_drop_replication_slot('of_olake')" in olake.remedy
    assert "`of_standby` (physical)" in standby.message
    monkeypatch.chdir(box.root)
    capfd.readouterr()
    # A slot that another tool may need is no disagreement.
    assert main(["doctor"]) == 0
    assert "The slot `of_olake` (pgoutput) of the database odi is none of this project" in capfd.readouterr().err
    for name in ("of_olake", "of_standby"):
        orders.execute("SELECT pg_drop_replication_slot(%s)", [name])
    file = tmp_path / "odibi.yaml"
    text = file.read_text(encoding="utf-8")
    other = "- name: other\n      read: {connection: lake, format: delta, path: orders}\n"
    nodes = text[: text.index("- name: changes")] + other + "      write: {connection: lake, path: other}\n"
    file.write_text(nodes, encoding="utf-8")
    box.project = Project.load(file)
    (one,) = examined(box)
    assert one.kind is Kind.SLOT_LEFT
    assert f"the slot `{SLOT}` of p.changes, which left the project, holds" in one.message
    assert main(["doctor"]) == 1
    statement = one.remedy.partition(";")[0]
    orders.execute(statement)
    assert examined(box) == []


def test_the_lineage_of_a_capture_names_the_tables_of_the_database(capture: Capture, orders: Database) -> None:
    del orders
    box = capture(patterns="public.orders, 'public.customer*'")
    graph = build_definitions(box.project).resolve_asset_graph()
    parents = graph.get(dg.AssetKey(["p", "changes"])).parent_keys
    assert parents == {dg.AssetKey(["db", "public", "orders"]), dg.AssetKey(["db", "public"])}
    checks = {key.name for key in graph.asset_check_keys if key.asset_key == dg.AssetKey(["p", "changes"])}
    assert "log_lag" in checks


def test_the_server_keeps_no_log_for_nodes_that_apply_nothing(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    run_all(box)
    held_bytes = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
    (began,) = orders.execute("SELECT pg_current_wal_lsn()").fetchall()[0]
    most = 0
    for _ in range(6):
        orders.execute("UPDATE orders SET note = repeat(md5(random()::text), 5000)")
        orders.execute("CHECKPOINT")
        box.run("changes")
        most = max(most, orders.execute(held_bytes).fetchall()[0][0])
    (written,) = orders.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)::bigint", [began]).fetchall()[0]
    assert most < written / 3
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")
