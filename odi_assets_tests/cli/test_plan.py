"""``odi plan``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT, deliver

pytestmark = pytest.mark.usefixtures("shop")


def test_a_plan_has_a_line_per_node_in_the_order_they_run_and_writes_nothing(shop: Path, odi: Odi) -> None:
    answer = odi("plan", "shop")
    assert answer.code == 0
    head, orders, spending = answer.out.splitlines()
    assert head.split()[:3] == ["node", "reads", "writes"]
    assert orders.startswith("orders")
    assert "append" in orders
    assert "none → orders-1.csv" in orders
    assert spending.startswith("spending")
    assert not (shop / "lake" / "orders").exists()


def test_a_plan_as_json_is_an_array_of_objects(shop: Path, odi: Odi) -> None:
    deliver(shop, "orders-2.csv", ["3,ann,1"])
    answer = odi("plan", "--node", "orders", "--json")
    (plan,) = json.loads(answer.out)
    assert (plan["pipeline"], plan["node"], plan["action"], plan["mode"]) == ("shop", "orders", "write", "append")
    assert plan["reads"][0]["files"] == 2
    assert plan["hwm_after"] == "orders-2.csv"


def test_a_plan_knows_that_nodes_follow_those_before_them(shop: Path, odi: Odi) -> None:
    before = json.loads(odi("plan", "--json").out)
    assert [plan["action"] for plan in before] == ["write", "follow"]
    assert before[1]["summary"] == "what orders will hold: not written yet"
    alone = json.loads(odi("plan", "--node", "spending", "--json").out)
    assert [plan["action"] for plan in alone] == ["nothing"]
    assert not (shop / "lake" / "spending").exists()


def test_a_full_refresh_is_planned_as_one(odi: Odi) -> None:
    (plan,) = json.loads(odi("plan", "--node", "orders", "--full-refresh", "--json").out)
    assert (plan["mode"], plan["full_refresh"]) == ("overwrite", True)


def test_a_node_is_named_with_or_without_its_pipeline(odi: Odi) -> None:
    plain, full = odi("plan", "--node", "orders", "--json"), odi("plan", "--node", "shop.orders", "--json")
    assert plain.out == full.out


def test_unknown_pipelines_and_nodes_are_bad_input_with_a_suggestion(odi: Odi) -> None:
    for arguments, meant in ([["plan", "shpo"], "shop"], [["plan", "--node", "order"], "orders"]):
        answer = odi(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert meant in answer.err


def test_a_node_that_cannot_be_planned_does_not_hide_the_others(odi: Odi) -> None:
    # The state of `orders` is ahead of a table that is not there.
    odi("state", "set", "shop.orders", '{"mtime_ns": 1, "path": "orders-1.csv"}')
    answer = odi("plan", "--json")
    orders, spending = json.loads(answer.out)
    assert answer.code == 1
    assert orders["action"] == "error"
    assert spending["node"] == "spending"
    assert "shop.orders cannot be planned" in answer.err
    assert "Traceback" not in answer.err


def test_the_config_option_is_taken_before_and_after_the_command(tmp_path: Path, odi: Odi) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PROJECT.replace("name: spending", "name: totals"), encoding="utf-8")
    before = odi("-c", str(other), "plan", "--node", "totals", "--json")
    after = odi("plan", "--node", "totals", "--json", "--config", str(other))
    assert before.code == 0, before.err
    assert before.out == after.out


@pytest.mark.parametrize("lag", ["2", "2h"])
def test_a_lag_that_does_not_fit_the_cursor_is_refused_before_the_first_run(tmp_path: Path, odi: Odi, lag: str) -> None:
    at = pa.array([datetime(2024, 3, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path / "lake" / "source", pa.table({"id": [1], "at": at}))
    increment = f"{{mode: stateful, column: at, watermark_lag: {lag}}}"
    read = f"connection: lake, format: delta, path: source, incremental: {increment}"
    write = "connection: lake, path: late, mode: append, keys: [id]"
    (tmp_path / "late.yaml").write_text(
        PROJECT.partition("      - name: orders")[0]
        + f"      - name: late\n        read: {{{read}}}\n        write: {{{write}}}\n",
        encoding="utf-8",
    )
    answer = odi("-c", str(tmp_path / "late.yaml"), "plan")
    assert answer.code == (1 if lag == "2" else 0)
    assert ("watermark_lag 2 does not subtract from " in answer.err) == (lag == "2")
